//! Calls whose answer depends on how many processes share memory, or on the number of children.
//!
//! A shadow has the memory of its target until it ends. The kernel counts it as attached to System
//! V segments, refuses to seal files that it maps, and lacks the huge pages that it holds. So
//! shadows are ended before such a call, also those of other processes, which may share the memory.
//!
//! The helper that forks a shadow is a child of the process for some 50 µs. The thread that makes
//! it collects it; another thread that waits for any child of any kind could find it first.

use core::sync::atomic::Ordering::Relaxed;

use linux_raw_sys::general as k;
use runahead_estimators::Micros;

use super::exec;
use super::target_state::{TARGET, Target};
use crate::plane::{self, Call, signal_block};
use crate::session::{self, Session};
use crate::sys::{self, nr};
use crate::time_stamp::ticks;

/// `IPC_STAT`, `SHM_STAT` and `SHM_STAT_ANY` of shmctl(2).
const SHM_STATS: [u32; 3] = [2, 13, 15];
/// `SHM_HUGETLB` of shmget(2).
const SHM_HUGETLB: u32 = 0o4000;
/// `P_ALL` and `P_PGID` of waitid(2).
const ANY_CHILD_IDS: [u32; 2] = [0, 2];
/// Longest wait for another thread's sync.
const SYNC_PATIENCE: Micros = Micros(50_000);
/// Interval between two checks for the end of another thread's sync, in microseconds.
const SYNC_CHECK_US: u64 = 50;

/// True if a shadow would change the answer of the call.
pub(super) fn counts_shadows(call: &Call) -> bool {
    let a = &call.args;
    match call.nr {
        nr::MMAP => a[3] as u32 & k::MAP_HUGETLB != 0,
        nr::FCNTL => a[1] as u32 == k::F_ADD_SEALS,
        nr::SHMCTL => SHM_STATS.contains(&(a[1] as u32)),
        nr::SHMGET => a[2] as u32 & SHM_HUGETLB != 0,
        _ => false,
    }
}

/// Ends every shadow of the session and waits, for a bounded time, until those of this process have
/// no memory any more.
pub(super) fn outlive_session_shadows(session: &'static Session) {
    exec::end_session_shadows(session);
    TARGET.outlive_shadows(session);
}

/// True if the call waits for any child, including those that send no SIGCHLD when they end.
fn waits_for_clones(call: &Call) -> bool {
    let a = &call.args;
    let (is_any, options) = match call.nr {
        nr::WAIT4 => (a[0] as i32 <= 0, a[2]),
        _ => (ANY_CHILD_IDS.contains(&(a[0] as u32)), a[3]),
    };
    is_any
        && options as u32 & (k::__WALL | k::__WCLONE) != 0
        && options as u32 & k::__WNOTHREAD == 0
}

impl Target {
    /// Stops making shadows before a wait by which one thread could find another thread's helper.
    /// It stays so, as the end of such a wait is not seen.
    pub(super) fn hide_helpers(&self, call: &Call) {
        if !waits_for_clones(call)
            || !plane::has_threads()
            || self.waits_for_clones.swap(true, Relaxed)
        {
            return;
        }
        let Some(session) = session::get() else { return };
        let mask = signal_block::begin();
        let give_up_at = ticks() + SYNC_PATIENCE.to_ticks(session.tick_rate());
        while self.syncs.try_with(|_| ()).is_none() && ticks() < give_up_at {
            sys::sleep_us(SYNC_CHECK_US);
        }
        signal_block::end(mask);
    }
}
