//! What a process may do while it speculates: what [`super::call_table`] lets it. All else waits.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use runahead_abi::agent_config::plant;

use super::call_table::Made;
use super::checkpoint::{self, Looked};
use super::child_execs::{self, Exec};
use super::execute_call;
use super::memory_checkpoints::Memory;
use super::table_host;
use super::{
    child_private_calls, child_processes, descriptor_table, fast_path, mapping_calls,
    pipe_dependencies, planted_predictions, program_interface, signal_masks, target_prefetch,
    thread_states, wakeup_timer, write_faults,
};
use crate::arch::Context;
use crate::plane::policy::{PlaneCallVerdict, ProcessEvents, ReportingVerdict};
use crate::plane::{self, AnyPolicy, Call, Event, Next, ReportingPolicy, Token, Verdict};
use crate::session::{self, Session};
use crate::sys::{self, nr};
use crate::targets;

/// See the module's text.
struct Speculation;

static POLICY: AnyPolicy = AnyPolicy::Reporting(&Speculation);

/// The thread that is about to make a child.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// What has become of the process by now; `frame` is that of the thread, which is at work.
fn look(frame: &mut Context) -> Looked {
    let Some(table) = table_host::table() else { return Looked::Ended };
    let began = if planted_predictions::is_on() { sys::now() } else { 0 };
    let looked = checkpoint::look(table, frame);
    match looked {
        Looked::Same | Looked::Busy => return looked,
        Looked::Ended if planted_predictions::is_on() => planted_predictions::note_took(1, began),
        Looked::Back if planted_predictions::is_on() => planted_predictions::note_took(2, began),
        Looked::Ended | Looked::Back => {}
    }
    pipe_dependencies::do_not_wait();
    if !checkpoint::is_speculative() {
        wakeup_timer::stop();
        fast_path::choose();
    }
    looked
}

/// After a call from which on the process may speculate.
fn may_have_begun(verdict: Option<ReportingVerdict>) -> Option<ReportingVerdict> {
    if matches!(verdict, Some(ReportingVerdict::ResumeFrame)) {
        fast_path::choose();
    }
    verdict
}

/// What a thread does about a call that it has come to, by what has become of the process. None: the process does not speculate.
fn by(looked: Looked, goes_on: impl FnOnce() -> PlaneCallVerdict) -> Option<PlaneCallVerdict> {
    match looked {
        Looked::Same => Some(goes_on()),
        Looked::Back => Some(PlaneCallVerdict::ResumeFrame),
        Looked::Busy => Some(PlaneCallVerdict::Wait(checkpoint::settled())),
        Looked::Ended => None,
    }
}

/// How often a process that waits looks whether those that are to settle what is open are still there, in nanoseconds.
const ORPHANS_NS: u64 = 100_000_000;
/// A thread that was at work when it was poked is poked again after so many nanoseconds, and after twice as many each time, up to
/// [`ORPHANS_NS`]: where each call takes long, as under a tracer, it would come to nothing else.
const AGAIN_NS: u64 = 50_000;
/// How often in a row.
static MISSED: AtomicU32 = AtomicU32::new(0);

/// The thread is about to wait: it is to be told what comes.
fn expects_outcome() {
    program_interface::want_all();
    let _ = wakeup_timer::start(ORPHANS_NS);
}

/// Of a call that is to wait until nothing is open. None: nothing is.
fn waits(call: &Call, frame: &mut Context) -> Option<PlaneCallVerdict> {
    planted_predictions::note_wait(call.nr);
    planted_predictions::settle();
    expects_outcome();
    by(look(frame), || PlaneCallVerdict::Wait(checkpoint::resolved()))
}

/// A call of a speculative process. None: it does not speculate any more.
fn speculative(call: &Call, frame: &mut Context) -> Option<ReportingVerdict> {
    let waits = |frame: &mut Context| waits(call, frame).map(ReportingVerdict::from);
    planted_predictions::settle_one();
    let looked = look(frame);
    if looked != Looked::Same {
        return by(looked, || PlaneCallVerdict::Proceed).map(ReportingVerdict::from);
    }
    if program_interface::is_one(call) {
        let verdict = may_have_begun(program_interface::asked(session::get()?, call, frame));
        return verdict.or_else(|| waits(frame));
    }
    let made = child_private_calls::make(call, target_prefetch::as_it_stands);
    if let Made::Answer(result) = made
        && planted_predictions::is_on()
        && !call.thread.is_at_work()
        && let Some(session) = session::get()
    {
        // What comes next may be predicted, too.
        let before = frame.copy();
        frame.go_on_answered(result);
        if planted_predictions::plant(session, result, frame) {
            return Some(ReportingVerdict::ResumeFrame);
        }
        *frame = before;
    }
    if let Made::Depends(pipe, id) = made
        && !call.thread.is_at_work()
        && let (Some(session), Some(shared)) = (session::get(), table_host::shared())
        && pipe_dependencies::depend(session, shared, (pipe, id), frame).is_ok()
    {
        return Some(ReportingVerdict::ResumeFrame);
    }
    if matches!(made, Made::Report) {
        expects_outcome();
    }
    execute_call::verdict(&made).or_else(|| waits(frame))
}

