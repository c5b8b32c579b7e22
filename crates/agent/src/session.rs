//! The session, as this process knows it.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering::*};

use runahead_abi::overlay::DIRECTORY_MAX;
use runahead_abi::{AgentConfig, Control, Shared};
use runahead_estimators::follow_filter::ProgramKey;
use runahead_estimators::{SlowDevices, TickRate};

use crate::address_space;
use crate::plane::AddressRange;
use crate::sys;
use crate::thread_owned::Owned;
use crate::time_stamp::ticks;

/// The session that this process belongs to. Set once, when the agent starts; copied with the
/// process into children and shadows.
pub struct Session {
    /// Memory shared with the supervisor once the process has joined; before that, private memory
    /// of the same layout, which no other process sees.
    shared: AtomicPtr<Shared>,
    /// Configuration that the supervisor passed at injection.
    pub config: AgentConfig,
    /// PID of the target.
    target_pid: AtomicU32,
    /// Addresses of the agent's image.
    image: AddressRange,
}

const _: () = assert!(size_of::<Shared>() as u64 <= address_space::POLICY_BYTES);

/// Private memory used before joining. Only pages that are touched take memory.
// SAFETY: zeroes, like all of it; placed at the end of the image so that small statics share pages.
#[unsafe(link_section = ".bss.large")]
static UNJOINED: Owned<MaybeUninit<Shared>> = Owned::new(MaybeUninit::zeroed());

fn unjoined() -> *mut Shared {
    UNJOINED.as_ptr().cast()
}

impl Session {
    /// True if a mechanism of `bits` is switched off ([`runahead_abi::agent_config::without`]).
    pub fn is_without(&self, bits: u64) -> bool {
        self.config.without & bits != 0
    }

    /// Rate of the time-stamp counter.
    pub const fn tick_rate(&self) -> TickRate {
        self.config.tick_rate()
    }

    /// The session of a process that has not joined, whose agent is mapped at `image`.
    pub fn new(config: AgentConfig, image: AddressRange) -> Self {
        Session {
            shared: AtomicPtr::new(unjoined()),
            config,
            target_pid: AtomicU32::new(sys::getpid()),
            image,
        }
    }

    /// Violation or prediction that a test plants, of [`plant`](runahead_abi::agent_config::plant);
    /// 0 without the feature `fault-injection`.
    pub const fn plant(&self) -> u64 {
        if cfg!(feature = "fault-injection") { self.config.plant } else { 0 }
    }

    /// Number of the target's access at which a test has the agent panic; 0, which is none, without
    /// the feature `fault-injection`.
    pub const fn panic_at(&self) -> u64 {
        if cfg!(feature = "fault-injection") { self.config.panic_at } else { 0 }
    }

    /// Memory shared with the supervisor, or its private substitute ([`Session::is_joined`]).
    pub fn shared(&self) -> &'static Shared {
        // SAFETY: `UNJOINED`, for which zero is valid, or a mapping of a whole Shared that lasts as
        // long as this process; both consist of atomics.
        unsafe { &*self.shared.load(Acquire) }
    }

    /// True if the memory is shared with the supervisor.
    pub fn is_joined(&self) -> bool {
        self.shared.load(Relaxed) != unjoined()
    }

    /// Uses the memory mapped at `shared`, which the supervisor shares.
    ///
    /// # Safety
    /// A mapping of a whole Shared, which stays.
    pub unsafe fn join(&self, shared: u64) {
        self.shared.store(shared as *mut Shared, Release);
    }

    /// Resets the session in a forked child, whose stalls count separately.
    pub fn start_in_child(&self) {
        let old = self.shared.swap(unjoined(), Relaxed);
        if old != unjoined() {
            // SAFETY: mapped when the parent joined; the child's only thread has no reference to
            // it.
            unsafe { address_space::give_back(old as u64, size_of::<Shared>() as u64) };
        }
        self.target_pid.store(sys::getpid(), Relaxed);
    }

    /// Devices on which a process has waited of late.
    pub fn slow_devices(&self) -> &'static SlowDevices {
        // SAFETY: the front of the file is mapped there, and stays as long as this process.
        unsafe { AgentConfig::slow_devices(self.image.start as *const u8) }
    }

    /// PID of the process with the supervisor's I/O threads, which may wait for storage; `None`:
    /// the supervisor itself.
    pub fn io_process_pid(&self) -> Option<u32> {
        // SAFETY: as above.
        let pid = unsafe { AgentConfig::io_process_pid(self.image.start as *const u8) };
        Some(pid.load(Relaxed) as u32).filter(|&pid| pid != 0)
    }

    /// True if the supervisor wants to follow starts of that program.
    pub fn is_followed(&self, program: ProgramKey) -> bool {
        // SAFETY: as above.
        let follow_filter = unsafe { AgentConfig::follow_filter(self.image.start as *const u8) };
        !follow_filter.has(program, ticks())
    }

    /// PID of the target.
    pub fn target_pid(&self) -> u32 {
        self.target_pid.load(Relaxed)
    }

    /// True if any of `len` bytes from `at` is the agent's: its image, or other memory that it
    /// uses.
    pub fn owns_any(&self, at: u64, len: u64) -> bool {
        self.first_owned(at, at.saturating_add(len)).is_some()
    }

    /// Range of the lowest such memory between `at` and `end`.
    pub fn first_owned(&self, at: u64, end: u64) -> Option<AddressRange> {
        let used = address_space::used_from(at, end);
        used.into_iter().chain(self.overlaps_image(at, end).then_some(self.image)).min()
    }

    /// True if any of the bytes from `at` to `end` is part of the agent's image.
    pub fn overlaps_image(&self, at: u64, end: u64) -> bool {
        at < self.image.end && self.image.start < end
    }
}

/// Location of the nested try that the process is in: the part of its directory's path that follows
/// that of the session's try.
static NESTED_TRY: Owned<[u8; DIRECTORY_MAX]> = Owned::new([0; DIRECTORY_MAX]);
static NESTED_TRY_LEN: AtomicUsize = AtomicUsize::new(0);

/// Location set by [`enter_nested_try`]; empty if the process is in no nested try.
pub fn nested_try() -> &'static [u8] {
    // SAFETY: written only when there is one thread, which then is at that and at nothing else.
    let all = unsafe { &*NESTED_TRY.as_ptr() };
    &all[..NESTED_TRY_LEN.load(Relaxed).min(DIRECTORY_MAX)]
}

/// Marks the process, which has one thread, as being in the nested try at `behind`.
pub fn enter_nested_try(behind: &[u8]) {
    let len = behind.len().min(DIRECTORY_MAX);
    // SAFETY: as above.
    unsafe { (&mut *NESTED_TRY.get())[..len].copy_from_slice(&behind[..len]) };
    NESTED_TRY_LEN.store(len, Relaxed);
}

static SESSION: Owned<Option<Session>> = Owned::new(None);

/// The session, if the agent has started.
pub fn get() -> Option<&'static Session> {
    // SAFETY: written once before anything reads it, and changed through atomics only.
    unsafe { &*SESSION.as_ptr() }.as_ref()
}

/// Counters of events.
pub fn counters() -> &'static Control {
    match get() {
        Some(session) => &session.shared().control,
        // SAFETY: zero is valid for a Shared.
        None => unsafe { &(*unjoined()).control },
    }
}

/// Starts the session.
///
/// # Safety
/// Called once, on the only thread of the process, before any call of `get`.
pub unsafe fn set(session: Session) {
    // SAFETY: passed on to the caller.
    unsafe { *SESSION.get() = Some(session) };
}
