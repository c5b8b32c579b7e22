//! Looks into files to see what executing them needs. What it reads with is its caller's.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::elf::{HEAD_BYTES, Head, Source};
use super::ld_cache::{CACHE_MAX, LdCache};
use super::library_search::{Library, Origin, Search, musl_root};
use super::program_task::{Dynamic, FileLead, Located, Role};
use super::script_line::Script;
use super::{load_plan, loader_arch};
use crate::deferred_effects::StepFailure;

/// Scripts between the executed file and its interpreter, at most: as in the kernel.
const SCRIPTS_MAX: u32 = 4;
/// Cache of the GNU C library's dynamic linker.
const LD_CACHE: &[u8] = b"/etc/ld.so.cache";
/// Time for which the cache that was read is valid.
const LD_CACHE_LIFE: Duration = Duration::from_secs(10);
/// Chunks of one file that are kept while it is looked into, beside its head.
const WINDOWS_MAX: usize = 8;
/// Largest configuration file of musl that is read.
const MUSL_PATHS_MAX: u64 = 4096;

/// Access to files. An implementation must have no effects (`prefetch/src/io.rs`).
pub trait Files<F> {
    /// The regular file that `path` leads to, and its size; `None` if it leads to something else.
    fn open(&mut self, path: &[u8]) -> Result<Option<(F, u64)>, StepFailure>;
    /// Up to `length` bytes from `offset` on.
    fn bytes(&mut self, file: &F, offset: u64, length: u64) -> Result<Vec<u8>, StepFailure>;
    /// The path of `file` without symbolic links.
    fn real_path(&mut self, file: &F) -> Option<Vec<u8>>;
}

/// State common to all inspections.
pub struct Inspector {
    search: Search,
    cache: Mutex<Option<(Duration, Arc<LdCache>)>>,
}

/// Parts of one file, of which the head is known.
struct Window<'a, F> {
    files: &'a mut dyn Files<F>,
    file: &'a F,
    start: &'a [u8],
    chunks: Vec<(u64, Vec<u8>)>,
}

impl<F> Window<'_, F> {
    /// Returns the contents of chunk `index`.
    fn chunk(&mut self, index: u64) -> &[u8] {
        if index == 0 {
            return self.start;
        }
        let known = self.chunks.iter().position(|(at, _)| *at == index);
        let at = known.unwrap_or_else(|| {
            let full = self.chunks.len() >= WINDOWS_MAX;
            let offset = index.checked_mul(HEAD_BYTES).filter(|_| !full);
            let bytes = offset.map(|offset| self.files.bytes(self.file, offset, HEAD_BYTES));
            self.chunks.push((index, bytes.and_then(Result::ok).unwrap_or_default()));
            self.chunks.len() - 1
        });
        &self.chunks[at].1
    }
}

impl<F> Source for Window<'_, F> {
    fn bytes(&mut self, offset: u64, length: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut at = offset;
        let end = offset.saturating_add(length.min(HEAD_BYTES));
        while at < end && self.chunks.len() <= WINDOWS_MAX {
            let within = (at % HEAD_BYTES) as usize;
            let want = (end - at).min(HEAD_BYTES - within as u64) as usize;
            let chunk = self.chunk(at / HEAD_BYTES);
            let part = &chunk[within.min(chunk.len())..(within + want).min(chunk.len())];
            bytes.extend_from_slice(part);
            if part.len() < want {
                break;
            }
            at += want as u64;
        }
        bytes
    }
}

/// The directory that `path` lies in.
fn directory(path: &[u8]) -> Vec<u8> {
    let slash = path.iter().rposition(|&b| b == b'/').unwrap_or(0);
    path[..slash.max(1).min(path.len())].to_vec()
}

impl Inspector {
    /// Creates an inspector from the values of `LD_LIBRARY_PATH` and `PATH`.
    pub fn new(library_path: &[u8], path: &[u8]) -> Self {
        Inspector { search: Search::new(library_path, path), cache: Mutex::new(None) }
    }

    /// The first of the lead's places that has what it is looking for.
    pub fn find<F>(
        &self,
        files: &mut dyn Files<F>,
        lead: &FileLead,
    ) -> Result<Option<Box<Located<F>>>, StepFailure> {
        for path in lead.places.iter() {
            let (file, size) = match files.open(path) {
                Ok(Some(found)) => found,
                Ok(None) | Err(StepFailure::Answer) => continue,
                Err(StepFailure::Ours) => return Err(StepFailure::Ours),
            };
            let start = match files.bytes(&file, 0, size.min(HEAD_BYTES)) {
                Ok(start) => start,
                Err(StepFailure::Answer) => continue,
                Err(StepFailure::Ours) => return Err(StepFailure::Ours),
            };
            let head = Head::parse(&start, size);
            if head.is_none() && !matches!(lead.role, Role::Program { .. }) {
                // A library for another machine is passed over.
                continue;
            }
            let located = self.located(files, lead, (path, file, size), (start, head));
            return Ok(Some(Box::new(located)));
        }
        Ok(None)
    }

