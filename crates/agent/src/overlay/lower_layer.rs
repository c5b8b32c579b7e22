//! Calls on names of a layer's lower tree, answered by the layer below or by the kernel.

use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use super::call_results::{Call, CallResult};
use super::layer::Layer;
use crate::sys::{self, Result};

/// Handler of a call in a layer. It is reached through a static because it is built from the
/// modules that need it.
pub(super) struct CallHandler(pub fn(Layer, &Call) -> CallResult);

static HANDLER: AtomicPtr<CallHandler> = AtomicPtr::new(core::ptr::null_mut());

/// Sets the handler of all layers.
pub(super) fn set_handler(decide: &'static CallHandler) {
    HANDLER.store(core::ptr::from_ref(decide).cast_mut(), Relaxed);
}

/// Asks `layer` and those below it for the result of a call. `None`: make the call unchanged.
pub(super) fn ask_layers(layer: Option<Layer>, call: &Call) -> Option<i64> {
    // SAFETY: null, or a static.
    let CallHandler(decide) = unsafe { HANDLER.load(Relaxed).as_ref() }?;
    let mut next = layer;
    while let Some(layer) = next {
        match decide(layer, call) {
            Ok(verdict) => match verdict.answered() {
                Some(ret) => return Some(ret),
                None => next = layer.below(),
            },
            Err(errno) => return Some(sys::fail(errno.0)),
        }
    }
    None
}

/// Makes a call in place of `call` on a name of the layer's lower tree, as [`Call::attempt`] does.
///
/// # Safety
/// As unsafe as the call it makes.
pub(super) unsafe fn attempt_lower(layer: Layer, call: &Call, nr: u64, args: &[u64; 6]) -> i64 {
    match ask_layers(layer.below(), &call.with(nr, args)) {
        Some(ret) => ret,
        // SAFETY: passed on to the caller.
        None => unsafe { call.attempt(nr, args) },
    }
}

/// Makes a call of the agent on a name of the layer's lower tree. The call changes nothing.
///
/// # Safety
/// As unsafe as the call it makes.
pub(super) unsafe fn lower_syscall(layer: Layer, nr: u64, args: [u64; 6]) -> Result<u64> {
    let ret = match layer.below() {
        // SAFETY: passed on to the caller.
        None => unsafe { sys::raw(nr, args) },
        below => match ask_layers(below, &Call::by_agent(nr, args)) {
            Some(ret) => ret,
            // SAFETY: passed on to the caller.
            None => unsafe { sys::raw(nr, args) },
        },
    };
    sys::check(ret)
}
