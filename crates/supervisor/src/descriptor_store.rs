//! Descriptors that the supervisor keeps for processes of the session
//! (`abi::control_protocol::KEEP`). Protection of memory lasts as long as its userfaultfd is open,
//! which must not show in the process's own table.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Most descriptors that are kept. A further process runs without protection of memory.
const STORED_MAX: usize = 256;

/// Descriptors that are kept, by process.
#[derive(Default)]
pub struct DescriptorStore(Mutex<HashMap<Pid, StoredDescriptor>>);

struct StoredDescriptor {
    /// Descriptor of the process itself, from pidfd_open(2).
    pidfd: OwnedFd,
    file: Arc<OwnedFd>,
}

impl DescriptorStore {
    /// Keeps `file` for the process `pid`. Closes the descriptors of processes that have ended.
    pub fn store(&self, pid: Pid, file: OwnedFd) -> Result<(), Errno> {
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        let mut kept = self.locked();
        kept.retain(|_, one| !has_ended(&one.pidfd));
        if kept.len() >= STORED_MAX {
            return Err(Errno::MFILE);
        }
        kept.insert(pid, StoredDescriptor { pidfd, file: Arc::new(file) });
        Ok(())
    }

    /// Descriptor that is kept for the process `pid`, if it lives.
    pub fn get(&self, pid: Pid) -> Option<Arc<OwnedFd>> {
        self.locked().get(&pid).filter(|one| !has_ended(&one.pidfd)).map(|one| one.file.clone())
    }

    /// Closes the descriptor of the process `pid`.
    pub fn remove(&self, pid: Pid) {
        self.locked().remove(&pid);
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<Pid, StoredDescriptor>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// True if the process has ended: its pidfd is then readable (pidfd_open(2)).
fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut ends = [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)];
    poll(&mut ends, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|count| count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_descriptor_is_dropped_with_its_process() {
        let kept = DescriptorStore::default();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("it starts");
        let pid = Pid::from_child(&child);
        let (end, ours) = std::io::pipe().expect("there are descriptors");
        kept.store(pid, ours.into()).expect("it is there");
        assert!(kept.get(pid).is_some());
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
        assert!(kept.get(pid).is_none());
        assert_eq!(kept.store(pid, end.into()), Err(Errno::SRCH));
    }
}
