//! membarrier(2). The plane has registered the process for it, in order to patch code under
//! threads; the program must see only its own registrations.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::call_outcome::Outcome;
use crate::plane::Call;
use crate::sys;

/// Commands of membarrier(2).
const SYNC_CORE: u32 = 1 << 5;
const REGISTER_SYNC_CORE: u32 = 1 << 6;
const REGISTER_COMMANDS: u32 = 1 << 2 | 1 << 4 | REGISTER_SYNC_CORE | 1 << 8;
const GET_REGISTRATIONS: u32 = 1 << 9;

/// Registrations that the program has made. A forked child inherits both sets or none, so the
/// kernel's answer is consulted too.
static REGISTERED: AtomicU32 = AtomicU32::new(0);

pub(super) fn membarrier(call: &Call) -> Outcome {
    let (command, flags) = (call.args[0] as u32, call.args[1] as u32);
    let registered = REGISTERED.load(Relaxed);
    match command {
        _ if command & REGISTER_COMMANDS != 0 => {
            let ret = call.perform();
            if ret == 0 {
                REGISTERED.fetch_or(command, Relaxed);
            }
            Outcome::Answer(ret)
        }
        SYNC_CORE if flags == 0 && registered & REGISTER_SYNC_CORE == 0 => {
            // A kernel without the command fails by itself.
            let ret = call.perform();
            Outcome::Answer(if ret == 0 { sys::fail(sys::EPERM) } else { ret })
        }
        GET_REGISTRATIONS => {
            let ret = call.perform();
            Outcome::Answer(if ret > 0 { ret & i64::from(registered) } else { ret })
        }
        _ => Outcome::Native,
    }
}
