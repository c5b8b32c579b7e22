//! Runs the command of a case under runahead past its stall, and compares the world before and
//! after.

use std::fmt;
use std::fs;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::checked_calls::call;
use crate::checked_calls::eventually;
use crate::process::{self, Seen};
use crate::test_world::World;
use crate::world_snapshot::look;

/// Distance of cold bytes: beyond any readahead.
const APART: u64 = 256 << 10;
/// The program's page, and what it says there; see `leak.c`.
const PAGE: usize = 0x2_b000_0000;
const WORDS: usize = 7;
const AT_CALL: u64 = 1;
const AFTER_CALL: u64 = 2;
const TARGET: u64 = 10;
/// The program's exit status.
const RIGHT: i32 = 17;
/// Runs of a case until a shadow comes to its call.
const ATTEMPTS: u32 = 10;
/// Runs after which a call that gives nothing is believed to end the shadow.
const ENOUGH: u32 = 6;
/// Time limit of any step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Visible traces of a speculative process: our timer, our signals, and the signal mask of its
/// waits. `docs/guide/speculation.md` lists what can be noticed.
const OF_A_SPECULATION: &[&str] = &[
    "shadow/timers",
    "shadow/SigBlk",
    "shadow/SigPnd: 0000000040000000",
    "shadow/SigPnd: 0000000000000000",
];

/// True if the program itself makes the call and speculates; in `native` it does not speculate.
pub fn speculates(mode: &str) -> bool {
    matches!(mode, "speculative" | "own" | "let-out" | "allowed" | "native")
}

/// Result of a case.
pub struct CaseResult {
    /// Runs until a shadow came to the call; 0 if none did.
    pub attempts: u32,
    /// Result of the call in the shadow; `None` if the shadow ended in it or waits.
    pub result: Option<i64>,
    /// Names of what changed.
    pub changed: Vec<String>,
}

impl fmt::Display for CaseResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let result = self.result.map_or("-".to_owned(), |r| r.to_string());
        let changed: Vec<String> =
            self.changed.iter().map(|c| c.escape_default().to_string()).collect();
        write!(f, "{}\t{result}\t{}", self.attempts, changed.join(";"))
    }
}

/// Environment of the cases.
pub struct CaseEnvironment<'a> {
    world: &'a World,
    program: &'a str,
    cold: &'a Path,
    blocks: u64,
    next: u64,
    /// The world as it is.
    now: Seen,
}

impl<'a> CaseEnvironment<'a> {
    pub fn new(world: &'a World, program: &'a str, cold: &'a Path) -> Self {
        let blocks = fs::metadata(cold).expect("the cold file").len() / APART;
        let next = u64::from(std::process::id() ^ world.bystander.pid as u32) % blocks;
        CaseEnvironment { world, program, cold, blocks, next, now: look(world, None) }
    }

    /// Runs a case.
    pub fn round(&mut self, mode: &str, case: &str) -> CaseResult {
        let mut round = CaseResult { attempts: 0, result: None, changed: Vec::new() };
        for attempt in 1..=ATTEMPTS {
            let reached = self.attempt(mode, case, &mut round);
            // One that was ended before the call gave anything (another took its place) shows
            // nothing of what the sandbox has to say.
            let shown = reached && (mode == "asis" || speculates(mode) || round.result.is_some());
            if reached {
                round.attempts = attempt;
            }
            if shown || !round.changed.is_empty() || (reached && attempt >= ENOUGH) {
                break;
            }
        }
        round
    }

    /// True if a shadow came to the call.
    fn attempt(&mut self, mode: &str, case: &str, round: &mut CaseResult) -> bool {
        let rest = if speculates(mode) { vec![mode.into()] } else { self.cold_byte() };
        let session = Session::start(self, mode, case, &rest);
        let one =
            if speculates(mode) { session.at_call_itself() } else { session.shadow_at_call() };
        match one {
            Some(process) if speculates(mode) => {
                self.speculated(&session, process, mode, round);
            }
            Some(shadow) => self.at_call(&session, shadow, mode == "unguarded", round),
            None => {}
        }
        let said = session.finish();
        // Whatever the harm has left alive would be in the way of what comes next.
        eventually(Duration::from_secs(3), || {
            self.collect();
            self.strangers().is_empty()
        });
        let after = look(self.world, None);
        round.changed.extend(differences(&self.now, &after));
        round.changed.extend(said.into_iter().map(|line| format!("target/{line}")));
        round.changed.sort();
        round.changed.dedup();
        for stranger in self.strangers() {
            // SAFETY: kill(2) has no memory to get wrong; no process of the case is needed any
            // more.
            unsafe { libc::kill(stranger, libc::SIGKILL) };
        }
        one.is_some()
    }

