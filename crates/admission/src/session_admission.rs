//! State and limits that the dispatchers of a session share.

use std::sync::Arc;

use crate::degradation_counts::ReasonCounts;
use crate::slow_devices::DeviceWaits;
use runahead_abi::Record;
use runahead_prefetch::Prefetcher;

use crate::ablation::Without;
use crate::session_totals::SessionTotals;
use crate::single_spindle::SingleSpindle;

/// Accesses that a shadow may be ahead of the target.
const HORIZON: u64 = 1 << 16;
/// Horizon that is as good as no bound; a shadow adds to it what the target has done.
const UNLIMITED: u64 = u64::MAX / 2;

/// Limits on the processes and threads of a session.
pub trait TaskRoom: Send + Sync {
    /// There are more of ours than their share.
    fn is_tight(&self) -> bool;

    /// True if `process` may have a shadow now.
    fn allows_shadows(&self, process: u32) -> bool;
}

/// Receiver of records that programs send to be learned from.
pub trait RecordListener: Send + Sync {
    /// Takes a record; true if no other receiver needs it.
    fn hear(&self, record: &Record<'_>) -> bool;
}

/// State of admission that all processes of a session share.
pub struct SessionAdmission {
    /// Reads for all processes.
    pub prefetcher: Arc<Prefetcher>,
    /// Facilities that processes had to do without.
    pub degraded: Arc<ReasonCounts>,
    /// Devices that processes have waited for.
    pub waits: Arc<DeviceWaits>,
    /// Shadows that have run are kept, so that tests find them.
    pub keep_shadows: bool,
    /// Mechanisms that are switched off.
    pub without: Without,
    /// Totals of the session.
    pub ledger: SessionTotals,
    /// Single-server state of the session's storage.
    pub single_spindle: SingleSpindle,
    /// Limits on processes and threads.
    pub room: Arc<dyn TaskRoom>,
    /// The history of earlier runs, if the user wants one.
    pub listener: Option<Arc<dyn RecordListener>>,
}

impl SessionAdmission {
    /// Returns the accesses that a shadow may be ahead of its target.
    pub fn horizon(&self) -> u64 {
        match self.without {
            Without { shadows: true, .. } => 0,
            Without { horizon: true, .. } => UNLIMITED,
            _ => HORIZON,
        }
    }
}
