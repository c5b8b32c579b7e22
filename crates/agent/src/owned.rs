//! State that belongs to the one thread that runs agent code.

use core::cell::UnsafeCell;

/// A static that only the armed thread uses.
///
/// Invariant: agent code runs on one thread and is not reentered (`plane::entry` keeps the depth),
/// so at most one reference obtained from [`Owned::get`] is in use at a time.
#[repr(transparent)]
pub struct Owned<T>(UnsafeCell<T>);

// SAFETY: see the invariant: no second thread ever calls `get`.
unsafe impl<T> Sync for Owned<T> {}

impl<T> Owned<T> {
    /// Wraps an initial value.
    pub const fn new(value: T) -> Self {
        Owned(UnsafeCell::new(value))
    }

    /// The value.
    ///
    /// # Safety
    /// The caller runs on the armed thread, inside the agent, and holds no other reference to it.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn get(&self) -> &mut T {
        // SAFETY: passed on to the caller.
        unsafe { &mut *self.0.get() }
    }

    /// Its address, for the kernel.
    pub const fn as_ptr(&self) -> *mut T {
        self.0.get()
    }
}