    /// Lets a process that speculates make its call, and looks; has it taken back, and looks again.
    fn speculated(&self, session: &Session, process: i32, mode: &str, round: &mut CaseResult) {
        const LONGEST: Duration = Duration::from_secs(2);
        const SOON: Duration = Duration::from_millis(400);
        let native = mode == "native";
        let both = || {
            let mut seen = look(self.world, Some(session.pid()));
            process::look(process, "shadow", &mut seen);
            seen
        };
        let (before, page) = (both(), read_page(process));
        write_word(process, 2, 1);
        let over = || read_page(process).is_some_and(|page| page[1] == AFTER_CALL);
        // It computes until then: a process that sleeps waits for the outcome or in its call.
        let sleeps = || process::stat(process).first().is_some_and(|state| state == "S");
        eventually(LONGEST, || {
            over() || !process::is_alive(process) || {
                let twice = sleeps();
                std::thread::sleep(Duration::from_millis(2));
                twice && sleeps()
            }
        });
        round.result = read_page(process).filter(|p| p[1] == AFTER_CALL).map(|p| p[4] as i64);
        let note = |round: &mut CaseResult| {
            let after = both();
            let ended = !process::is_alive(process) || process::is_ending(process);
            let is_ours =
                |key: &str| !native && OF_A_SPECULATION.iter().any(|of| key.starts_with(of));
            let is_effect = |key: &String| !(key.starts_with("shadow/") && (ended || is_ours(key)));
            round.changed.extend(differences(&before, &after).filter(is_effect));
        };
        note(round);
        if native || matches!(mode, "allowed" | "let-out") {
            // Some effects take their time.
            eventually(SOON, || {
                note(round);
                round.changed.iter().any(|key| !OF_A_SPECULATION.contains(&key.as_str()))
            });
        }
        if native {
            write_word(process, 3, 1);
        } else if let Some(page) = page {
            write_word(page[6] as i32, 3, page[5]);
        }
        let comes_back = || !session.all_at(TARGET).is_empty() || !process::is_alive(process);
        eventually(if native { SOON } else { PATIENCE }, comes_back);
        if native && session.all_at(TARGET).is_empty() {
            // It waits, and no process rolls it back.
            // SAFETY: kill(2) has no memory to get wrong.
            unsafe { libc::kill(process, libc::SIGKILL) };
        } else if !native {
            note(round);
        }
    }

    /// Value that the program gets for a byte that has not been read.
    fn cold_byte(&mut self) -> Vec<std::ffi::OsString> {
        let offset = self.next % self.blocks * APART;
        self.next += 1;
        self.make_cold();
        vec![self.cold.into(), offset.to_string().into()]
    }

    /// Lets the shadow make its call, and looks.
    fn at_call(&self, session: &Session, shadow: i32, wait: bool, round: &mut CaseResult) {
        let template = process::parent(shadow);
        let both = || {
            let mut seen = look(self.world, Some(session.pid()));
            // It may make another runner at any time, and a runner children, which are as it is.
            let own = |pid| {
                // One without a parent has ended since it was listed.
                let Some(parent) = process::parent(pid) else { return true };
                Some(parent) == template || parent == shadow && process::is_sandboxed(pid)
            };
            let other = |key: &str| {
                let pid = key.strip_prefix("processes/").and_then(|pid| pid.parse().ok());
                pid.is_some_and(|pid| pid != shadow && own(pid))
            };
            seen.retain(|key, _| !other(key));
            process::look(shadow, "shadow", &mut seen);
            seen
        };
        let before = both();
        write_word(shadow, 2, 1);
        let over =
            || read_page(shadow).is_some_and(|p| p[1] == AFTER_CALL) || !process::is_alive(shadow);
        // A call that does not return (a pause, a vfork) has done what it does soon.
        eventually(Duration::from_millis(if wait { 60 } else { 300 }), over);
        round.result = read_page(shadow).filter(|p| p[1] == AFTER_CALL).map(|page| page[4] as i64);
        let mut after = both();
        if wait {
            // Some effects take their time (a program that is executed).
            eventually(Duration::from_millis(400), || {
                let known = differences(&before, &after).next().is_some();
                if !known {
                    after = both();
                }
                known
            });
            // The call may have been made in the middle of the look that found something.
            let outside = |key: &String| !key.starts_with("shadow/");
            round.changed.extend(differences(&before, &after).filter(outside));
            after = both();
        }
        if !process::is_alive(shadow) || process::is_ending(shadow) {
            // One that has ended has nothing any more, which is no effect.
            after.retain(|key, _| !key.starts_with("shadow/"));
            after.extend(
                before
                    .iter()
                    .filter(|(k, _)| k.starts_with("shadow/"))
                    .map(|(k, v)| (k.clone(), v.clone())),
            );
        }
        round.changed.extend(differences(&before, &after));
    }

