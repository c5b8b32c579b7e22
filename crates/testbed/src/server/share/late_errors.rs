//! Errors of writes that are told late, as by a server that has answered them from memory.

use std::collections::HashSet;
use std::io;
use std::sync::{Mutex, PoisonError};

use fuser::INodeNo;

/// Files that have lost data without a report so far.
pub(super) struct LateErrors {
    errno: Option<i32>,
    lost: Mutex<HashSet<u64>>,
}

impl LateErrors {
    /// Data is lost with this error, if one is given.
    pub(super) fn new(errno: Option<i32>) -> Self {
        Self { errno, lost: Mutex::default() }
    }

    /// A flush is something.
    pub(super) fn is_on(&self) -> bool {
        self.errno.is_some()
    }

    /// The file was written to.
    pub(super) fn wrote(&self, ino: INodeNo) {
        if self.is_on() {
            self.lost.lock().unwrap_or_else(PoisonError::into_inner).insert(ino.0);
        }
    }

    /// Result of the file's next flush or sync: the error, once.
    pub(super) fn settle(&self, ino: INodeNo) -> io::Result<()> {
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner).remove(&ino.0);
        match self.errno {
            Some(errno) if lost => Err(io::Error::from_raw_os_error(errno)),
            _ => Ok(()),
        }
    }
}
