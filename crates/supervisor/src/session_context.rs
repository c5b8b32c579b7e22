//! State that all processes of a session share.

use std::sync::Arc;

use runahead_admission::SessionAdmission as Admission;

use crate::follow_policy::FollowPolicy;
use crate::io_process::IoProcess;
use crate::program_prefetch::ProgramPrefetch;
use crate::task_limits::TaskLimits;
use runahead_history::session::History;

/// Services and limits of a session.
pub struct SessionContext {
    /// Handle of the I/O process.
    pub io_process: Arc<IoProcess>,
    /// Admission of their hints.
    pub admission: Arc<Admission>,
    /// Limit of processes and threads.
    pub task_limits: Arc<TaskLimits>,
    /// Prefetch of programs that are about to start.
    pub program_prefetch: ProgramPrefetch,
    /// Evidence about programs that need not be followed.
    pub follow_policy: FollowPolicy,
    /// History of earlier runs, if the session has one.
    pub history: Option<Arc<History>>,
}
