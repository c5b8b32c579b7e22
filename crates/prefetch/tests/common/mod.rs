//! Helpers that the tests of the prefetcher on real files share.
#![allow(dead_code, missing_docs, reason = "no test uses all of it")]

use std::collections::HashSet;
use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::ptr;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use proptest::test_runner::{Config, RngSeed};
use runahead_abi::hint_record::Header;
use runahead_abi::{HintKind, Record};
use runahead_estimators::Identity;
use runahead_estimators::access_identity::{CHUNK_BYTES, ChunkIndex};
use runahead_prefetch::{
    Client, Completion, HINT_MAX_BYTES, Options, PrefetchStats, Prefetcher, Sink,
};
use rustix::fs::{Advice, CWD, FileType, Mode};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Random cases from `RUNAHEAD_SEED`, or from a new seed; it is printed, so that a failure can be
/// repeated.
pub fn config(cases: u32) -> Config {
    let rng_seed = RngSeed::Fixed(seed());
    Config { rng_seed, failure_persistence: None, ..Config::with_cases(cases) }
}

/// `RUNAHEAD_SEED`, or a new one; printed.
pub fn seed() -> u64 {
    let given = std::env::var("RUNAHEAD_SEED").ok().and_then(|text| text.parse().ok());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed = given.unwrap_or_else(|| now.map_or(1, |now| now.as_nanos() as u64));
    eprintln!("repeat with RUNAHEAD_SEED={seed}");
    seed
}

/// Remembers all that it is told. While `gate` is shut, completions do not return.
#[derive(Default)]
pub struct RecordingSink {
    pub done: Mutex<HashSet<u64>>,
    pub expected: Mutex<HashSet<u64>>,
    /// Accesses that the target has made, as a test says.
    pub used: Mutex<HashSet<u64>>,
    pub forgotten: Mutex<HashSet<u64>>,
    pub completed: Mutex<Vec<Completion>>,
    pub shut: Mutex<bool>,
    opened: Condvar,
}

impl Sink for RecordingSink {
    fn done(&self, key: Identity) {
        self.done.lock().unwrap().insert(key.raw());
    }

    fn forget(&self, key: Identity, _before: u32) {
        self.forgotten.lock().unwrap().insert(key.raw());
    }

    fn expect(&self, key: Identity, _run: u32) -> bool {
        self.expected.lock().unwrap().insert(key.raw())
    }

    fn was_used(&self, key: Identity) -> bool {
        self.used.lock().unwrap().contains(&key.raw())
    }

    fn completed(&self, completion: &Completion) {
        self.completed.lock().unwrap().push(*completion);
        drop(self.opened.wait_while(self.shut.lock().unwrap(), |shut| *shut).unwrap());
    }
}

impl RecordingSink {
    pub fn is_done(&self, key: Identity) -> bool {
        self.done.lock().unwrap().contains(&key.raw())
    }

    pub fn open_gate(&self) {
        *self.shut.lock().unwrap() = false;
        self.opened.notify_all();
    }
}

pub struct Bench {
    pub dir: tempfile::TempDir,
    pub watch: Arc<RecordingSink>,
    pub client: Client,
    pub prefetcher: Prefetcher,
}

impl Bench {
    pub fn new(max_in_flight: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let watch = Arc::new(RecordingSink::default());
        let options = Options { max_in_flight, ..Options::default() };
        let prefetcher = Prefetcher::new(options, |_, _| ());
        let client = prefetcher.client(watch.clone());
        Bench { dir, watch, client, prefetcher }
    }

    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    /// A file whose pages are on storage and not in memory, as far as the file system lets us.
    pub fn cold_file(&self, name: &str, bytes: usize) -> std::path::PathBuf {
        let path = self.path(name);
        fs::write(&path, vec![7; bytes]).unwrap();
        drop_from_memory(&path);
        path
    }

    pub fn hint(&self, hint: Hint<'_>) {
        hint.send(&self.client);
    }

