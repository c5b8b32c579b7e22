//! `runahead try`: runs a command whose changes are kept apart, and commits or undoes them.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use runahead_abi::overlay::{DIRECTORY_MAX, Overlay, flag};
use runahead_changeset::running_processes::list_processes;
use runahead_changeset::store::TryLock;
use runahead_changeset::try_changes::Changes;
use runahead_changeset::{ChangeKind, ChosenPaths, Store, Try, diff, printed_name, recorded_reads};
use runahead_inject::Command;
use runahead_supervisor::remaining_processes::RemainingProcesses;
use runahead_supervisor::try_sandbox::{self, Confinement, TryPermissions};
use runahead_supervisor::{Ended, KeptDescriptors, Options, TryIsolation};
use serde_json::json;

use crate::command_end::{RUNAHEAD_FAILED, end_like, print, report_error, say};
use crate::interrupted_commit;
use crate::left_processes::LeftProcesses;
use crate::options::{self, Choice, Network, Reads, TryRun, TryTask};
use crate::try_decision::{CONFLICT, Report, commit_or_report, summarize_changes, undo_and_report};
use crate::valid_command;

/// Exit status if an operation on a try failed.
const FAILED: i32 = 1;
/// Environment variable with the name of the try in which a command runs.
const INSIDE: &str = "RUNAHEAD_TRY";

/// Opens the store that the options name.
fn store(arguments: &options::Try) -> Result<Store, Failure> {
    match (try_sandbox::enclosing_try(), &arguments.state) {
        (None, state) => Ok(Store::new(state.as_deref())?),
        (Some(_), Some(_)) => Err(Failure::StateInside),
        (Some(directory), None) => Ok(Store::nested_in(&directory)?),
    }
}

/// Runs the task and returns the exit status.
pub fn execute_task(arguments: &options::Try) -> i32 {
    let opened = store(arguments);
    match (&arguments.task, opened) {
        (Some(task), Ok(store)) => {
            runahead_supervisor::signal_blocking::unblock();
            decide(&store, arguments, task).unwrap_or_else(|error| {
                say!("{error}");
                FAILED
            })
        }
        (None, Ok(store)) => run(&store, arguments).unwrap_or_else(|error| {
            say!("{error}");
            RUNAHEAD_FAILED
        }),
        (task, Err(error)) => {
            say!("{error}");
            if task.is_some() { FAILED } else { RUNAHEAD_FAILED }
        }
    }
}

/// Reason why a task failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Tries(#[from] runahead_changeset::Error),
    #[error("not run: {0}")]
    Confine(#[from] runahead_supervisor::try_sandbox::ConfineError),
    #[error("--state cannot be given inside a try: nested tries are kept in the outer one")]
    StateInside,
    #[error(
        "not run: this is a command of try {0} without an agent, so no try can be nested in it"
    )]
    NoAgent(String),
    #[error("not run: --network hold is not implemented; give --network allow or --network refuse")]
    Hold,
    #[error("not run: cannot find the working directory: {0}")]
    Directory(std::io::Error),
    #[error("cannot find the working directory: {0}; give the name of a try")]
    NoDirectory(std::io::Error),
    #[error("not run: cannot read /dev/urandom: {0}")]
    Random(std::io::Error),
    #[error("no try is called {0}; see runahead try list, or write ./{0} if it is a PATH")]
    NoTryOrPath(String),
    #[error("cannot find the working directory: {0}; give absolute paths in another one")]
    NoWorkingDirectory(std::io::Error),
    #[error("cannot run a command in the view of the try: {0}")]
    Inside(std::io::Error),
}

