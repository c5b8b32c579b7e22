//! Search path of the dynamic linker for a library: ld.so(8) for the GNU C library, and
//! `ldso/dynlink.c` for musl.
//!
//! The environment is that of this process, which the target's mostly equals. What cannot be known
//! from outside (a linker of another prefix, `LD_PRELOAD`, dlmopen) is left out: a library that is
//! looked for in the wrong place costs a few lookups.
//!
//! Invariant: the list of places for one library is no longer than [`CANDIDATES_MAX`].

use std::sync::Arc;

use super::elf::Needs;
use super::ld_cache::LdCache;
use super::loader_arch;

/// Places in which one library is looked for.
pub const CANDIDATES_MAX: usize = 48;
/// Directories that one search path contributes.
const DIRECTORIES_MAX: usize = 24;

/// Search state of the file whose libraries are searched.
#[derive(Clone, Default)]
pub struct Origin {
    /// The file's directory, without links if it is the program itself.
    pub directory: Vec<u8>,
    /// Directories that the file inherits from those that need it.
    pub inherited: Arc<Vec<Vec<u8>>>,
    /// musl loads it: the root that this is installed in, which ends with a slash.
    pub musl: Option<Arc<[u8]>>,
}

/// The name of a library, and where it may be.
pub type Library = (Vec<u8>, Vec<Vec<u8>>);

/// Search paths of the environment.
#[derive(Default)]
pub struct Search {
    library_path: Vec<Vec<u8>>,
    path: Vec<Vec<u8>>,
}

/// A musl loader's root, if `interpreter` is one: `/` for `/lib/ld-musl-x86_64.so.1`.
pub fn musl_root(interpreter: &[u8]) -> Option<&[u8]> {
    let directory = interpreter.strip_suffix(loader_arch::MUSL_LOADER)?.strip_suffix(b"/")?;
    directory.strip_suffix(b"lib").filter(|root| root.ends_with(b"/"))
}

/// True if musl's dynamic linker stands for `name` itself.
fn is_musl_itself(name: &[u8]) -> bool {
    const PARTS: [&[u8]; 7] = [b"c.", b"pthread.", b"rt.", b"m.", b"dl.", b"util.", b"xnet."];
    let rest = name.strip_prefix(b"lib");
    rest.is_some_and(|rest| PARTS.iter().any(|part| rest.starts_with(part)))
}

/// The absolute directories in a list of them.
fn directories(list: &[u8], separators: &[u8]) -> Vec<Vec<u8>> {
    let absolute = |directory: &&[u8]| directory.starts_with(b"/");
    let all = list.split(|b| separators.contains(b)).filter(absolute);
    all.take(DIRECTORIES_MAX).map(<[u8]>::to_vec).collect()
}

/// `list` with `$ORIGIN` and its like replaced, in all the ways that are possible.
fn expand(list: &[u8], origin: &[u8]) -> Vec<Vec<u8>> {
    let tokens: [(&str, &[&[u8]]); 3] =
        [("ORIGIN", &[origin]), ("LIB", &loader_arch::LIB), ("PLATFORM", &loader_arch::PLATFORM)];
    let mut all: Vec<Vec<u8>> = Vec::new();
    for directory in list.split(|&b| b == b':').take(DIRECTORIES_MAX) {
        let mut ways = vec![directory.to_vec()];
        for (token, values) in tokens {
            ways = ways.iter().flat_map(|way| replace(way, token, values)).collect();
        }
        all.extend(ways.into_iter().filter(|way| way.starts_with(b"/")));
        if all.len() >= DIRECTORIES_MAX {
            break;
        }
    }
    all.truncate(DIRECTORIES_MAX);
    all
}

