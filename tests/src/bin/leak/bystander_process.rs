//! Processes that have nothing to do with the command, but could be harmed by it.

use std::io;

use crate::checked_calls::{call, shared_memory};
use crate::process;

/// A process that blocks every signal and does nothing.
pub struct Bystander {
    pub pid: i32,
    /// Eight bytes of its private memory.
    pub word: usize,
    /// 2 MiB of it, aligned, of which one page is used.
    pub region: usize,
}

const HUGE: usize = 2 << 20;

/// Forks this process, which has one thread.
fn fork(life: impl FnOnce()) -> i32 {
    // SAFETY: one thread, so that the child may do whatever this process may.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", io::Error::last_os_error()),
        0 => {
            let mut all = std::mem::MaybeUninit::uninit();
            // SAFETY: fills in a set and uses it.
            unsafe {
                libc::sigfillset(all.as_mut_ptr());
                libc::sigprocmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut());
            }
            life();
            loop {
                // SAFETY: waits, for ever.
                unsafe { libc::pause() };
            }
        }
        pid => pid,
    }
}

/// Waits until `pid` is in call `nr`.
fn wait_for(pid: i32, nr: libc::c_long) {
    let wanted = format!("{nr} ");
    for _ in 0..10_000 {
        let now = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
        if now.starts_with(&wanted) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
    panic!("process {pid} does not come to call {nr}: {:?}", process::stat(pid));
}

impl Bystander {
    /// Starts one in a group and a UTS namespace of its own.
    pub fn start() -> Self {
        let word = Box::leak(Box::new(0x7972_6e75_6475_6f63u64));
        let memory = Box::leak(vec![0u8; 2 * HUGE].into_boxed_slice());
        let region = (memory.as_ptr() as usize).next_multiple_of(HUGE);
        let pid = fork(|| {
            call(libc::SYS_setpgid, [0, 0]).expect("setpgid");
            call(libc::SYS_unshare, [libc::CLONE_NEWUTS as usize]).expect("unshare");
            // SAFETY: in the middle of `memory`.
            unsafe { (region as *mut u8).write_volatile(1) };
        });
        wait_for(pid, libc::SYS_pause);
        Bystander { pid, word: std::ptr::from_ref(word) as usize, region }
    }
}

/// The leader of the process group in which commands run, with a real-time priority.
pub fn start_group() -> i32 {
    let pid = fork(|| {
        call(libc::SYS_setpgid, [0, 0]).expect("setpgid");
        let priority = 1i32;
        let at = std::ptr::from_ref(&priority) as usize;
        // Not to be had in some containers; then its change is not to be seen either.
        let _ = call(libc::SYS_sched_setscheduler, [0, libc::SCHED_RR as usize, at]);
    });
    wait_for(pid, libc::SYS_pause);
    pid
}

/// Waits on the first word of the file `fd`, and notes in its 33rd that it was woken.
pub fn start_waiter(fd: i32) -> i32 {
    let words = shared_memory(Some(fd), 0, 4096).cast::<u32>();
    let pid = fork(|| {
        let _ = call(libc::SYS_futex, [words as usize, 0, 0, 0]);
        // SAFETY: within the page.
        unsafe { words.add(32).write_volatile(1) };
    });
    wait_for(pid, libc::SYS_futex);
    pid
}
