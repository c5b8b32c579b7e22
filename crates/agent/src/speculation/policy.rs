//! Policy of a process that may speculate: allows what [`super::call_table`] allows while it
//! speculates. All other calls wait.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use runahead_abi::agent_config::plant;

use super::call_table::CallOutcome;
use super::checkpoint::{self, Transition};
use super::child_execs::{self, Exec};
use super::execute_call;
use super::memory_checkpoints::Memory;
use super::table_host;
use super::{
    child_private_calls, child_processes, descriptor_table, fast_path, mapped_files, mapping_calls,
    pipe_dependencies, planted_predictions, program_interface, signal_masks, target_prefetch,
    thread_states, wakeup_timer, write_faults,
};
use crate::arch::Context;
use crate::plane::policy::{PlaneCallVerdict, ProcessEvents, ReportingVerdict};
use crate::plane::{self, AnyPolicy, Call, Event, Next, ReportingPolicy, Token, Verdict};
use crate::session::{self, Session};
use crate::sys::{self, nr};
use crate::targets;

/// The policy; it has no state of its own.
struct Speculation;

static POLICY: AnyPolicy = AnyPolicy::Reporting(&Speculation);

/// Thread that is about to fork.
static FORKING_THREAD: AtomicU32 = AtomicU32::new(0);

/// Applies the outcomes that are known by now. `frame` belongs to the calling thread.
fn apply_outcomes(frame: &mut Context) -> Transition {
    let Some(table) = table_host::table() else { return Transition::Ended };
    let began = if planted_predictions::is_on() { sys::now() } else { 0 };
    let looked = checkpoint::apply_outcomes(table, frame);
    match looked {
        Transition::Unchanged | Transition::Busy => return looked,
        Transition::Ended if planted_predictions::is_on() => {
            planted_predictions::note_took(1, began)
        }
        Transition::RolledBack if planted_predictions::is_on() => {
            planted_predictions::note_took(2, began)
        }
        Transition::Ended | Transition::RolledBack => {}
    }
    pipe_dependencies::stop_waiting();
    if !checkpoint::is_speculative() {
        wakeup_timer::stop();
        fast_path::choose_paths();
    }
    looked
}

/// Chooses the call paths anew if the process began to speculate in this call.
fn choose_paths_if_begun(verdict: Option<ReportingVerdict>) -> Option<ReportingVerdict> {
    if matches!(verdict, Some(ReportingVerdict::ResumeFrame)) {
        fast_path::choose_paths();
    }
    verdict
}

/// Returns the verdict for a call by the transition of the process. None: the process does not
/// speculate.
fn after_transition(
    looked: Transition,
    goes_on: impl FnOnce() -> PlaneCallVerdict,
) -> Option<PlaneCallVerdict> {
    match looked {
        Transition::Unchanged => Some(goes_on()),
        Transition::RolledBack => Some(PlaneCallVerdict::ResumeFrame),
        Transition::Busy => Some(PlaneCallVerdict::Wait(checkpoint::change_done())),
        Transition::Ended => None,
    }
}

/// Interval at which a waiting process checks that the processes that settle its speculations still
/// live: 100 ms.
const ORPHAN_CHECK_NS: u64 = 100_000_000;
/// Delay in nanoseconds after which a thread that missed a poke is poked again. It doubles each
/// time, up to [`ORPHAN_CHECK_NS`]. Under a tracer, where each call takes long, short delays alone
/// would use up all the time.
const POKE_RETRY_NS: u64 = 50_000;
/// Number of pokes missed in a row.
static MISSED_POKES: AtomicU32 = AtomicU32::new(0);

/// Requests pokes and starts the timer: the thread is about to wait.
fn request_wakeups() {
    program_interface::request_pokes();
    let _ = wakeup_timer::start(ORPHAN_CHECK_NS);
}

/// Lets a call wait until no speculation is open. None: none is open.
fn wait_until_none_open(call: &Call, frame: &mut Context) -> Option<PlaneCallVerdict> {
    planted_predictions::note_wait(call.nr);
    planted_predictions::settle();
    request_wakeups();
    after_transition(apply_outcomes(frame), || PlaneCallVerdict::Wait(checkpoint::none_open()))
}