fn run(store: &Store, arguments: &options::Try) -> Result<i32, Failure> {
    let run = &arguments.run;
    let around = try_sandbox::enclosing_try();
    if let (Some(name), None) = (std::env::var_os(INSIDE), &around) {
        return Err(Failure::NoAgent(name.to_string_lossy().into_owned()));
    }
    if run.network == Network::Hold {
        return Err(Failure::Hold);
    }
    let (mut tried, lock) = match &run.inside {
        // The process that decides on the try has its lock.
        Some(id) => (store.find(id)?, None),
        None => {
            let directory = std::env::current_dir().map_err(Failure::Directory)?;
            let (tried, lock) = store.create(run.command.clone(), &directory)?;
            (tried, Some(lock))
        }
    };
    let isolation = match confine(&tried, run, around.is_some()) {
        Ok(isolation) => isolation,
        Err(error) => {
            if run.inside.is_none() {
                tried.remove()?;
            }
            return Err(error);
        }
    };
    for missing in &isolation.confinement.not_denied {
        say!("{missing}");
    }
    tried.meta.unprotected.clone_from(&isolation.confinement.not_denied);
    tried.meta.network = if run.network == Network::Refuse { "refuse" } else { "allow" }.to_owned();
    let ended = execute(run, &tried, isolation, lock.as_ref());
    if run.inside.is_some() {
        return Ok(ended.map_or_else(|status| status, end_like));
    }
    let ended = match ended {
        Ok(ended) => ended,
        Err(status) => {
            tried.remove()?;
            return Ok(status);
        }
    };
    tried.end(match ended {
        Ended::Exited(status) => status,
        Ended::Signaled(signal) => 128 + signal,
    })?;
    conclude(arguments, tried, lock, ended)
}

/// Decides on the changes after the command has ended, or reports them. Returns the exit status.
fn conclude(
    arguments: &options::Try,
    mut tried: Try,
    lock: Option<TryLock>,
    ended: Ended,
) -> Result<i32, Failure> {
    let id = tried.meta.id.clone();
    let changes = Changes::read(&tried.overlay_directory())?;
    let undecided = tried.check_no_nested();
    let omitted = recorded_reads::count_omitted(&tried.overlay_directory())?;
    if omitted > 0 {
        say!(
            "too much was read to be recorded: {omitted} reads or more are not compared at commit"
        );
    }
    let is_unchanged = changes.is_empty() && undecided.is_ok();
    let Some(check) = &arguments.run.commit_if else {
        if is_unchanged {
            tried.meta.unchanged = true;
            tried.save()?;
            if !arguments.run.quiet {
                say!("try {id}: the command has changed nothing");
            }
        }
        if let (Err(undecided), false) = (&undecided, arguments.run.quiet) {
            say!("{undecided}");
        }
        if !changes.is_empty() && !arguments.run.quiet {
            say!(
                "try {id}: {}; see runahead try diff {id}, then runahead try commit {id} or undo {id}",
                summarize_changes(&changes)
            );
        }
        return Ok(end_like(ended));
    };
    let status = match ended {
        Ended::Exited(0) => self::check(arguments, &tried, check)?,
        _ => None,
    };
    drop(lock);
    if let (Some(0), Err(undecided)) = (status, &undecided) {
        say!("{undecided}");
        return Ok(CONFLICT);
    }
    let report = if arguments.run.quiet { Report::Quiet } else { Report::Unnamed };
    // CHECK may have changed files, too: they are committed or undone as well.
    if status == Some(0) {
        tried.ignores_reads = arguments.run.reads == Reads::Ignore;
        return Ok(commit_or_report(&tried, None, false, report)?);
    }
    undo_and_report(&tried, None, report, &describe_failure(ended, status))?;
    Ok(status.unwrap_or_else(|| end_like(ended)))
}

/// Describes why a try is undone: the end of the command, or the exit status of the check.
fn describe_failure(ended: Ended, check: Option<i32>) -> String {
    match (ended, check) {
        (_, Some(status)) => format!(" (CHECK: exit status {status})"),
        (Ended::Exited(status), None) => format!(" (COMMAND: exit status {status})"),
        (Ended::Signaled(signal), None) => format!(" (COMMAND: signal {signal})"),
    }
}

/// Runs the check in the view of the try and returns its exit status.
fn check(arguments: &options::Try, tried: &Try, check: &OsString) -> Result<Option<i32>, Failure> {
    let words = ["/bin/sh".as_ref(), "-c".as_ref(), check.as_os_str()];
    let left = if arguments.run.end { "--end" } else { "--wait" };
    run_inside(tried, arguments.run.unprotected, left, &words).map(Some)
}

/// Runs a command in the view of a try, with an option for the processes that it leaves. Returns
/// its exit status.
fn run_inside(
    tried: &Try,
    unprotected: bool,
    left: &str,
    words: &[&OsStr],
) -> Result<i32, Failure> {
    use std::os::unix::process::ExitStatusExt;
    let program = std::env::current_exe().map_err(Failure::Inside)?;
    let mut command = std::process::Command::new(program);
    command.arg("try").args(["--inside", &tried.meta.id]).args(["--network", &tried.meta.network]);
    if let (Some(state), None) = (tried.directory().parent(), try_sandbox::enclosing_try()) {
        command.arg("--state").arg(state);
    }
    if unprotected {
        command.arg("--unprotected");
    }
    command.arg(left);
    let status = command.arg("--").args(words).env_remove(INSIDE).status();
    let status = status.map_err(Failure::Inside)?;
    Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
}

