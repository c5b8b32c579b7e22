//! A later program of the session: from a process that is about to exec to one with the agent in
//! it.

use nix::errno::Errno;
use nix::unistd::Pid;

use runahead_abi::control_protocol::Bequest;

use crate::image::Layout;
use crate::insert_agent::{Failure, insert};
use crate::not_injected::NotInjected;
use crate::tracee::Running;

/// Outcome of an exec that was followed.
#[derive(Debug)]
pub enum Followed {
    /// The agent is in the new program.
    Inserted,
    /// The exec failed, or the process ended.
    Not,
    /// The new program runs without the agent.
    Native(NotInjected),
}

/// A process that will stop at its next exec, for the thread that asked for it.
pub struct Follower {
    running: Running,
}

impl Follower {
    /// Traces `pid`. Waiting, and everything else, is this thread's alone. `dies_with_us`: it must
    /// not go on without us.
    pub fn new(pid: Pid, dies_with_us: bool) -> Result<Self, Errno> {
        Ok(Follower { running: Running::seize(pid, dies_with_us)? })
    }

    /// It does not want to be followed after all.
    pub fn release(self) {
        self.running.release();
    }

    /// Waits for the exec, and inserts the agent. `file` tells, when the new program is there,
    /// under which number it has inherited the agent's file, and what the agent is to find there: a
    /// [`Bequest`], where the process dies with us, and then the new program ends rather than to
    /// run without the agent.
    pub fn follow(self, layout: Layout, file: impl FnOnce() -> Option<(i32, Vec<u8>)>) -> Followed {
        let strictly = self.running.dies_with_us();
        let stopped = match self.running.wait_for_exec() {
            Ok(Some(stopped)) => stopped,
            Ok(None) | Err(_) => return Followed::Not,
        };
        let Some((file, told)) = file() else { return Followed::Not };
        let bequest = if strictly { Bequest::of_bytes(&told) } else { None };
        if bequest.is_none() && strictly {
            return Followed::Not;
        }
        match insert(stopped, (file, &told), Ok(layout), strictly, bequest.map(|left| left.mask)) {
            Ok(()) => Followed::Inserted,
            Err(Failure::Ended(_)) => Followed::Not,
            Err(Failure::Native(why)) => Followed::Native(why),
        }
    }
}
