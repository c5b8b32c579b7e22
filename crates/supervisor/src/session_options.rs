//! How a session is to run.

use std::os::fd::RawFd;
use std::sync::Arc;

use runahead_abi::agent_config::plant;
use runahead_abi::overlay::Overlay;
use runahead_admission::ablation::Without;

use crate::try_sandbox::Confinement;
use runahead_history::session::Plan;

/// How a session is to run.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Do not run the command at all if the agent cannot be put into it.
    pub require: bool,
    /// What this process holds on to once the command runs.
    pub keep: Keep,
    /// One more that is kept, whatever that says.
    pub also: Option<RawFd>,
    /// Faults to plant, for tests.
    pub faults: Faults,
    /// Programs may speculate by themselves, and are read ahead for all the same.
    pub speculate: bool,
    /// What is to be recorded and replayed.
    pub history: Option<Arc<Plan>>,
    /// What the command changes is held apart.
    pub held_apart: Option<Arc<HeldApart>>,
}

/// Where what a command changes is held apart, and what keeps it from changing anything else.
#[derive(Debug)]
pub struct HeldApart {
    /// For its agents.
    pub overlay: Overlay,
    /// By the kernel.
    pub confinement: Confinement,
}

/// Descriptors that are kept while the command runs; see [`inherited_descriptors`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Keep {
    /// All of them, for callers with a life of their own.
    #[default]
    All,
    /// Standard error.
    Stderr,
    /// None.
    Nothing,
}

/// Violations that tests plant to see them caught.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Runners really try the effects that they otherwise pretend.
    pub plant_effects: bool,
    /// Runners make the calls that the program marks as they stand (see the agent's
    /// `shadow/planted_violations.rs`).
    pub plant_marked: bool,
    /// With `plant_marked`: in shadows without any sandbox, which keep all that the target has.
    pub no_sandbox: bool,
    /// The agent panics at this access of the target; 0 is never.
    pub panic_at: u64,
    /// Shadows are made from the first stall on, and kept for two seconds when they have done all
    /// that they can, to be looked at.
    pub keep_shadows: bool,
    /// Runners hint nothing but rubbish: a file of that name in the working directory.
    pub plant_rubbish: bool,
    /// Landlock is taken to be of no higher version than this.
    pub landlock: Option<i32>,
    /// Processes have no shadows, and count every call (the agent's `logged.rs`).
    pub logged: bool,
    /// Processes have no shadows, and calls do as the program asks (the agent's `tried.rs`).
    pub tried: bool,
    /// Processes speculate after calls that a generator with this seed picks (the agent's
    /// `speculation`).
    pub speculated: Option<u64>,
    /// With `speculated`: rollbacks leave memory as it is.
    pub speculated_wrongly: bool,
    /// Processes that speculate by themselves make calls at once that have to wait.
    pub lets_out: bool,
    /// What is left undone.
    pub without: Without,
}

impl Faults {
    /// As the agent is told.
    pub(crate) fn plant(&self) -> u64 {
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
