//! The calling process, as the session's speculations see it.

use runahead_speculation::{Host, Owner};

use super::interface;
use crate::plane::policy;
use crate::sys::{self, nr};

/// See the module's text.
pub struct Process;

pub static HOST: Process = Process;

impl Host for Process {
    fn this(&self) -> Owner {
        interface::this_thread()
    }

    fn is_alive(&self, owner: Owner) -> bool {
        interface::is_alive(owner) && !interface::has_ended(owner.process)
    }

    fn pause(&self) {
        // SAFETY: sched_yield(2) takes no arguments.
        let _ = unsafe { sys::raw(nr::SCHED_YIELD, [0; 6]) };
    }

    fn poke(&self, whom: Owner) {
        if whom != self.this() {
            policy::poke(whom.process, whom.thread);
        }
    }
}