    /// Drops the whole file: pages are cached and dropped in lumps larger than the reads of a run.
    fn make_cold(&self) {
        let file = fs::File::options().read(true).custom_flags(libc::O_NOATIME).open(self.cold);
        let file = file.expect("the cold file");
        const DONTNEED: usize = libc::POSIX_FADV_DONTNEED as usize;
        let args = [file.as_raw_fd() as usize, 0, 0, DONTNEED];
        call(libc::SYS_fadvise64, args).expect("fadvise");
    }

    /// Collects ended processes of the session, as the first process of the namespace.
    fn collect(&self) {
        for stranger in self.strangers() {
            // SAFETY: collects a child, if it is one and has ended; no memory is passed.
            unsafe { libc::waitpid(stranger, std::ptr::null_mut(), libc::WNOHANG) };
        }
    }

    /// Processes that were not there at the start.
    fn strangers(&self) -> Vec<i32> {
        let known = [1, self.world.bystander.pid, self.world.group, self.world.waiter];
        process::all().into_iter().filter(|pid| !known.contains(pid)).collect()
    }
}

/// Names of values that differ; for pending signals also which. A process that is missing is a
/// shadow that ended, which may happen at any time. Processes that must stay are compared in more
/// than that.
fn differences<'a>(before: &'a Seen, after: &'a Seen) -> impl Iterator<Item = String> + 'a {
    let ended = |key: &str| key.starts_with("processes/") && !after.contains_key(key);
    let changed =
        before.iter().filter(move |(key, value)| after.get(*key) != Some(value) && !ended(key));
    let new = after.keys().filter(|key| !before.contains_key(*key));
    changed.map(|(key, _)| key).chain(new).map(|key| match after.get(key) {
        Some(pending) if key.ends_with("Pnd") => format!("{key}: {pending}"),
        _ => key.clone(),
    })
}

/// The words of a process's page, if it has one.
fn read_page(pid: i32) -> Option<[u64; WORDS]> {
    let mut words = [0u64; WORDS];
    let (local, remote) = ([words.as_mut_ptr() as usize, 8 * WORDS], [PAGE, 8 * WORDS]);
    let (local, remote) = (local.as_ptr() as usize, remote.as_ptr() as usize);
    call(libc::SYS_process_vm_readv, [pid as usize, local, 1, remote, 1, 0]).ok()?;
    (words[0] == PAGE as u64).then_some(words)
}

fn write_word(pid: i32, word: usize, value: u64) {
    let at = std::ptr::from_ref(&value) as usize;
    let (local, remote) = ([at, 8], [PAGE + 8 * word, 8]);
    let (local, remote) = (local.as_ptr() as usize, remote.as_ptr() as usize);
    let _ = call(libc::SYS_process_vm_writev, [pid as usize, local, 1, remote, 1, 0]);
}

/// A session that runs.
struct Session {
    process: Child,
    program: PathBuf,
}

