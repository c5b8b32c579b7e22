//! Cleanup of a test binary at its exit, since statics are not dropped.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

type Task = Box<dyn FnOnce() + Send>;

static TASKS: Mutex<Vec<Task>> = Mutex::new(Vec::new());

extern "C" fn run_tasks() {
    let tasks = std::mem::take(&mut *TASKS.lock().unwrap_or_else(PoisonError::into_inner));
    tasks.into_iter().rev().for_each(|task| task());
}

/// Has `task` run when this process exits, last registered first.
pub(crate) fn at_exit(task: impl FnOnce() + Send + 'static) {
    let mut tasks = TASKS.lock().unwrap_or_else(PoisonError::into_inner);
    if tasks.is_empty() {
        // SAFETY: registers a function that does not unwind; atexit(3) may be called at any time.
        unsafe { libc::atexit(run_tasks) };
    }
    tasks.push(Box::new(task));
}

/// A directory of this process, on ordinary storage, removed at exit.
pub fn scratch() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = tempfile::Builder::new().prefix("runahead-tests-").tempdir();
        let dir = dir.expect("a temporary directory can be made").keep();
        let removed = dir.clone();
        at_exit(move || {
            let _ = std::fs::remove_dir_all(removed);
        });
        dir
    })
}