    fn located<F>(
        &self,
        files: &mut dyn Files<F>,
        lead: &FileLead,
        (path, file, size): (&[u8], F, u64),
        (start, head): (Vec<u8>, Option<Head>),
    ) -> Located<F> {
        let file = Arc::new(file);
        let mut located = Located {
            path: path.into(),
            file: file.clone(),
            bytes: start.len() as u64,
            parts: Vec::new(),
            leads: Vec::new(),
            needs: None,
        };
        let Some(head) = head else {
            located.parts = load_plan::of_script(size);
            located.leads = self.interpreters(&start, &lead.role);
            return located;
        };
        located.parts = load_plan::of_program(&head);
        let origin = match &lead.role {
            Role::Linker => None,
            Role::Library(inherited) => {
                Some(Origin { directory: directory(path), ..inherited.clone() })
            }
            Role::Program { .. } => {
                let mut window = Window { files, file: &file, start: &start, chunks: vec![] };
                let linker = head.interpreter(&mut window).filter(|path| path.starts_with(b"/"));
                let real = files.real_path(&file);
                linker.map(|linker| {
                    let musl = musl_root(&linker).map(Arc::from);
                    let places = vec![linker.clone()].into();
                    located.leads = vec![FileLead { name: linker, places, role: Role::Linker }];
                    let directory = directory(real.as_deref().unwrap_or(path));
                    Origin { directory, musl, ..Origin::default() }
                })
            }
        };
        let dynamic = origin.filter(|_| head.is_dynamic());
        located.needs = dynamic.map(|origin| Dynamic { file, start, head, origin });
        located
    }

    /// Returns the interpreter of the script that begins with `start`, if it is one.
    fn interpreters(&self, start: &[u8], role: &Role) -> Vec<FileLead> {
        let Role::Program { scripts } = *role else { return Vec::new() };
        let Some(script) = Script::parse(start).filter(|_| scripts < SCRIPTS_MAX) else {
            return Vec::new();
        };
        let role = Role::Program { scripts: scripts + 1 };
        let places = vec![script.interpreter.clone()].into();
        let mut leads = vec![FileLead { name: script.interpreter, places, role: role.clone() }];
        if let Some(name) = script.looks_for {
            let places = self.search.programs(&name).into();
            leads.push(FileLead { name, places, role });
        }
        leads
    }

    /// The libraries of a file.
    pub fn needs<F>(
        &self,
        files: &mut dyn Files<F>,
        found: &Dynamic<F>,
        now: Duration,
    ) -> Vec<FileLead> {
        let Dynamic { file, start, head, origin } = found;
        let mut window = Window { files, file, start, chunks: vec![] };
        let needs = head.needs(&mut window);
        if needs.names.is_empty() {
            return Vec::new();
        }
        let mut musl_paths = Vec::new();
        let mut cache = Arc::default();
        match &origin.musl {
            Some(root) => {
                let path = [root, loader_arch::MUSL_PATHS].concat();
                musl_paths = small_file(files, &path, MUSL_PATHS_MAX).unwrap_or_default();
            }
            None => cache = self.cache(files, now),
        }
        let (libraries, origin) = self.search.libraries(&needs, origin, &cache, &musl_paths);
        let lead = |(name, places): Library| FileLead {
            name,
            places: places.into(),
            role: Role::Library(origin.clone()),
        };
        libraries.into_iter().map(lead).collect()
    }

    fn cache<F>(&self, files: &mut dyn Files<F>, now: Duration) -> Arc<LdCache> {
        let known = self.cache.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((since, cache)) = known
            && now.saturating_sub(since) < LD_CACHE_LIFE
        {
            return cache;
        }
        let bytes = small_file(files, LD_CACHE, CACHE_MAX).unwrap_or_default();
        let cache = Arc::new(LdCache::new(bytes));
        let mut known = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some((now, cache.clone()));
        cache
    }
}

/// The regular file `path`, if it is not larger than `max`.
fn small_file<F>(files: &mut dyn Files<F>, path: &[u8], max: u64) -> Option<Vec<u8>> {
    let (file, size) = files.open(path).ok()??;
    (size <= max).then(|| files.bytes(&file, 0, size).ok())?
}
