//! What the processes of a session have in common.

use std::sync::Arc;

use runahead_admission::Common as Admission;

use crate::follow_policy::Unwatched;
use crate::io_process::Beside;
use crate::program_prefetch::Programs;
use crate::task_limits::Tasks;
use runahead_history::session::History;

/// See the module's text.
pub struct Common {
    /// Where whatever may wait is done.
    pub beside: Arc<Beside>,
    /// What becomes of their hints.
    pub admission: Arc<Admission>,
    /// How many processes and threads there may be.
    pub tasks: Arc<Tasks>,
    /// Those that are about to start.
    pub programs: Programs,
    /// Those that need not be followed.
    pub unwatched: Unwatched,
    /// The memory of earlier runs, if somebody asked for it.
    pub history: Option<Arc<History>>,
}
