//! A later program of the session: from a process that is about to exec to one with the agent in it.

use nix::errno::Errno;
use nix::unistd::Pid;

use crate::image::Layout;
use crate::insert::{Failure, insert};
use crate::launch::NotInjected;
use crate::tracee::Running;

/// What became of an exec that was followed.
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
    /// Traces `pid`. Waiting, and everything else, is this thread's alone.
    pub fn new(pid: Pid) -> Result<Self, Errno> {
        Ok(Follower { running: Running::seize(pid)? })
    }

    /// It does not want to be followed after all.
    pub fn release(self) {
        self.running.release();
    }

    /// Waits for the exec, and inserts the agent. `file` tells, when the new program is there, under
    /// which number it has inherited the agent's file, and what the agent is to find there.
    pub fn follow(self, layout: Layout, file: impl FnOnce() -> Option<(i32, Vec<u8>)>) -> Followed {
        let stopped = match self.running.wait_for_exec() {
            Ok(Some(stopped)) => stopped,
            Ok(None) | Err(_) => return Followed::Not,
        };
        let Some((file, told)) = file() else { return Followed::Not };
        match insert(stopped, (file, &told), Ok(layout), false) {
            Ok(()) => Followed::Inserted,
            Err(Failure::Ended(_)) => Followed::Not,
            Err(Failure::Native(why)) => Followed::Native(why),
        }
    }
}