/// Builds the configuration of the agents and the kernel's restrictions.
fn confine(tried: &Try, run: &TryRun, inside: bool) -> Result<TryIsolation, Failure> {
    let refused = run.network == Network::Refuse;
    let left = || LeftProcesses::new(tried.clone(), run.quiet, run.end);
    let remaining = (!run.leave).then(|| Box::new(left()) as Box<dyn RemainingProcesses>);
    if inside {
        let confinement = Confinement::nested(&tried.overlay_directory(), !refused)?;
        return Ok(TryIsolation { overlay: Overlay::NONE, confinement, remaining });
    }
    let mut token = [0u8; 8];
    let random = std::fs::File::open("/dev/urandom");
    random
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut token))
        .map_err(Failure::Random)?;
    // Other calls may have 0 in its place.
    let token = u64::from_ne_bytes(token) | 1;
    let bytes = tried.overlay_directory_bytes();
    let mut directory = [0; DIRECTORY_MAX];
    directory[..bytes.len()].copy_from_slice(&bytes);
    let mut flags = flag::ON;
    if refused {
        flags |= flag::NO_NETWORK;
    }
    if run.plants("writes") {
        flags |= flag::PLANT_WRITES;
    }
    let allowed = TryPermissions { network: !refused, unprotected: run.unprotected };
    if run.plants("reads") {
        flags |= flag::PLANT_READS;
    }
    let confinement = match run.plants("unconfined") {
        true => Confinement::unconfined(),
        false => Confinement::new(&tried.overlay_directory(), token, allowed)?,
    };
    let rights = confinement.nested_rights;
    let overlay = Overlay { flags, token, rights, directory_len: bytes.len() as u64, directory };
    Ok(TryIsolation { overlay, confinement, remaining })
}

/// Runs the command to its end. The error is an exit status of `runahead` if the command does not
/// run.
fn execute(
    run: &TryRun,
    tried: &Try,
    isolation: TryIsolation,
    lock: Option<&TryLock>,
) -> Result<Ended, i32> {
    let Some((program, args)) = run.command.split_first() else { return Err(2) };
    let command = Command { program: program.clone(), args: args.to_vec() };
    // SAFETY: there is one thread.
    unsafe { std::env::set_var(INSIDE, &tried.meta.id) };
    let keep = if run.commit_if.is_some() { KeptDescriptors::All } else { KeptDescriptors::Stderr };
    let isolation = Arc::new(isolation);
    let also = lock.map(|lock| lock.as_fd().as_raw_fd());
    // The session closes all other descriptors. Dropping these would close unrelated ones that
    // reuse their numbers.
    std::mem::forget(isolation.clone());
    let isolation = Some(isolation);
    let options = Options {
        require: true,
        kept_descriptors: keep,
        also_kept_fd: also,
        isolation,
        ..Options::default()
    };
    let outcome = runahead_supervisor::run(&command, &options, |_| {});
    // SAFETY: nothing else reads the environment: the threads that are left are the session's,
    // which read and count.
    unsafe { std::env::remove_var(INSIDE) };
    match outcome {
        Ok((ended, _)) => Ok(ended),
        Err(error) => Err(report_error(&error)),
    }
}