/// A call of the plane's own that a speculative process need not wait with. None: it waits.
fn goes_on(call: &Call, frame: &mut Context) -> Option<PlaneCallVerdict> {
    let mut answer = |result| {
        frame.go_on_answered(result);
        PlaneCallVerdict::ResumeFrame
    };
    match call.nr {
        nr::RT_SIGPROCMASK => signal_masks::change(call).map(answer),
        nr::EXECVE | nr::EXECVEAT => match child_execs::prepare(call) {
            Exec::Goes => Some(PlaneCallVerdict::Proceed),
            Exec::Fails(errno) => Some(answer(sys::fail(errno.0))),
            Exec::Waits => None,
        },
        _ if child_private_calls::is_own(call) || child_processes::may_be_made(call) => {
            Some(PlaneCallVerdict::Proceed)
        }
        _ => None,
    }
}

impl ReportingPolicy for Speculation {
    fn before(&self, call: &Call) -> Option<Verdict> {
        fast_path::before(call)
    }

    fn is_asked_first(&self, number: u64) -> bool {
        fast_path::is_asked_first(number)
    }

    fn reported(&self, call: &Call, frame: &mut Context) -> ReportingVerdict {
        let mut is_news = table_host::ask_once();
        if checkpoint::is_speculative() {
            if let Some(verdict) = speculative(call, frame) {
                return verdict;
            }
            is_news = true;
        }
        if is_news && fast_path::is_asked_first(call.nr) && !call.thread.is_at_work() {
            // Nobody has asked the target's policy yet: the thread comes to the call anew.
            return ReportingVerdict::ResumeFrame;
        }
        if program_interface::is_one(call) {
            let asked =
                session::get().and_then(|session| program_interface::asked(session, call, frame));
            return may_have_begun(asked).unwrap_or(ReportingVerdict::Answer(0));
        }
        if let Some(pipe) = pipe_dependencies::pipe_of(call)
            && !call.thread.is_at_work()
            && let Some(session) = session::get()
            && let Some(verdict) = pipe_dependencies::before_read(session, call, pipe, frame)
        {
            return may_have_begun(Some(verdict)).unwrap_or(ReportingVerdict::Report);
        }
        match call.nr {
            nr::PRCTL | nr::SECCOMP | nr::PTRACE if !call.thread.is_lent() => {
                let leaves =
                    session::get().is_some_and(|session| targets::leave_for(session, call));
                if leaves { ReportingVerdict::Native } else { ReportingVerdict::Report }
            }
            nr::USERFAULTFD => {
                checkpoint::give_up();
                ReportingVerdict::Report
            }
            _ => ReportingVerdict::Report,
        }
    }

    fn plane_call(&self, call: &Call, frame: &mut Context) -> PlaneCallVerdict {
        if planted_predictions::is_on()
            && child_processes::can_be_made(call)
            && let Some(session) = session::get()
            && planted_predictions::plant_in_front(session, frame)
        {
            fast_path::choose();
            return PlaneCallVerdict::ResumeFrame;
        }
        if !checkpoint::is_speculative() {
            fast_path::before_thread(call);
            return PlaneCallVerdict::Proceed;
        }
        let looked = look(frame);
        if looked == Looked::Same
            && let Some(verdict) = goes_on(call, frame)
        {
            return verdict;
        }
        let verdict = by(looked, || waits(call, frame).unwrap_or(PlaneCallVerdict::ResumeFrame));
        // (Where nothing is open any more the thread comes to the call anew, with another mask.)
        verdict.unwrap_or(PlaneCallVerdict::ResumeFrame)
    }

    fn after(&self, call: &Call, result: i64, frame: Option<&mut Context>) -> Next {
        mapping_calls::note(call, result);
        if !call.thread.is_lent() {
            execute_call::note(call, result);
        }
        match call.nr {
            nr::READ | nr::READV | nr::RECVFROM => pipe_dependencies::do_not_wait(),
            nr::RSEQ => thread_states::note_call(call, result),
            _ => {}
        }
        if let (Some(frame), Some(session)) = (frame, session::get())
            && planted_predictions::is_on()
            && !checkpoint::is_speculative()
            && !call.thread.is_lent()
            && !call.thread.is_at_work()
        {
            let begun = planted_predictions::plant(session, result, frame);
            if begun {
                fast_path::choose();
            }
        }
        Next::GoOn
    }