/// Handles a call of a speculative process. None: it does not speculate any more.
fn handle_speculative(call: &Call, frame: &mut Context) -> Option<ReportingVerdict> {
    let waits = |frame: &mut Context| wait_until_none_open(call, frame).map(ReportingVerdict::from);
    planted_predictions::settle_one();
    let looked = apply_outcomes(frame);
    if looked != Transition::Unchanged {
        return after_transition(looked, || PlaneCallVerdict::Proceed).map(ReportingVerdict::from);
    }
    if program_interface::is_request(call) {
        let verdict =
            choose_paths_if_begun(program_interface::handle_request(session::get()?, call, frame));
        return verdict.or_else(|| waits(frame));
    }
    let made = child_private_calls::make(call, target_prefetch::make_natively);
    if let CallOutcome::Answer(result) = made
        && planted_predictions::is_on()
        && !call.thread.is_at_work()
        && let Some(session) = session::get()
    {
        // The next call may be predicted, too.
        let before = frame.copy();
        frame.go_on_answered(result);
        if planted_predictions::plant(session, result, frame) {
            return Some(ReportingVerdict::ResumeFrame);
        }
        *frame = before;
    }
    if let CallOutcome::Depends(pipe, id) = made
        && !call.thread.is_at_work()
        && let (Some(session), Some(shared)) = (session::get(), table_host::shared())
        && pipe_dependencies::depend(session, shared, (pipe, id), frame).is_ok()
    {
        return Some(ReportingVerdict::ResumeFrame);
    }
    if matches!(made, CallOutcome::Report) {
        request_wakeups();
    }
    execute_call::verdict(&made).or_else(|| waits(frame))
}

/// Handles a plane call that a speculative process can make without a wait. None: it waits.
fn plane_call_without_wait(call: &Call, frame: &mut Context) -> Option<PlaneCallVerdict> {
    if call.nr == nr::RT_SIGPROCMASK {
        let result = signal_masks::change_believed_mask(call, frame)?;
        frame.go_on_answered(result);
        return Some(PlaneCallVerdict::ResumeFrame);
    }
    let blocked = frame.mask;
    let mut answer = |result| {
        frame.go_on_answered(result);
        PlaneCallVerdict::ResumeFrame
    };
    match call.nr {
        nr::EXECVE | nr::EXECVEAT => match child_execs::prepare(call) {
            Exec::Proceeds => Some(PlaneCallVerdict::Proceed),
            Exec::Fails(errno) => Some(answer(sys::fail(errno.0))),
            Exec::Waits => None,
        },
        _ if child_private_calls::is_private_plane_call(call, blocked)
            || child_processes::prepare_fork(call) =>
        {
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
        mapped_files::note_call(call);
        if checkpoint::is_speculative() {
            if let Some(verdict) = handle_speculative(call, frame) {
                return verdict;
            }
            is_news = true;
        }
        if is_news && fast_path::is_asked_first(call.nr) && !call.thread.is_at_work() {
            // The target's policy has not seen the call yet: the thread makes it anew.
            return ReportingVerdict::ResumeFrame;
        }
        if program_interface::is_request(call) {
            let asked = session::get()
                .and_then(|session| program_interface::handle_request(session, call, frame));
            return choose_paths_if_begun(asked).unwrap_or(ReportingVerdict::Answer(0));
        }
        if let Some(pipe) = pipe_dependencies::pipe_of(call)
            && !call.thread.is_at_work()
            && let Some(session) = session::get()
            && let Some(verdict) = pipe_dependencies::before_read(session, call, pipe, frame)
        {
            return choose_paths_if_begun(Some(verdict)).unwrap_or(ReportingVerdict::Report);
        }
        match call.nr {
            nr::PRCTL | nr::SECCOMP | nr::PTRACE if !call.thread.is_lent() => {
                let leaves = session::get().is_some_and(|session| {
                    if call.nr == nr::PTRACE {
                        targets::prepare_trace(session, call);
                    }
                    targets::retire_if_needed(session, call)
                });
                if leaves { ReportingVerdict::Native } else { ReportingVerdict::Report }
            }
            // By a protection key the program denies itself memory that a checkpoint must copy.
            nr::USERFAULTFD | nr::PKEY_ALLOC => {
                checkpoint::disable();
                ReportingVerdict::Report
            }
            _ => ReportingVerdict::Report,
        }
    }

    fn plane_call(&self, call: &Call, frame: &mut Context) -> PlaneCallVerdict {
        if planted_predictions::is_on()
            && child_processes::can_fork(call)
            && let Some(session) = session::get()
            && planted_predictions::plant_in_front(session, frame)
        {
            fast_path::choose_paths();
            return PlaneCallVerdict::ResumeFrame;
        }
        if !checkpoint::is_speculative() {
            fast_path::before_thread(call);
            return PlaneCallVerdict::Proceed;
        }
        let looked = apply_outcomes(frame);
        if looked == Transition::Unchanged
            && let Some(verdict) = plane_call_without_wait(call, frame)
        {
            return verdict;
        }
        let verdict = after_transition(looked, || {
            wait_until_none_open(call, frame).unwrap_or(PlaneCallVerdict::ResumeFrame)
        });
        // If no speculation is open any more, the thread makes the call anew, with another mask.
        verdict.unwrap_or(PlaneCallVerdict::ResumeFrame)
    }

    fn after(&self, call: &Call, result: i64, frame: Option<&mut Context>) -> Next {
        mapping_calls::note(call, result);
        if !call.thread.is_lent() {
            execute_call::note_descriptor_call(call, result);
        }
        match call.nr {
            nr::READ | nr::READV | nr::RECVFROM => pipe_dependencies::stop_waiting(),
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
                fast_path::choose_paths();
            }
        }
        Next::GoOn
    }

    fn fault(&self, _signal: i32, frame: &mut Context) {
        /// Polling interval in microseconds. Signals are blocked, so the thread cannot be poked.
        const EVERY_US: u64 = 200;
        const ORPHANS_EVERY: u64 = ORPHAN_CHECK_NS / 1000 / EVERY_US;
        let (before, mut times) = (checkpoint::rollbacks(), 0);
        let lacks_room = write_faults::lacks_room();
        while checkpoint::is_speculative() && checkpoint::rollbacks() == before {
            planted_predictions::settle();
            times += 1;
            if times % ORPHANS_EVERY == 0 {
                program_interface::fail_orphans();
            }
            if matches!(apply_outcomes(frame), Transition::Unchanged | Transition::Busy) {
                sys::sleep_us(EVERY_US);
            }
            if lacks_room && write_faults::has_room() {
                break;
            }
        }
    }

    fn write_fault(&self, at: u64) -> bool {
        write_faults::open_for_fault(at)
    }

    fn will_write(&self, at: u64, len: u64) -> bool {
        write_faults::will_write(at, len)
    }

    fn plane_call_returned(&self, _number: u64, result: i64) {
        child_processes::fork_returned(result);
    }
}

