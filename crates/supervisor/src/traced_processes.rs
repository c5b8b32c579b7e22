//! Processes that another process of the session is about to trace: they give interception up
//! before that.
//!
//! The process is asked by a signal, which the agent takes ([`runahead_inject::ask_to_end`]). It
//! answers over the control socket. All this is done within [`TRACES_MS`].

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use runahead_abi::control_protocol::TRACES_MS;
use rustix::fs::{fstat, major, minor};
use rustix::process::Pid;

/// Longest wait, after the answer, for a process that waits in a call in the agent's code.
const LEAVING: Duration = Duration::from_millis(20);

/// Processes that have given interception up as they were asked, and whose tracer waits for that.
#[derive(Default)]
pub(crate) struct TracedProcesses {
    gave_up: Mutex<Vec<Pid>>,
    said: Condvar,
}

impl TracedProcesses {
    fn lock(&self) -> MutexGuard<'_, Vec<Pid>> {
        self.gave_up.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a process has given interception up.
    pub(crate) fn gave_up(&self, process: Pid) {
        self.lock().push(process);
        self.said.notify_all();
    }

    /// Has a process, or the process of a thread, give interception up, if the `agent` is in it.
    /// `tracer` names it, and is about to trace it.
    pub(crate) fn prepare(self: &Arc<Self>, traced: Pid, tracer: Pid, agent: &OwnedFd) {
        let until = Instant::now() + Duration::from_millis(TRACES_MS.into());
        let (Some(process), Some(mapping)) = (process_of(traced), mapping_of(agent)) else {
            return;
        };
        if !has_our_numbers(tracer) {
            return;
        }
        let all = self.clone();
        let thread = std::thread::Builder::new().name("before a trace".into());
        // A thread of its own: what it traces is let go when it ends.
        let asking = thread.spawn(move || {
            let pid = nix::unistd::Pid::from_raw(process.as_raw_pid());
            let is_agent = |at| has_mapping_at(process, &mapping, at);
            let asked = runahead_inject::ask_to_end(pid, until, is_agent);
            if asked.is_ok() && all.wait_for(process, until) {
                let until = until.min(Instant::now() + LEAVING);
                let _ = runahead_inject::wait_until_outside(pid, until, is_agent);
            }
        });
        let _ = asking.map(std::thread::JoinHandle::join);
    }

    /// Waits for the answer of a process. Returns false if there is none.
    fn wait_for(&self, process: Pid, until: Instant) -> bool {
        let mut gave_up = self.lock();
        while !gave_up.contains(&process) {
            let Some(rest) = until.checked_duration_since(Instant::now()) else { return false };
            let waited = self.said.wait_timeout(gave_up, rest);
            gave_up = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        gave_up.retain(|other| *other != process);
        true
    }
}

/// Process of that thread.
fn process_of(thread: Pid) -> Option<Pid> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let number = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim();
    Pid::from_raw(number.parse().ok()?)
}

/// True if process numbers mean the same to that process as to this one.
fn has_our_numbers(process: Pid) -> bool {
    let inode = |path: String| std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    let ours = inode("/proc/self/ns/pid".into());
    ours.is_some() && inode(format!("/proc/{process}/ns/pid")) == ours
}

/// Device and inode of a file, as /proc/PID/maps shows them (proc_pid_maps(5)).
fn mapping_of(file: &OwnedFd) -> Option<[String; 2]> {
    let stat = fstat(file).ok()?;
    let device = format!("{:02x}:{:02x}", major(stat.st_dev), minor(stat.st_dev));
    Some([device, stat.st_ino.to_string()])
}

/// True if the process has mapped the file at the address `at`.
fn has_mapping_at(process: Pid, file: &[String; 2], at: u64) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
    let number = |text| u64::from_str_radix(text, 16).unwrap_or(0);
    maps.lines().any(|line| {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        let [range, _rights, _offset, device, inode, ..] = words[..] else { return false };
        let Some((start, end)) = range.split_once('-') else { return false };
        (number(start)..number(end)).contains(&at) && [device, inode] == *file
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapped_file_is_found() {
        let this = rustix::process::getpid();
        let own = std::fs::File::open("/proc/self/exe").expect("this program").into();
        let mapping = mapping_of(&own).expect("it has an inode");
        let here = a_mapped_file_is_found as fn() as usize as u64;
        assert!(has_mapping_at(this, &mapping, here));
        assert!(!has_mapping_at(this, &mapping, &raw const mapping as u64));
        let other = std::fs::File::open("/proc/self/status").expect("a file").into();
        assert!(!has_mapping_at(this, &mapping_of(&other).expect("it has an inode"), here));
        assert_eq!(process_of(rustix::thread::gettid()), Some(this));
        assert!(has_our_numbers(this));
    }
}
