//! Directory trees: one to read, and what a program has made of another.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Directories of source files, and files in each.
pub const DIRECTORIES: usize = 12;
/// Files in each directory.
pub const FILES: usize = 20;

/// Byte `at` of every generated file: no two pages are alike.
pub fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Text of a generated source file.
fn source(dir: usize, file: usize) -> String {
    let mut text = String::new();
    for line in 0..60 + (dir * 7 + file * 13) % 300 {
        let word = if line % 17 == file % 17 { "needle" } else { "straw" };
        text += &format!("int {word}_{dir}_{file}_{line}(int x) {{ return x + {line}; }}\n");
    }
    text
}

/// Fills `root` with everything that programs stumble over.
pub fn populate(root: &Path) -> std::io::Result<()> {
    for dir in 0..DIRECTORIES {
        let parent = if dir % 3 == 2 { format!("src/d{}", dir - 1) } else { "src".into() };
        let path = root.join(parent).join(format!("d{dir}"));
        fs::create_dir_all(&path)?;
        for file in 0..FILES {
            fs::write(path.join(format!("f{file}.c")), source(dir, file))?;
        }
    }
    let odd = root.join("odd");
    fs::create_dir_all(odd.join("empty directory"))?;
    fs::write(odd.join("empty"), "")?;
    fs::write(odd.join("with space"), "needle in a name with a space\n")?;
    fs::write(odd.join("with\nnewline"), "needle\n")?;
    fs::write(odd.join(OsStr::from_bytes(b"not utf-8 \xff\xfe")), "needle\n")?;
    fs::write(odd.join("-n"), "needle in a file that looks like an option\n")?;
    fs::write(odd.join("hard"), "one needle, two names\n")?;
    fs::hard_link(odd.join("hard"), odd.join("hard again"))?;
    symlink("hard", odd.join("link"))?;
    symlink("nowhere", odd.join("dangling"))?;
    symlink("loop", odd.join("loop"))?;
    symlink("../src/d0", odd.join("to a directory"))?;
    let mut holes = fs::File::create(odd.join("holes"))?;
    holes.seek(SeekFrom::Start(1 << 20))?;
    holes.write_all(b"needle behind a hole\n")?;
    holes.seek(SeekFrom::Start(2 << 20))?;
    holes.write_all(b"end\n")?;
    fs::write(odd.join("secret"), "needle that only root may read\n")?;
    fs::set_permissions(odd.join("secret"), fs::Permissions::from_mode(0o600))?;
    let big: Vec<u8> = (0..3 << 20).map(byte).collect();
    fs::write(root.join("big"), &big)?;
    fs::write(root.join("data"), &big[..1 << 20])?;
    // Many small files that are read in the order of a list, for programs that need stalls.
    fs::create_dir(root.join("many"))?;
    for n in 0..64 {
        fs::write(root.join(format!("many/{n:02}")), [b'a' + (n % 26) as u8].repeat(5000 + n))?;
    }
    let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    for name in ["hard", "with space"] {
        fs::File::options().write(true).open(odd.join(name))?.set_modified(old)?;
    }
    Ok(())
}

/// Kind, mode, links and contents of every file below `root`, by its path.
pub fn snapshot(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(path) = pending.pop() {
        let Ok(meta) = path.symlink_metadata() else { continue };
        let contents = if meta.is_file() {
            String::from_utf8_lossy(&fs::read(&path).unwrap_or_default()).into_owned()
        } else if meta.is_symlink() {
            fs::read_link(&path).map(|p| p.display().to_string()).unwrap_or_default()
        } else {
            let entries = fs::read_dir(&path).into_iter().flatten().flatten();
            pending.extend(entries.map(|e| e.path()));
            String::new()
        };
        let name = path.strip_prefix(root).unwrap_or(&path).to_owned();
        found.insert(name, format!("{:o} {} {contents}", meta.mode(), meta.nlink()));
    }
    found
}

/// The names of everything below `root`, from its inodes alone: no file is read.
pub fn snapshot_names(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut pending) = (Vec::new(), vec![root.to_owned()]);
    while let Some(path) = pending.pop() {
        if path.symlink_metadata().is_ok_and(|m| m.is_dir()) {
            let entries = fs::read_dir(&path).into_iter().flatten().flatten();
            pending.extend(entries.map(|e| e.path()));
        } else if let Ok(name) = path.strip_prefix(root) {
            found.push(name.to_owned());
        }
    }
    found.sort();
    found
}