/// Runs a subcommand and returns the exit status.
fn decide(store: &Store, arguments: &options::Try, task: &TryTask) -> Result<i32, Failure> {
    let mut out = Vec::new();
    if let Some(status) = decide_nested(store, arguments, task)? {
        return Ok(status);
    }
    match task {
        TryTask::Status { id, json } => status(&find(store, id)?, *json, &mut out)?,
        TryTask::Diff { id, json: false } => {
            let directory = find(store, id)?.overlay_directory();
            diff::write(&Changes::read(&directory)?, &directory, &mut out)?;
        }
        TryTask::Diff { id, json: true } => {
            let tried = find(store, id)?;
            let changes = Changes::read(&tried.overlay_directory())?;
            let lines = diff::count_lines(&changes, &tried.overlay_directory());
            put_json(&json!({ "id": tried.meta.id, "files": lines }), &mut out);
        }
        TryTask::Valid { id, json } => {
            let is_valid = valid_command::valid(&find(store, id)?, *json, &mut out)?;
            if let Err(error) = print(&out) {
                say!("{error}");
            }
            return Ok(if is_valid { 0 } else { CONFLICT });
        }
        TryTask::Commit { choice, force, reads, quiet } => {
            let mut tried = find_chosen(store, choice)?;
            tried.ignores_reads = *reads == Reads::Ignore;
            let paths = chosen_paths(&tried, choice)?;
            return Ok(commit_or_report(&tried, paths.as_ref(), *force, named(*quiet))?);
        }
        TryTask::Undo { choice, quiet } => match find_chosen(store, choice) {
            Err(Failure::Tries(runahead_changeset::Error::NoTries))
                if choice.paths().is_empty() =>
            {
                if !quiet {
                    say!("there is no try: nothing was undone");
                }
            }
            found => {
                let tried = found?;
                let paths = chosen_paths(&tried, choice)?;
                undo_and_report(&tried, paths.as_ref(), named(*quiet), "")?;
            }
        },
        TryTask::List { json } => list(store, *json, &mut out),
    }
    if let Err(error) = print(&out) {
        say!("{error}");
    }
    Ok(0)
}

/// Report of a subcommand.
fn named(quiet: bool) -> Report {
    if quiet { Report::Quiet } else { Report::Named }
}

/// Finds the try that `id` names, or the newest of the working directory or above it.
fn find(store: &Store, id: &Option<String>) -> Result<Try, Failure> {
    match id {
        Some(id) => Ok(store.find(id)?),
        None => Ok(store.find_in(&std::env::current_dir().map_err(Failure::NoDirectory)?)?),
    }
}

/// Finds the try of a choice.
fn find_chosen(store: &Store, choice: &Choice) -> Result<Try, Failure> {
    find(store, &choice.id()).map_err(|error| match error {
        Failure::Tries(runahead_changeset::Error::Unknown(word)) => Failure::NoTryOrPath(word),
        other => other,
    })
}

/// Finds the paths that are given, if any.
fn chosen_paths(tried: &Try, choice: &Choice) -> Result<Option<ChosenPaths>, Failure> {
    let words = choice.paths();
    if words.is_empty() {
        return Ok(None);
    }
    let directory = std::env::current_dir().map_err(Failure::NoWorkingDirectory)?;
    Ok(Some(ChosenPaths::resolve(tried, &directory, &words)?))
}

/// Runs a subcommand on a nested try in the view of the outer one. Returns the exit status, or
/// `None` if the try is not nested. To undo all needs no view.
fn decide_nested(
    store: &Store,
    arguments: &options::Try,
    task: &TryTask,
) -> Result<Option<i32>, Failure> {
    let json = |task, json: bool| if json { vec![task, "--json"] } else { vec![task] };
    let (id, words, paths) = match task {
        TryTask::Status { id, json: is_json } => (id.clone(), json("status", *is_json), vec![]),
        TryTask::Diff { id, json: is_json } => (id.clone(), json("diff", *is_json), vec![]),
        TryTask::Valid { id, json: is_json } => (id.clone(), json("valid", *is_json), vec![]),
        TryTask::Commit { choice, force, reads, quiet } => {
            let mut words = vec!["commit"];
            words.extend(quiet.then_some("--quiet"));
            words.extend(force.then_some("--force"));
            if *reads == Reads::Ignore {
                words.extend(["--reads", "ignore"]);
            }
            (choice.id(), words, choice.paths())
        }
        TryTask::Undo { choice, quiet } if !choice.paths().is_empty() => {
            let words = if *quiet { vec!["undo", "--quiet"] } else { vec!["undo"] };
            (choice.id(), words, choice.paths())
        }
        TryTask::Undo { .. } | TryTask::List { .. } => return Ok(None),
    };
    let Some(id) = id else { return Ok(None) };
    let tried = match (store.find(&id), task) {
        // Its message is that of the subcommand.
        (Err(runahead_changeset::Error::Unknown(_)), TryTask::Commit { .. }) => return Ok(None),
        (found, _) => found?,
    };
    if !store.is_nested(&tried) {
        return Ok(None);
    }
    // The outermost try: nested ones are found from it.
    let name = tried.meta.id.as_str();
    let is_around = |other: &Try| {
        !store.is_nested(other)
            && name.strip_prefix(&other.meta.id).is_some_and(|rest| rest.starts_with('.'))
    };
    let Some(around) = store.list().into_iter().find(is_around) else { return Ok(None) };
    let _lock = match (around.lock()?, task) {
        (None, TryTask::Commit { .. } | TryTask::Undo { .. }) => {
            return Err(around.still_running().into());
        }
        (lock, _) => lock,
    };
    let program = std::env::current_exe().map_err(Failure::Inside)?;
    let words = words.iter().map(OsStr::new);
    let words: Vec<_> = [program.as_os_str(), OsStr::new("try")].into_iter().chain(words).collect();
    let mut words = [&words[..], &[OsStr::new(name)]].concat();
    if !paths.is_empty() {
        words.push(OsStr::new("--"));
        words.extend(paths.iter().map(OsString::as_os_str));
    }
    run_inside(&around, arguments.run.unprotected, "--leave", &words).map(Some)
}