    fn fault(&self, _signal: i32, frame: &mut Context) {
        /// How often to look. (Signals are blocked, so that nobody can poke the thread.)
        const EVERY_US: u64 = 200;
        const ORPHANS_EVERY: u64 = ORPHANS_NS / 1000 / EVERY_US;
        let (before, mut times) = (checkpoint::rollbacks(), 0);
        let lacks_room = write_faults::lacks_room();
        while checkpoint::is_speculative() && checkpoint::rollbacks() == before {
            planted_predictions::settle();
            times += 1;
            if times % ORPHANS_EVERY == 0 {
                program_interface::fail_orphans();
            }
            if matches!(look(frame), Looked::Same | Looked::Busy) {
                sys::sleep_us(EVERY_US);
            }
            if lacks_room && write_faults::has_room() {
                break;
            }
        }
    }

    fn write_fault(&self, at: u64) -> bool {
        write_faults::stored(at)
    }

    fn will_write(&self, at: u64, len: u64) -> bool {
        write_faults::will_write(at, len)
    }

    fn plane_call_returned(&self, _number: u64, result: i64) {
        child_processes::was_made(result);
    }
}

impl ProcessEvents for Speculation {
    fn poked(&self, frame: &mut Context) {
        MISSED.store(0, Relaxed);
        planted_predictions::settle();
        // (One that waits comes to its call anew, and sets it again.)
        wakeup_timer::stop();
        program_interface::fail_orphans();
        look(frame);
    }

    fn poke_missed(&self) {
        if checkpoint::is_speculative() {
            let times = MISSED.fetch_add(1, Relaxed);
            let _ = wakeup_timer::start((AGAIN_NS << times.min(16)).min(ORPHANS_NS));
        }
    }

    fn before_child(&self) {
        descriptor_table::forget_all();
        FORKS.store(sys::gettid(), Relaxed);
        targets::POLICY.before_child();
    }

    fn in_child(&self) {
        table_host::in_child();
        checkpoint::in_child(FORKS.load(Relaxed), child_processes::in_child());
        descriptor_table::in_child();
        pipe_dependencies::in_child();
        child_execs::in_child();
        thread_states::places_in_child(FORKS.load(Relaxed));
        planted_predictions::in_child();
        targets::POLICY.in_child();
    }

    fn before_exec(&self, call: &Call) -> Token {
        child_execs::prepared().unwrap_or_else(|| targets::POLICY.before_exec(call))
    }

    fn mask_over_exec(&self, mask: u64) -> u64 {
        child_execs::mask_over(mask)
    }

    fn exec_failed(&self, token: Token) {
        child_execs::failed();
        targets::POLICY.exec_failed(token);
    }

    fn event(&self, event: Event) {
        targets::POLICY.event(event);
    }

    fn handler_begins(&self, _signal: i32) {
        if plane::thread::current().is_some_and(plane::thread::Thread::is_at_work) {
            // What it does nobody may see.
            descriptor_table::forget_all();
            descriptor_table::forget_known();
            checkpoint::note_change(Memory::unsettle);
        }
    }

    /// Nobody would hear of what it does from here on, which may be wrong.
    fn lost(&self) {
        if checkpoint::is_speculative() {
            sys::exit(super::FAILED);
        }
    }

    fn thread_ends(&self) {
        thread_states::forget_place(sys::gettid());
    }
}

/// Whether programs of the session may speculate.
pub fn may(session: &Session) -> bool {
    session.config.speculates != 0 || predicts_by_itself(session)
}

/// Predictions are planted, by a test.
fn predicts_by_itself(session: &Session) -> bool {
    matches!(session.plant(), plant::SPECULATED | plant::SPECULATED_WRONGLY)
}

/// Puts this policy in the target's place, if that was asked for.
pub fn start(session: &Session) -> sys::Result<()> {
    if !may(session) {
        return Ok(());
    }
    if predicts_by_itself(session) {
        planted_predictions::start(session)?;
    }
    targets::be_asked_by_another();
    plane::set_policy(&POLICY)?;
    if let Some((id, on, mask)) = child_execs::inherited() {
        checkpoint::begin_as((id, on), mask)?;
        planted_predictions::note_executed();
    }
    fast_path::choose();
    Ok(())
}