impl ProcessEvents for Speculation {
    fn poked(&self, frame: &mut Context) {
        MISSED_POKES.store(0, Relaxed);
        planted_predictions::settle();
        // A thread that waits makes its call anew, and starts the timer again.
        wakeup_timer::stop();
        program_interface::fail_orphans();
        apply_outcomes(frame);
    }

    fn poke_missed(&self) {
        if checkpoint::is_speculative() {
            let times = MISSED_POKES.fetch_add(1, Relaxed);
            let _ = wakeup_timer::start((POKE_RETRY_NS << times.min(16)).min(ORPHAN_CHECK_NS));
        }
    }

    fn asked_to_end(&self) {
        // What a prediction has made of this process must not go on natively. Calls of other
        // threads would end early.
        if !checkpoint::is_speculative() && !plane::has_threads() {
            targets::give_up();
        }
    }

    fn before_child(&self) {
        descriptor_table::share_all();
        FORKING_THREAD.store(sys::gettid(), Relaxed);
        targets::POLICY.before_child();
    }

    fn in_child(&self) {
        table_host::in_child();
        checkpoint::in_child(FORKING_THREAD.load(Relaxed), child_processes::in_child());
        descriptor_table::in_child();
        pipe_dependencies::in_child();
        child_execs::in_child();
        thread_states::rseq_areas_in_child(FORKING_THREAD.load(Relaxed));
        planted_predictions::in_child();
        targets::POLICY.in_child();
    }

    fn before_exec(&self, call: &Call) -> Token {
        child_execs::prepared().unwrap_or_else(|| targets::POLICY.before_exec(call))
    }

    fn mask_over_exec(&self, mask: u64) -> u64 {
        child_execs::mask_across(mask)
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
            // Other processes and policies cannot see what the handler does.
            descriptor_table::share_all();
            descriptor_table::invalidate_all();
            checkpoint::note_change(Memory::invalidate_regions);
        }
    }

    /// Ends a speculative process that the agent has lost: no outcome would reach it, and its
    /// predictions may be wrong.
    fn lost(&self) {
        if checkpoint::is_speculative() {
            sys::exit(super::FAILED);
        }
    }

    fn thread_ends(&self) {
        thread_states::forget_rseq_area(sys::gettid());
    }
}

/// True if programs of the session may speculate.
pub fn may_speculate(session: &Session) -> bool {
    session.config.speculates != 0 || predicts_by_itself(session)
}

/// True if a test plants predictions.
fn predicts_by_itself(session: &Session) -> bool {
    matches!(session.plant(), plant::SPECULATED | plant::SPECULATED_WRONGLY)
}

/// Installs this policy in place of the target's, if the session asks for it.
pub fn start(session: &Session) -> sys::Result<()> {
    if !may_speculate(session) {
        return Ok(());
    }
    if predicts_by_itself(session) {
        planted_predictions::start(session)?;
    }
    targets::set_consulted_by_other_policy();
    plane::set_policy(&POLICY)?;
    if let Some((id, on, mask)) = child_execs::inherited() {
        checkpoint::begin_after_exec((id, on), mask)?;
        planted_predictions::note_executed();
    }
    fast_path::choose_paths();
    Ok(())
}
