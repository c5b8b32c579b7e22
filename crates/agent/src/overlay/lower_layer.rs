//! Calls on names of a layer's real tree: what the layer below makes of them, or the kernel.

use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use super::call_results::{Call, CallResult};
use super::layer::Layer;
use crate::sys::{self, Result};

/// What a layer makes of a call. (By an address: it is made of what needs it.)
pub(super) struct CallHandler(pub fn(Layer, &Call) -> CallResult);

static HANDLER: AtomicPtr<CallHandler> = AtomicPtr::new(core::ptr::null_mut());

/// From here on layers are asked by `decide`.
pub(super) fn set_handler(decide: &'static CallHandler) {
    HANDLER.store(core::ptr::from_ref(decide).cast_mut(), Relaxed);
}

/// What the layers from this one down make of a call; `None`: it is to be made as it stands.
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

/// Makes a call in place of `call` whose name is one of the layer's real tree: as [`Call::attempt`].
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

/// Makes a call of ours whose name is one of the layer's real tree, and which changes nothing.
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
