//! Options of a session.

use std::os::fd::RawFd;
use std::sync::Arc;

use runahead_abi::agent_config::plant;
use runahead_abi::overlay::Overlay;
use runahead_admission::ablation::Without;

use crate::remaining_processes::RemainingProcesses;
use crate::try_sandbox::Confinement;
use runahead_history::session::Plan;

/// Options of a session.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// True if the command must not run without the agent.
    pub require: bool,
    /// Descriptors that this process keeps once the command runs.
    pub kept_descriptors: KeptDescriptors,
    /// Additional descriptor that is kept in any case.
    pub also_kept_fd: Option<RawFd>,
    /// Faults to plant, for tests.
    pub faults: Faults,
    /// True if programs may speculate by themselves; their reads are prefetched as well.
    pub speculate: bool,
    /// Plan of what is recorded and replayed.
    pub history: Option<Arc<Plan>>,
    /// Try of which the command is run, if any.
    pub isolation: Option<Arc<TryIsolation>>,
}

/// Directory of a try, and the sandbox around its command.
#[derive(Debug)]
pub struct TryIsolation {
    /// Part of the configuration for the agents.
    pub overlay: Overlay,
    /// Part that the kernel enforces.
    pub confinement: Confinement,
    /// Processes that are waited for after the command.
    pub remaining: Option<Box<dyn RemainingProcesses>>,
}

/// Descriptors that are kept while the command runs; see [`inherited_descriptors`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeptDescriptors {
    /// Every descriptor, for callers that go on using them.
    #[default]
    All,
    /// Only standard error.
    Stderr,
    /// No descriptor.
    Nothing,
}

/// Faults that tests plant to check that they are caught.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Runners execute the effects that they otherwise suppress.
    pub plant_effects: bool,
    /// Runners execute unchanged the calls that the program marks (the agent's
    /// `shadow/planted_violations.rs`).
    pub plant_marked: bool,
    /// Goes with `plant_marked`: shadows without a sandbox, which keep all that the target has.
    pub no_sandbox: bool,
    /// Number of the target's access at which the agent panics; 0: never.
    pub panic_at: u64,
    /// Shadows are made from the first stall on. A finished one is kept for 2 seconds, so that a
    /// test can inspect it.
    pub keep_shadows: bool,
    /// Runners hint only a file named `rubbish` in the working directory.
    pub plant_rubbish: bool,
    /// Highest version of Landlock that is used.
    pub landlock: Option<i32>,
    /// Processes have no shadows, and count every call (the agent's
    /// `fault_injection/call_counting.rs`).
    pub logged: bool,
    /// Processes have no shadows; the program says how its calls are handled (the agent's
    /// `fault_injection/scripted_policy.rs`).
    pub tried: bool,
    /// Processes speculate after calls that a generator with this seed picks (the agent's
    /// `speculation`).
    pub speculated: Option<u64>,
    /// Goes with `speculated`: rollbacks leave memory as it is.
    pub speculated_wrongly: bool,
    /// Processes that speculate by themselves execute calls at once that must wait.
    pub lets_out: bool,
    /// Mechanisms that are switched off.
    pub without: Without,
}

impl Faults {
    /// Number of the planted fault, for the agent's configuration.
    pub(crate) fn plant_code(&self) -> u64 {
        match (self.plant_marked, self.no_sandbox) {
            (true, true) => plant::UNGUARDED,
            (true, false) => plant::MARKED,
            (false, _) if self.plant_effects => plant::EFFECTS,
            (false, _) if self.plant_rubbish => plant::RUBBISH,
            (false, _) if self.logged => plant::LOGGED,
            (false, _) if self.tried => plant::TRIED,
            (false, _) if self.speculated_wrongly => plant::SPECULATED_WRONGLY,
            (false, _) if self.speculated.is_some() => plant::SPECULATED,
            (false, _) if self.lets_out => plant::LETS_OUT,
            (false, _) => 0,
        }
    }
}