fn put_json(value: &serde_json::Value, out: &mut Vec<u8>) {
    out.extend(value.to_string().bytes());
    out.push(b'\n');
}

fn status(tried: &Try, json: bool, out: &mut Vec<u8>) -> Result<(), runahead_changeset::Error> {
    if let Some(interruption) = runahead_changeset::commit::interruption(tried)? {
        interrupted_commit::print(tried, &interruption, json, out);
        return Ok(());
    }
    let changes = Changes::read(&tried.overlay_directory())?;
    if json {
        let value = json!({
            "try": tried.meta, "running": tried.is_running(), "held": tried.overlay_directory(),
            "conflicts": changes.conflicts().count(), "changes": changes.iter().collect::<Vec<_>>(),
            "processes": tried.processes(),
            "tries": tried.nested().undecided().iter().map(|inner| &inner.meta).collect::<Vec<_>>(),
        });
        put_json(&value, out);
        return Ok(());
    }
    let _ = writeln!(out, "{}", describe_try(tried));
    if tried.is_running() {
        let _ = writeln!(out, "running: {}", list_processes(&tried.processes()));
    }
    let reads = recorded_reads::compare(&tried.overlay_directory())?;
    if !reads.stale.is_empty() {
        let (stale, all) = (reads.stale.len(), reads.compared);
        let _ = writeln!(out, "{stale} of {all} names that it read have changed");
    }
    for change in changes.iter() {
        let letter = match change.kind {
            ChangeKind::Added => 'A',
            ChangeKind::Modified => 'M',
            ChangeKind::Deleted => 'D',
            ChangeKind::Attributes => 'T',
        };
        let slash =
            if change.file_type == runahead_changeset::FileType::Directory { "/" } else { "" };
        let mark = if change.conflict.is_some() { '!' } else { ' ' };
        let _ = write!(out, "{mark}{letter} {}{slash}", printed_name(&change.path));
        let _ = match &change.conflict {
            Some(conflict) => writeln!(out, "  ({conflict})"),
            None => writeln!(out),
        };
    }
    Ok(())
}

/// Describes a try in one line.
fn describe_try(tried: &Try) -> String {
    let meta = &tried.meta;
    let changes = if meta.unchanged { ", changed nothing" } else { "" };
    let state = match (meta.status, tried.is_running()) {
        (_, true) => "running".to_owned(),
        (Some(status), _) => format!("exit status {status}"),
        (None, _) => "end not recorded".to_owned(),
    };
    let age = SystemTime::now().duration_since(UNIX_EPOCH + Duration::from_secs(meta.started));
    let age = age.unwrap_or_default().as_secs();
    let age = match age {
        0..120 => format!("{age} s"),
        120..7200 => format!("{} min", age / 60),
        _ => format!("{} h", age / 3600),
    };
    let (id, directory, words) = (&meta.id, meta.directory_path(), meta.words());
    let words: Vec<_> = words.iter().map(|word| printed_name(word.as_ref())).collect();
    format!(
        "{id}  {state}{changes}, {age} ago, in {}: {}",
        printed_name(&directory),
        words.join(" ")
    )
}

fn list(store: &Store, json: bool, out: &mut Vec<u8>) {
    for tried in store.undecided() {
        if json {
            let (meta, directory) = (&tried.meta, tried.overlay_directory());
            let running = tried.is_running();
            let processes = if running { tried.processes() } else { Vec::new() };
            put_json(
                &json!({ "try": meta, "running": running, "processes": processes, "held": directory }),
                out,
            );
        } else {
            let _ = writeln!(out, "{}", describe_try(&tried));
        }
    }
}
