//! Making a share cold without root: the kernel is told to drop what it caches of it.
//!
//! Dropping a name drops everything below it that is not in use, attributes, pages and absent names
//! included, so the names in the root are enough; nodes that are in use then lose their attributes
//! and pages one by one.
//!
//! Invariant: every name in the root that the kernel may have cached, present or absent, was
//! recorded before the kernel heard of it.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use fuser::{INodeNo, Notifier};

use super::node_table::NodeTable;

/// Names looked up in the root.
#[derive(Debug, Clone)]
pub(in crate::server) struct RootNames {
    names: Arc<Mutex<HashSet<OsString>>>,
    nodes: Arc<NodeTable>,
}

impl RootNames {
    pub(super) fn new(nodes: Arc<NodeTable>) -> Self {
        Self { names: Arc::default(), nodes }
    }

    pub(super) fn record(&self, parent: INodeNo, name: &OsStr) {
        if parent == INodeNo::ROOT {
            let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
            if !names.contains(name) {
                names.insert(name.to_owned());
            }
        }
    }

    /// Makes the kernel forget all that is not in use. Not to be called from a thread that answers
    /// requests: the kernel waits here for requests in flight on the same directory.
    pub(in crate::server) fn forget_all(&self, notifier: &Notifier) -> io::Result<()> {
        let names = std::mem::take(&mut *self.names.lock().unwrap_or_else(PoisonError::into_inner));
        for name in names {
            notifier.inval_entry(INodeNo::ROOT, &name)?;
        }
        for id in self.nodes.ids() {
            notifier.inval_inode(INodeNo(id), 0, 0)?;
        }
        Ok(())
    }
}
