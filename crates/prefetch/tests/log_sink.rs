//! The usual sink against the real hint log.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use runahead_abi::{HintKind, HintLog, HintState};
use runahead_estimators::Identity;
use runahead_prefetch::{Completion, LogSink, Sink};

#[test]
fn the_log_is_told_and_newer_hints_are_kept() {
    // SAFETY: HintLog is atomics throughout, for which all-zero bytes are a valid value.
    let log: Box<HintLog> = unsafe { Box::new_zeroed().assume_init() };
    let seen = (AtomicUsize::new(0), Mutex::new(0));
    let completed = |completion: &Completion| {
        seen.0.fetch_add(completion.hints as usize, Relaxed);
        *seen.1.lock().unwrap() = completion.run;
    };
    let sink = LogSink { log: &*log, completed };
    let keys: Vec<Identity> = (0..4).map(Identity::inherited).collect();
    log.hint(keys[0], 5);
    log.hint(keys[1], 5);
    log.hint(keys[2], 7);
    log.done_by_target(keys[3]);
    sink.done(keys[0]);
    keys.iter().for_each(|key| sink.forget(*key, 6));
    let states: Vec<_> = keys.iter().map(|key| log.state(*key)).collect();
    use HintState::*;
    assert_eq!(states, [Done, Absent, Hinted, Done]);
    let kind = HintKind::Lookup;
    let (hints, steers) = (3, 0);
    let bytes = 0;
    sink.completed(&Completion {
        run: 9,
        kind,
        flags: 0,
        hints,
        steers,
        bytes,
        failed: false,
        queued: 0,
    });
    assert_eq!((seen.0.load(Relaxed), *seen.1.lock().unwrap()), (3, 9));
}
