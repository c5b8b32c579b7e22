//! Runs one command with the agent, from its start to its end.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use runahead_abi::OPT_OUT;
use runahead_abi::agent_config::tell;
use runahead_abi::overlay::Overlay;
use runahead_admission::degradation_counts::ReasonCounts;
use runahead_admission::process::shared_memory;
use runahead_admission::process::tsc_clock::Clock;
use runahead_inject::{Command, Confine, Ended, LaunchError, NotInjected, StartOptions, launch};

use crate::agent_unavailable::AgentUnavailable;
use crate::command_exit;
use crate::rlimits::LimitTooLow;
use crate::session_options::{KeptDescriptors, Options};
use crate::session_services::{PreparedSession, SessionResults, SessionServices};
use crate::session_stats::Speculations;
use crate::session_stats::Stats;
use crate::{
    inherited_descriptors, program_prefetch, remaining_processes, rlimits, signal_blocking,
    task_limits, try_sandbox,
};
use runahead_history::session::{History, HistoryStats};

/// Reason that a command did not run in a session.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The command did not start.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A limit leaves too few processes for a session: the command needs the place of this one.
    #[error("not run beside this process: {0}")]
    TooFewProcesses(LimitTooLow),
}

/// Runs `command` to its end.
///
/// If the command runs natively, `warn` is called once with the reason, before this function waits
/// for the command. The calling process must have one thread.
pub fn run(
    command: &Command,
    options: &Options,
    warn: impl FnOnce(&str),
) -> Result<(Ended, Stats), SessionError> {
    signal_blocking::block();
    let outcome = run_with_signals_blocked(command, options, warn);
    signal_blocking::unblock();
    outcome
}

