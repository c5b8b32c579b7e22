//! What this process knows of the session that it belongs to.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering::*};

use runahead_abi::follow_filter::ProgramKey;
use runahead_abi::overlay::DIRECTORY_MAX;
use runahead_abi::{AgentConfig, Control, Shared, SlowDevices};

use crate::address_space;
use crate::arch::ticks;
use crate::plane::AddressRange;
use crate::sys;
use crate::thread_owned::Owned;

/// Set once, when the agent starts; copied with the process into children and shadows.
pub struct Session {
    /// Where this process and its shadows meet the supervisor, once it has joined; before that, a
    /// private place of the same form, in which nobody takes part.
    shared: AtomicPtr<Shared>,
    /// What the supervisor said at injection.
    pub config: AgentConfig,
    /// Process of the target.
    target_pid: AtomicU32,
    /// First address and bytes of the agent.
    image: (u64, u64),
}

const _: () = assert!(size_of::<Shared>() as u64 <= address_space::POLICY_BYTES);

/// The private place. Only pages that are touched take memory.
// SAFETY: zeroes, like all of it. (At its end, so that the small ones share pages.)
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

    /// For a process that has not joined, whose agent is mapped at `image`.
    pub fn new(config: AgentConfig, image: (u64, u64)) -> Self {
        Session {
            shared: AtomicPtr::new(unjoined()),
            config,
            target_pid: AtomicU32::new(sys::getpid()),
            image,
        }
    }

    /// Violation or prediction that a test plants, of [`plant`](runahead_abi::agent_config::plant); 0 without the feature
    /// `fault-injection`.
    pub const fn plant(&self) -> u64 {
        if cfg!(feature = "fault-injection") { self.config.plant } else { 0 }
    }

    /// Number of the target's access at which a test has the agent panic; 0, which is none, without the feature
    /// `fault-injection`.
    pub const fn panic_at(&self) -> u64 {
        if cfg!(feature = "fault-injection") { self.config.panic_at } else { 0 }
    }

    /// See [`Session::is_joined`].
    pub fn shared(&self) -> &'static Shared {
        // SAFETY: `UNJOINED`, for which zero is valid, or a mapping of a whole Shared that lasts as
        // long as this process; both consist of atomics.
        unsafe { &*self.shared.load(Acquire) }
    }

    /// The memory is shared with the supervisor.
    pub fn is_joined(&self) -> bool {
        self.shared.load(Relaxed) != unjoined()
    }

    /// The supervisor shares the memory mapped at `shared`.
    ///
    /// # Safety
    /// A mapping of a whole Shared, which stays.
    pub unsafe fn join(&self, shared: u64) {
        self.shared.store(shared as *mut Shared, Release);
    }

    /// In a forked child, which has a life, and stalls, of its own.
    pub fn start_in_child(&self) {
        let old = self.shared.swap(unjoined(), Relaxed);
        if old != unjoined() {
            // SAFETY: mapped when the parent joined; the child's only thread has no reference to it.
            unsafe { address_space::give_back(old as u64, size_of::<Shared>() as u64) };
        }
        self.target_pid.store(sys::getpid(), Relaxed);
    }

    /// Devices on which somebody has waited of late.
    pub fn slow_devices(&self) -> &'static SlowDevices {
        // SAFETY: the front of the file is mapped there, and stays as long as this process.
        unsafe { AgentConfig::slow_devices(self.image.0 as *const u8) }
    }

    /// The process in which the supervisor's threads are that may wait for storage; None: the supervisor itself.
    pub fn io_process_pid(&self) -> Option<u32> {
        // SAFETY: as above.
        let beside = unsafe { AgentConfig::beside_pid(self.image.0 as *const u8) };
        Some(beside.load(Relaxed) as u32).filter(|&process| process != 0)
    }

    /// Whether the supervisor wants to follow starts of that program.
    pub fn is_followed(&self, program: ProgramKey) -> bool {
        // SAFETY: as above.
        let unwatched = unsafe { AgentConfig::unwatched(self.image.0 as *const u8) };
        !unwatched.has(program, ticks())
    }

    /// Process of the target.
    pub fn target_pid(&self) -> u32 {
        self.target_pid.load(Relaxed)
    }

    /// Whether any of `len` bytes from `at` is the agent's: its image, or other memory that it uses.
    pub fn owns_any(&self, at: u64, len: u64) -> bool {
        self.first_owned(at, at.saturating_add(len)).is_some()
    }

    /// Range of the lowest such memory between `at` and `end`.
    pub fn first_owned(&self, at: u64, end: u64) -> Option<AddressRange> {
        let image = AddressRange::of_bytes(self.image.0, self.image.1);
        let used = address_space::used_from(at, end);
        used.into_iter().chain(self.overlaps_image(at, end).then_some(image)).min()
    }

    /// Whether any of the bytes from `at` to `end` is of the agent's image.
    pub fn overlaps_image(&self, at: u64, end: u64) -> bool {
        at < self.image.0 + self.image.1 && self.image.0 < end
    }
}

/// Where the process is in a try inside that of the session: what the path of the directory that is held apart has more than that
/// one's.
static NESTED_TRY: Owned<[u8; DIRECTORY_MAX]> = Owned::new([0; DIRECTORY_MAX]);
static NESTED_TRY_LEN: AtomicUsize = AtomicUsize::new(0);

/// See [`enter_nested_try`]; empty: it is in none.
pub fn nested_try() -> &'static [u8] {
    // SAFETY: written only when there is one thread, which then is at that and at nothing else.
    let all = unsafe { &*NESTED_TRY.as_ptr() };
    &all[..NESTED_TRY_LEN.load(Relaxed).min(DIRECTORY_MAX)]
}

/// From here on the process is in such a try. It has one thread.
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

/// Where events are counted.
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
