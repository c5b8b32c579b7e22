//! State that one thread uses by construction, or that is set once at the start.

use core::cell::UnsafeCell;

/// A static that only one thread uses, or whose address is all that is used.
///
/// Invariant: who uses one has one thread, as a shadow, and is not reentered there (the entry keeps
/// the depth), so at most one reference obtained from [`Owned::get`] is in use at a time.
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
    /// The caller runs on the only thread that uses it, and holds no other reference to it.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn get(&self) -> &mut T {
        // SAFETY: passed on to the caller.
        unsafe { &mut *self.0.get() }
    }

    /// Address of the value, for the kernel.
    pub const fn as_ptr(&self) -> *mut T {
        self.0.get()
    }
}