/// Runs the command, with all signals blocked until it has ended.
fn run_with_signals_blocked(
    command: &Command,
    options: &Options,
    warn: impl FnOnce(&str),
) -> Result<(Ended, Stats), SessionError> {
    let clock = Clock::start();
    let limit = rlimits::reason_no_session(None).or_else(task_limits::reason_no_session);
    if let Some(limit) = limit {
        return Err(SessionError::TooFewProcesses(limit));
    }
    let history = options.history.clone().map(History::new);
    let replayed = history.clone().filter(|history| history.plan.may_replay());
    // List them now: later the replay's threads have files open, too.
    let inherited = replayed.is_some().then(inherited_descriptors::open_descriptors);
    let tell = history.as_ref().map_or(tell::NOTHING, |history| history.plan.report_level());
    let degraded = Arc::new(ReasonCounts::default());
    let confined = options.isolation.as_ref();
    let inside = confined.is_some_and(|held| held.confinement.is_nested());
    let file = agent_file(confined.is_some()).map_err(NotInjected::from);
    let started = Instant::now();
    let mut prepared = None;
    let mask = signal_blocking::inherited_mask();
    let enter = || confined.map_or(Ok(()), |held| held.confinement.enter());
    let confine: Option<Confine<'_>> = confined.is_some().then_some(&enter);
    let start = StartOptions { require: options.require && !inside, mask, confine };
    let overlay = confined.map_or(Overlay::NONE, |held| held.overlay);
    let launched = launch(command, file.as_ref(), start, |file| {
        signal_blocking::ignore_file_limit();
        let told = (tell, options.speculate, overlay);
        let mut ready = PreparedSession::new(file, &clock, &options.faults, told)?;
        let layout = ready.layout;
        // The command has been forked, and executes meanwhile.
        if let Some(history) = replayed {
            let io_process = ready.io_process().map_err(AgentUnavailable::IoProcess)?;
            let (prefetcher, waits) = (ready.prefetcher(), ready.waits.clone());
            io_process.post(move || history.start(&prefetcher, &waits, signal_blocking::block_all));
        }
        prepared = Some(ready);
        Ok(layout)
    })?;
    // After the fork, since the command must not inherit this.
    shared_memory::hide();
    let native = launched.native.map(|why| why.to_string());
    if let Some(why) = &native {
        warn(why);
    }
    // Yield: the kernel may have woken the command on this processor, as it mostly does on a
    // virtual machine whose other processors sleep. A command that ends by then needs none of the
    // services.
    std::thread::yield_now();
    let remaining = confined.and_then(|held| held.remaining.as_deref());
    let is_over = (launched.ended.is_some() || command_exit::has_ended(launched.pid))
        && remaining.is_none_or(remaining_processes::have_ended_early);
    let engine = match (&native, prepared, file) {
        (None, Some(prepared), Ok(file)) if !is_over => {
            SessionServices::new(prepared, file, &degraded, options, history.clone())
                .inspect_err(|errno| degraded.count(format!("no process could join ({errno})")))
                .ok()
        }
        _ => None,
    };
    if engine.is_none() {
        history.iter().for_each(|history| history.no_reports());
    }
    match &inherited {
        _ if options.kept_descriptors == KeptDescriptors::All => {}
        Some(inherited) => {
            let not_kept = |fd: &i32| Some(*fd) != options.also_kept_fd;
            let inherited: Vec<_> = inherited.iter().copied().filter(not_kept).collect();
            inherited_descriptors::close_inherited(
                options.kept_descriptors == KeptDescriptors::Stderr,
                &inherited,
            );
        }
        None => {
            let mut ours = engine.as_ref().map(SessionServices::descriptors).unwrap_or_default();
            ours.extend(options.also_kept_fd);
            inherited_descriptors::close_all_but(
                options.kept_descriptors == KeptDescriptors::Stderr,
                &ours,
            );
        }
    }
    let elapsed = started.elapsed();
    let first = (native.is_none() && program_prefetch::is_cold(&launched.path, elapsed))
        .then_some(launched.path.as_path());
    let engine = engine.map(|engine| engine.start(first));
    let ended = match launched.ended {
        Some(ended) => ended,
        None => command_exit::wait_for(launched.pid),
    };
    // A signal that would end this process need not wait for the rest.
    signal_blocking::unblock();
    if let Some(remaining) = remaining {
        remaining_processes::wait(remaining);
    }
    let elapsed = started.elapsed();
    let tells = engine.is_some() || native.is_none() && is_over;
    let stopped = engine.map(|engine| engine.stop());
    let is_lost = matches!(stopped, Some(None));
    if is_lost {
        degraded.count("the process that read ahead has ended before the command");
    }
    let SessionResults { totals, prefetch, measured, followed, speculations: speculated } =
        stopped.flatten().unwrap_or_default();
    let history = match (&history, &options.history) {
        (Some(history), _) if tells && !is_lost => Some(history.finish(&ended, &measured)),
        (_, Some(plan)) => Some(HistoryStats {
            complaints: plan.complaints_if_native(),
            ..HistoryStats::default()
        }),
        _ => None,
    };
    let rate = clock.tick_rate();
    let lost = degraded.all();
    let stats = Stats::new(totals, &prefetch, elapsed, rate, 1 + followed, native, lost);
    let speculations = speculated.map(Speculations::from);
    Ok((ended, Stats { history, speculations, ..stats }))
}

/// Makes the agent's file, or returns the reason that there is none. The command of a try has the
/// agent whatever its environment says: without it the kernel would deny all changes.
fn agent_file(is_try: bool) -> Result<OwnedFd, AgentUnavailable> {
    if !is_try && opts_out() {
        return Err(AgentUnavailable::OptedOut);
    }
    if try_sandbox::enclosing_try().is_some() {
        return Err(AgentUnavailable::InsideTry);
    }
    if let Some(limit) = rlimits::reason_to_run_natively(None) {
        return Err(AgentUnavailable::Limit(limit));
    }
    shared_memory::agent_file().map_err(AgentUnavailable::SharedMemory)
}

/// True if the command's environment, which is that of this process, has [`OPT_OUT`].
fn opts_out() -> bool {
    OPT_OUT
        .split_once('=')
        .is_some_and(|(name, value)| std::env::var_os(name).is_some_and(|current| current == value))
}