impl Session {
    fn start(
        rounds: &CaseEnvironment,
        mode: &str,
        case: &str,
        rest: &[std::ffi::OsString],
    ) -> Self {
        let exe = std::env::current_exe().expect("our own path");
        let mut command = Command::new(exe);
        command.args(["run", mode, rounds.program, case]).args(rest);
        let told = rounds.world.told.iter();
        command.env_clear().envs(told.map(|(name, value)| (format!("LEAK_{name}"), value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(rounds.world.group);
        Session {
            process: command.spawn().expect("a session starts"),
            program: fs::canonicalize(rounds.program).expect("the program's path"),
        }
    }

    fn pid(&self) -> i32 {
        self.process.id() as i32
    }

    /// The target: the session's only child.
    fn target(&self) -> Vec<i32> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).into_iter().flatten();
        let of = |task: fs::DirEntry| {
            let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>()
        };
        tasks.flatten().flat_map(of).collect()
    }

    /// The target, if it has come to `stage`.
    fn all_at(&self, stage: u64) -> Vec<i32> {
        let at_stage = |pid: &i32| read_page(*pid).is_some_and(|p| p[1] == stage);
        self.target().into_iter().filter(at_stage).collect()
    }

    /// Shadows have no parent in the session: they are the other processes that execute the
    /// program.
    fn shadows(&self) -> Vec<i32> {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let executes = |pid: &i32| {
            fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == self.program)
        };
        // A list of the session's children may miss one while another one ends.
        let own = |pid: &i32| process::parent(*pid).is_none_or(|parent| parent == self.pid());
        pids.filter(|pid| *pid != self.pid() && !own(pid)).filter(executes).collect()
    }

    fn at_call(&self) -> Option<i32> {
        let at_call = |pid: &i32| read_page(*pid).is_some_and(|p| p[1] == AT_CALL);
        self.shadows().into_iter().find(at_call)
    }

    /// Shadows run when the processor is idle, which on a busy machine is after their data
    /// arrives; here they must be in time.
    fn hurry(&self) {
        for shadow in self.shadows() {
            let priority = 0i32;
            let at = std::ptr::from_ref(&priority) as usize;
            const OTHER: usize = libc::SCHED_OTHER as usize;
            let _ = call(libc::SYS_sched_setscheduler, [shadow as usize, OTHER, at]);
            let _ = call(libc::SYS_setpriority, [0, shadow as usize, -10isize as usize]);
        }
    }

    /// The target, once it has come to the call by itself.
    fn at_call_itself(&self) -> Option<i32> {
        let mut target = None;
        eventually(PATIENCE, || {
            target = self.all_at(AT_CALL).first().copied();
            target.is_some() || !process::is_alive(self.pid())
        });
        target
    }

    /// The shadow, once it has come to the call. `None` if the target is past its stall and none
    /// comes.
    fn shadow_at_call(&self) -> Option<i32> {
        const LATE: Duration = Duration::from_millis(200);
        let (mut shadow, mut past) = (None, false);
        eventually(PATIENCE, || {
            self.hurry();
            shadow = self.at_call();
            past = !self.all_at(TARGET).is_empty();
            shadow.is_some() || past || !process::is_alive(self.pid())
        });
        if shadow.is_none() && past {
            eventually(LATE, || {
                self.hurry();
                shadow = self.at_call();
                shadow.is_some()
            });
        }
        shadow
    }

    /// Lets the target end; what it noticed, and whatever else is not as it should be.
    fn finish(mut self) -> Vec<String> {
        let mut ended = None;
        eventually(PATIENCE, || {
            self.all_at(TARGET).into_iter().for_each(|pid| write_word(pid, 3, 1));
            ended = self.process.try_wait().expect("a child of ours");
            ended.is_some()
        });
        if ended.is_none() {
            let _ = self.process.kill();
        }
        let mut said = String::new();
        let (stdout, stderr) = (self.process.stdout.take(), self.process.stderr.take());
        // Not to its end: something harmful may hold it open.
        for pipe in [
            stdout.map(|p| -> Box<dyn ReadNow> { Box::new(p) }),
            stderr.map(|p| -> Box<dyn ReadNow> { Box::new(p) }),
        ] {
            said += &pipe.map_or_else(String::new, |mut p| p.read_now());
        }
        let mut lines: Vec<String> = said.lines().map(str::to_owned).collect();
        match ended.and_then(|status| status.code()) {
            Some(RIGHT) => {}
            other => lines.push(format!("ended {other:?} {ended:?}")),
        }
        lines
    }
}

trait ReadNow {
    fn read_now(&mut self) -> String;
}

impl<T: Read + AsRawFd> ReadNow for T {
    fn read_now(&mut self) -> String {
        let len = crate::checked_calls::unread(self).max(0) as usize;
        let mut bytes = vec![0; len];
        let got = self.read_exact(&mut bytes).map(|()| len).unwrap_or(0);
        String::from_utf8_lossy(&bytes[..got]).into_owned()
    }
}
