//! Target process whose agent is played by the test.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use runahead_abi::hint_record::{DEMAND, Header, STEERS};
use runahead_abi::{AgentConfig, HintKind, Shared};
use runahead_admission::SessionAdmission as Admission;
use runahead_admission::degradation_counts::ReasonCounts;
use runahead_admission::process::doorbell;
use runahead_admission::process::shared_memory;
use runahead_admission::slow_devices::DeviceWaits;
use runahead_estimators::TickRate;
use runahead_prefetch::Prefetcher;
use runahead_supervisor::follow_policy::FollowPolicy;
use runahead_supervisor::io_process::IoProcess;
use runahead_supervisor::joined_processes::JoinedProcesses;
use runahead_supervisor::session_context::SessionContext;
use runahead_supervisor::task_limits::TaskLimits;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::process::Pid;

/// Process in place of a target; the test writes its shared memory.
pub struct Target {
    child: Child,
    pub joined: Arc<JoinedProcesses>,
    pub common: Arc<SessionContext>,
}

impl Target {
    /// Starts a process that waits for a line, and then executes `then`.
    pub fn new(then: &[&str]) -> Self {
        let prefetcher = Arc::new(Prefetcher::new(Default::default(), |_, _| ()));
        let file = shared_memory::agent_file().expect("memory for a file");
        let front =
            shared_memory::fill(&file, &[0; AgentConfig::CHANGES_IN], &[]).expect("room in it");
        let waits = Arc::new(DeviceWaits::new(front, TickRate::new(1000)));
        let degraded = Arc::new(ReasonCounts::default());
        let tasks = Arc::new(TaskLimits::default());
        let admission = Arc::new(Admission {
            prefetcher,
            degraded,
            waits: waits.clone(),
            keep_shadows: false,
            without: Default::default(),
            ledger: Default::default(),
            single_spindle: Default::default(),
            room: tasks.clone(),
            listener: None,
        });
        let common = Arc::new(SessionContext {
            io_process: IoProcess::in_this_process(),
            admission,
            task_limits: tasks,
            program_prefetch: Default::default(),
            follow_policy: FollowPolicy::new(waits, false),
            history: None,
        });
        let joined = Arc::new(JoinedProcesses::new(common.clone()).expect("epoll"));
        let child = Command::new("sh")
            .args(["-c", "read -r line; exec \"$@\"", "sh"])
            .args(then)
            .stdin(Stdio::piped())
            .spawn()
            .expect("a shell");
        Target { child, joined, common }
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn join(&self) -> Result<Seen, Errno> {
        Ok(Seen::new(self.joined.join(self.pid())?))
    }

    pub fn go_on(&mut self) {
        use std::io::Write;
        let mut input = self.child.stdin.take().expect("not gone on yet");
        input.write_all(b"\n").expect("it waits");
    }

    pub fn submitted(&self) -> u64 {
        self.common.admission.prefetcher.stats().submitted
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.joined.end();
    }
}

/// The target's mapping of the shared memory.
pub struct Seen {
    pub file: File,
    at: *mut Shared,
}

impl Seen {
    fn new(file: OwnedFd) -> Self {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let (anywhere, len) = (std::ptr::null_mut(), size_of::<Shared>());
        // SAFETY: a new mapping of a file of that size.
        let at = unsafe { mmap(anywhere, len, rights, MapFlags::SHARED, &file, 0) };
        let at = at.expect("it can be mapped");
        Seen { file: file.into(), at: at.cast() }
    }

    pub fn shared(&self) -> &Shared {
        // SAFETY: mapped until the test ends, and atomics throughout.
        unsafe { &*self.at }
    }

    pub fn hint(&self, path: &str, run: u32) -> bool {
        let header = Header {
            kind: HintKind::Data as u32,
            run,
            position: 1,
            key: 77,
            offset: 0,
            length: 4096,
            flags: STEERS | DEMAND,
            path_len: path.len() as u32,
        };
        let pushed = self.shared().ring(run).push(&[header.as_bytes(), path.as_bytes()]);
        doorbell::ring(self.shared());
        pushed
    }
}
