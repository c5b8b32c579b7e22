//! Storage of either kind that belongs to the caller that brought it up.
//!
//! Invariant: what was brought up is taken down once, by [`OwnedStorage::down`] or by dropping,
//! unless it was to be kept.

use std::marker::PhantomData;
use std::ops::Deref;

use crate::{Error, Storage};

/// Storage that is up as `Options` say: a [`crate::Disk`] or a [`crate::Share`]. It answers what
/// every [`Storage`] does. Dropping it takes it down, also under programs that still use it.
#[derive(Debug)]
pub struct OwnedStorage<Options> {
    storage: Option<Storage>,
    options: PhantomData<fn() -> Options>,
}

impl<Options> OwnedStorage<Options> {
    pub(crate) fn new(storage: Storage) -> Self {
        Self { storage: Some(storage), options: PhantomData }
    }

    /// Leaves it up when this process ends; find it again with [`Storage::find`].
    pub fn keep(mut self) -> Storage {
        self.take()
    }

    /// Takes it down; see [`Storage::down`].
    ///
    /// # Errors
    /// [`Error::Busy`] if files are in use; then it stays up, and can be found again with
    /// [`Storage::find`].
    pub fn down(mut self) -> Result<(), Error> {
        self.take().down()
    }

    /// Handle for all requests to the storage.
    #[must_use]
    pub fn storage(&self) -> &Storage {
        self.storage.as_ref().expect("taken only by methods that consume the owner")
    }

    fn take(&mut self) -> Storage {
        self.storage.take().expect("taken only by methods that consume the owner")
    }
}

impl<Options> Deref for OwnedStorage<Options> {
    type Target = Storage;

    fn deref(&self) -> &Storage {
        self.storage()
    }
}

impl<Options> Drop for OwnedStorage<Options> {
    fn drop(&mut self) {
        if let Some(storage) = &mut self.storage {
            // A destructor cannot report the error; `Storage::find` and `down` say what is wrong.
            let _ = storage.take_down(true);
        }
    }
}
