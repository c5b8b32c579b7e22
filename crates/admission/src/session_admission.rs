//! What the dispatchers of a session have in common.

use std::sync::Arc;

use crate::degradations::Reasons;
use crate::slow_devices::Waits;
use runahead_abi::Record;
use runahead_prefetch::Prefetcher;

use crate::ablation::Without;
use crate::session_totals::Ledger;
use crate::single_spindle::Sole;

/// Accesses that a shadow may be ahead of the target.
const HORIZON: u64 = 1 << 16;
/// Horizon that is as good as no bound; a shadow adds to it what the target has done.
const UNLIMITED: u64 = u64::MAX / 2;

/// How many processes and threads a session may have.
pub trait Room: Send + Sync {
    /// There are more of ours than their share.
    fn is_tight(&self) -> bool;

    /// Whether `process` may have a shadow, as things are now.
    fn allows_shadows(&self, process: u32) -> bool;
}

/// Who learns from what programs read.
pub trait Listener: Send + Sync {
    /// What a process said; true if it was meant for nobody else.
    fn hear(&self, record: &Record<'_>) -> bool;
}

/// See the module's text.
pub struct Common {
    /// Reads for all processes.
    pub prefetcher: Arc<Prefetcher>,
    /// What processes had to do without.
    pub degraded: Arc<Reasons>,
    /// What processes have waited for.
    pub waits: Arc<Waits>,
    /// Shadows that have run are kept, so that tests find them.
    pub keep_shadows: bool,
    /// What is switched off.
    pub without: Without,
    /// What prefetching takes and gives.
    pub ledger: Ledger,
    /// Whether its storage serves one request at a time.
    pub sole: Sole,
    /// How many processes and threads there may be.
    pub room: Arc<dyn Room>,
    /// The memory of earlier runs, if somebody asked for it.
    pub listener: Option<Arc<dyn Listener>>,
}

impl Common {
    /// How many accesses a shadow may be ahead of its target.
    pub fn horizon(&self) -> u64 {
        match self.without {
            Without { shadows: true, .. } => 0,
            Without { horizon: true, .. } => UNLIMITED,
            _ => HORIZON,
        }
    }
}
