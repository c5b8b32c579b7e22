//! What the processes of a session have in common.

use std::sync::Arc;

use runahead_prefetch::Prefetcher;

use crate::beside::Beside;
use crate::degraded::Reasons;
use crate::history::History;
use crate::ledger::Ledger;
use crate::programs::Programs;
use crate::sole::Sole;
use crate::tasks::Tasks;
use crate::unwatched::Unwatched;
use crate::waits::Waits;
use crate::without::Without;

/// Accesses that a shadow may be ahead of the target.
const HORIZON: u64 = 1 << 16;
/// As good as no bound; a shadow adds to it what the target has done.
const UNLIMITED: u64 = u64::MAX / 2;
/// See the module's text.
pub struct Common {
    /// Where whatever may wait is done.
    pub beside: Arc<Beside>,
    /// Reads for all of them.
    pub prefetcher: Arc<Prefetcher>,
    /// What they had to do without.
    pub degraded: Arc<Reasons>,
    /// What they have waited for.
    pub waits: Arc<Waits>,
    /// See [`crate::Faults::keep_shadows`].
    pub keep_shadows: bool,
    /// What is switched off.
    pub without: Without,
    /// How many processes and threads there may be.
    pub tasks: Tasks,
    /// Those that are about to start.
    pub programs: Programs,
    /// Those that need not be followed.
    pub unwatched: Unwatched,
    /// What prefetching takes and gives.
    pub ledger: Ledger,
    /// Whether its storage serves one request at a time.
    pub sole: Sole,
    /// The memory of earlier runs, if somebody asked for it.
    pub history: Option<Arc<History>>,
}

impl Common {
    /// How many accesses a shadow may be ahead of its target.
    pub(crate) fn horizon(&self) -> u64 {
        match self.without {
            Without { shadows: true, .. } => 0,
            Without { horizon: true, .. } => UNLIMITED,
            _ => HORIZON,
        }
    }
}