/// `text` with each of `values` in the place of `$token` and `${token}`; long results are dropped.
fn replace(text: &[u8], token: &str, values: &[&[u8]]) -> Vec<Vec<u8>> {
    let forms = [format!("${{{token}}}"), format!("${token}")];
    let find = |text: &[u8]| {
        let at = |form: &String| {
            let at = text.windows(form.len()).position(|part| part == form.as_bytes())?;
            Some((at, form.len()))
        };
        forms.iter().filter_map(at).min()
    };
    if find(text).is_none() {
        return vec![text.to_vec()];
    }
    let with = |value: &&[u8]| {
        let (mut done, mut rest) = (Vec::new(), text);
        while let Some((at, length)) = find(rest) {
            done.extend_from_slice(&rest[..at]);
            done.extend_from_slice(value);
            rest = &rest[at + length..];
            if done.len() > runahead_abi::PATH_MAX {
                return None;
            }
        }
        done.extend_from_slice(rest);
        Some(done)
    };
    values.iter().filter_map(with).collect()
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if directory.ends_with(b"/") { b"" } else { b"/" };
    [directory, slash, name].concat()
}

impl Search {
    /// Creates a search from the values of `LD_LIBRARY_PATH` and `PATH`.
    pub fn new(library_path: &[u8], path: &[u8]) -> Self {
        let library_path = directories(library_path, b":;");
        Search { library_path, path: directories(path, b":") }
    }

    /// Returns the paths to try for a program that is named without a directory.
    pub fn programs(&self, name: &[u8]) -> Vec<Vec<u8>> {
        self.path.iter().map(|directory| join(directory, name)).collect()
    }

    /// The libraries in `needs` of the file `of`: each one's name, the places where it may be, and
    /// what is handed on to it. `musl_paths` is musl's own configuration, if it has one.
    pub fn libraries(
        &self,
        needs: &Needs,
        of: &Origin,
        cache: &LdCache,
        musl_paths: &[u8],
    ) -> (Vec<Library>, Origin) {
        let expand = |list: &Option<Vec<u8>>| {
            list.as_ref().map(|list| expand(list, &of.directory)).unwrap_or_default()
        };
        let (rpath, runpath) = (expand(&needs.rpath), expand(&needs.runpath));
        // musl makes no difference between the two; the GNU C library ignores the first where
        // there is the second, and hands on only the first.
        let own = match (of.musl.is_some(), needs.runpath.is_some()) {
            (true, true) => runpath.clone(),
            (false, true) => Vec::new(),
            (_, false) => rpath,
        };
        let mut inherited = own;
        inherited.extend(of.inherited.iter().cloned());
        inherited.truncate(DIRECTORIES_MAX);
        let last = match &of.musl {
            Some(_) if musl_paths.is_empty() => directories(loader_arch::MUSL_DIRECTORIES, b":"),
            Some(_) => directories(musl_paths, b":\n"),
            None => loader_arch::DIRECTORIES.map(<[u8]>::to_vec).into(),
        };
        let none = Vec::new();
        let (before, after, after_that) = match (of.musl.is_some(), needs.runpath.is_some()) {
            (true, _) => (&self.library_path, &inherited, &none),
            (false, true) => (&none, &self.library_path, &runpath),
            (false, false) => (&inherited, &self.library_path, &none),
        };
        let places = |name: &[u8]| {
            if name.contains(&b'/') {
                return if name.starts_with(b"/") { vec![name.to_vec()] } else { Vec::new() };
            }
            let known = if of.musl.is_some() { Vec::new() } else { cache.find(name) };
            let searched = before.iter().chain(after).chain(after_that);
            let searched = searched.map(|directory| join(directory, name));
            let last = last.iter().map(|directory| join(directory, name));
            searched.chain(known).chain(last).take(CANDIDATES_MAX).collect()
        };
        let itself = |name: &Vec<u8>| of.musl.is_some() && is_musl_itself(name);
        let names = needs.names.iter().filter(|name| !itself(name));
        let libraries = names.map(|name| (name.clone(), places(name))).collect();
        let origin =
            Origin { directory: Vec::new(), inherited: inherited.into(), musl: of.musl.clone() };
        (libraries, origin)
    }
}

#[cfg(test)]
#[path = "library_search_tests.rs"]
mod tests;
