//! What the processes of a session have in common.

use std::sync::Arc;

use runahead_admission::Common as Admission;

use crate::follow_policy::Unwatched;
use crate::io_process::Beside;
use crate::program_prefetch::Programs;
use crate::task_limits::Tasks;
use runahead_history::session::History;

/// State that the processes of a session share.
pub struct Common {
    /// Handle of the I/O process.
    pub beside: Arc<Beside>,
    /// Admission of their hints.
    pub admission: Arc<Admission>,
    /// Limit of processes and threads.
    pub tasks: Arc<Tasks>,
    /// Prefetch of programs that are about to start.
    pub programs: Programs,
    /// Evidence about programs that need not be followed.
    pub unwatched: Unwatched,
    /// History of earlier runs, if the session has one.
    pub history: Option<Arc<History>>,
}
