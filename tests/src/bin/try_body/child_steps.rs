//! Steps of child processes, and of threads.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::Command;

use crate::other_owners::may_be_anothers;
use crate::step_context::{Context, Kind, Result};

pub const KINDS: &[Kind] = &[
    Kind { name: "shell", run: shell },
    Kind { name: "shell", run: shell },
    Kind {
        name: "copy-tree",
        run: |context| program(context, &["cp", "-a", "--remove-destination"]),
    },
    Kind { name: "move", run: |context| program(context, &["mv", "-f"]) },
    Kind {
        name: "link-tree",
        run: |context| program(context, &["cp", "-al", "--remove-destination"]),
    },
    Kind { name: "script", run: script },
    Kind { name: "thread", run: thread },
];

/// Status of a command. What it prints has the names of the tree in it, and is not compared.
fn status(command: &mut Command) -> String {
    match command.output() {
        Ok(output) => {
            format!("{:?} {}", output.status.code(), String::from_utf8_lossy(&output.stdout))
        }
        Err(error) => format!("{:?}", error.raw_os_error()),
    }
}

/// Plain path, which commands can be given. None leads to a named pipe: commands would wait for its
/// other end.
fn plain(context: &mut Context) -> String {
    let path = context.random.plain_path();
    context.say(&path);
    let is_pipe = std::fs::metadata(&path).is_ok_and(|found| found.file_type().is_fifo());
    if is_pipe { "nowhere".into() } else { path }
}

fn shell(context: &mut Context) -> Result {
    let script = context.one_of(&[
        "echo shell >> \"$1\"",
        "echo shell > \"$1\"; cat \"$1\"",
        "cat \"$1\" | wc -c",
        "rm -rf \"$1\"",
        "sed -i s/a/Z/ \"$1\"",
        "mkdir -p \"$1/deep/er\"; echo x > \"$1/deep/f\"",
        "cd \"$1\" && echo inside > in && ls | wc -l",
        "mkfifo \"$1\" && { cat \"$1\" & echo through > \"$1\"; wait; }",
        "exec 3<> \"$1\" && echo z >&3 && ln \"$1\" \"$1.second\"",
    ]);
    let path = plain(context);
    if script.starts_with("rm ") {
        context.let_go_of_directories();
    }
    if script.contains("ln ") && may_be_anothers(&path) {
        return Ok("another user's".into());
    }
    Ok(status(Command::new("/bin/sh").args(["-c", script, "sh", &path])))
}

fn program(context: &mut Context, words: &[&str]) -> Result {
    let (from, to) = (plain(context), plain(context));
    // What cp(1) has copied of a directory before it notices that it copies it into itself depends
    // on the order in which the file system lists names.
    let real = |path: &str| std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let parent = Path::new(&to).parent().and_then(Path::to_str).unwrap_or(".");
    if [to.as_str(), parent].iter().any(|to| real(to).starts_with(real(&from))) {
        return Ok("inside".into());
    }
    if words.contains(&"-al") && may_be_anothers(&from) {
        return Ok("another user's".into());
    }
    context.let_go_of_directories();
    Ok(status(Command::new(words[0]).args(&words[1..]).args(["--", &from, &to])))
}

/// Writes a script, makes it executable and executes it.
fn script(context: &mut Context) -> Result {
    let path = plain(context);
    // A script over a symbolic link would be found by another name in `$0`.
    if std::fs::symlink_metadata(&path).is_ok() {
        return Ok("there".into());
    }
    let written = std::fs::write(&path, "#!/bin/sh\necho from the script >> f\n");
    if let Err(error) = written {
        return Ok(format!("{:?}", error.raw_os_error()));
    }
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("it is ours");
    Ok(status(&mut Command::new(std::path::Path::new(".").join(&path))))
}

/// Appends to a file from another thread.
fn thread(context: &mut Context) -> Result {
    let path = plain(context);
    let appended = std::thread::spawn(move || {
        use std::io::Write;
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = std::fs::File::options();
        options.append(true).create(true).custom_flags(libc::O_NONBLOCK);
        if std::fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
            return Ok(());
        }
        options.open(&path)?.write_all(b"from a thread")
    });
    match appended.join().expect("it does not panic") {
        Ok(()) => Ok("done".into()),
        Err(error) => Ok(format!("{:?}", error.raw_os_error())),
    }
}
