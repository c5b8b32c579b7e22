//! Entries of a try that their owner may not read: the command may have taken that permission from
//! itself.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;

use crate::held_tree::HeldEntry;

/// Permission of the owner to read.
const READ: u32 = 0o400;

/// Entry that its owner may read until this is dropped. Then it has its own permissions again.
pub(crate) struct ReadableEntry<'a> {
    entry: &'a HeldEntry,
    /// Its own metadata, if the permissions do not let the owner read.
    own: Option<Metadata>,
}

impl<'a> ReadableEntry<'a> {
    /// Lets the owner read the entry, whose metadata is `found`. Root may read everything.
    pub(crate) fn new(entry: &'a HeldEntry, found: &Metadata) -> io::Result<Self> {
        let user = rustix::process::geteuid();
        let is_owner = !user.is_root() && found.uid() == user.as_raw();
        let is_narrow = is_owner && !found.is_symlink() && found.mode() & READ == 0;
        if is_narrow {
            entry.widen(found, found.mode() | READ)?;
        }
        Ok(ReadableEntry { entry, own: is_narrow.then(|| found.clone()) })
    }
}

impl Drop for ReadableEntry<'_> {
    fn drop(&mut self) {
        if let Some(own) = &self.own {
            // The commit that made it readable may have moved it.
            let _ = self.entry.narrow(own);
        }
    }
}