    pub fn wait(&self) -> PrefetchStats {
        let start = Instant::now();
        loop {
            let stats = self.prefetcher.stats();
            if stats.queued == 0 && stats.in_flight == 0 {
                return stats;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "still busy: {stats:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[derive(Clone, Copy)]
pub struct Hint<'a> {
    pub kind: HintKind,
    pub path: &'a Path,
    pub run: u32,
    pub flags: u32,
    pub offset: u64,
    pub length: u64,
}

pub fn hint(kind: HintKind, path: &Path) -> Hint<'_> {
    Hint { kind, path, run: 1, flags: 0, offset: 0, length: 4096 }
}

pub fn key(path: &Path) -> Identity {
    Identity::ROOT.join(path.as_os_str().as_bytes())
}

impl Hint<'_> {
    pub fn send(&self, client: &Client) {
        self.send_as(key(self.path), client);
    }

    pub fn send_as(&self, key: Identity, client: &Client) {
        let path = self.path.as_os_str().as_bytes();
        let header = Header {
            kind: self.kind as u32,
            run: self.run,
            position: 0,
            key: key.raw(),
            offset: self.offset,
            length: self.length,
            flags: self.flags,
            path_len: path.len() as u32,
        };
        client.submit(&Record { kind: self.kind, header, path });
    }

    pub fn keys(&self) -> Vec<Identity> {
        let key = key(self.path);
        let end = self.offset + self.length.min(HINT_MAX_BYTES);
        let chunks = self.offset / CHUNK_BYTES..end.div_ceil(CHUNK_BYTES);
        match self.kind {
            HintKind::Lookup | HintKind::Program | HintKind::Cancel => vec![key],
            HintKind::Listing => vec![key, key.listing()],
            HintKind::Link => vec![key, key.link()],
            HintKind::Data => chunks.map(|c| key.chunk(ChunkIndex(c))).chain([key]).collect(),
        }
    }
}

/// Takes a file's pages out of memory, where it is on storage. A page that another processor is
/// still busy with stays for a while, so it is asked more than once.
pub fn drop_from_memory(path: &Path) {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    for _ in 0..20 {
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        let bytes = file.metadata().unwrap().len();
        if !(0..bytes).step_by(rustix::param::page_size()).any(|page| resident(path, page)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// True if the page at `offset` is in memory, by mincore(2), which tells the owner of a file. A
/// read that must not wait would start to read missing data, and on a fast disk find it in the end.
pub fn resident(path: &Path, offset: u64) -> bool {
    let file = File::open(path).unwrap();
    let page = rustix::param::page_size();
    let aligned = offset / page as u64 * page as u64;
    let mut is_in_memory = 0_u8;
    // SAFETY: a new mapping of one page, which nothing reads through; mincore(2) writes one byte
    // for one page.
    unsafe {
        let (prot, flags) = (ProtFlags::READ, MapFlags::SHARED);
        let at = mmap(ptr::null_mut(), page, prot, flags, &file, aligned).unwrap();
        assert_eq!(libc::mincore(at, page, &mut is_in_memory), 0, "mincore: {}", path.display());
        munmap(at, page).unwrap();
    }
    is_in_memory & 1 != 0
}

pub const KINDS: [HintKind; 5] =
    [HintKind::Lookup, HintKind::Listing, HintKind::Data, HintKind::Link, HintKind::Program];

/// Paths of every kind, to be hinted at random.
pub fn zoo(bench: &Bench) -> Vec<std::path::PathBuf> {
    let names = ["big", "small", "none", "dir", "dir/none", "link", "fifo", "small/below"];
    let paths = names.map(|name| bench.path(name));
    bench.cold_file("big", 3 << 20);
    bench.cold_file("small", 1000);
    fs::create_dir(&paths[3]).unwrap();
    symlink("small", &paths[5]).unwrap();
    let fifo = CString::new(paths[6].as_os_str().as_bytes()).unwrap();
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    paths.into()
}
