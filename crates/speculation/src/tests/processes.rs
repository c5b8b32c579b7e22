//! Signals, fork, exit and wait (sections 6.7 to 6.9).

use super::*;

#[test]
fn a_child_depends_on_what_its_parent_depended_on() {
    let mut host = host();
    let (one, _) = host.create(P);
    assert_eq!(host.tracker.fork(P, Q), Ok(true));
    let (two, _) = host.create(P);
    assert_eq!(host.depends(Q), [one]);
    assert_eq!(host.depends(P), [one, two]);
    assert_eq!(host.tracker.fork(P, Q), Err(Refused::Exists(Q.into())));
    assert!(host.commit(one).contains(&Action::Wake(Q)));
    assert_eq!(host.tracker.fork(R, ProcessId(1)), Ok(false));
}

#[test]
fn a_child_of_the_wrong_path_is_destroyed_with_all_that_it_did() {
    let mut host = host();
    let (one, p) = host.create(P);
    host.tracker.fork(P, Q).expect("allowed");
    let (two, q) = host.create(Q);
    host.tracker.fork(Q, R).expect("allowed");
    let (undo, _) = host.change(R, FILE);
    assert_eq!(
        host.fail(one),
        [
            Action::Forget(two),
            Action::Undo(FILE.into(), undo),
            Action::Destroy(Q),
            Action::Destroy(R),
            Action::DiscardCheckpoint(Q, q),
            Action::RollBack(P, p),
            Action::Wake(P),
            Action::Settled(FILE),
        ]
    );
    assert_eq!(host.tracker.speculative(), 0);
}

/// A failure of the child's own leaves it, at its checkpoint.
#[test]
fn a_child_goes_back_no_farther_than_it_must() {
    let mut host = host();
    let (one, _) = host.create(P);
    host.tracker.fork(P, Q).expect("allowed");
    let (two, q) = host.create(Q);
    assert_eq!(host.fail(two), [Action::RollBack(Q, q)]);
    assert_eq!(host.depends(Q), [one]);
}

#[test]
fn who_has_exited_stays_until_it_is_certain() {
    let mut host = host();
    assert_eq!(host.tracker.exit(R), Ok(true));
    let (one, p) = host.create(P);
    assert_eq!(host.tracker.exit(P), Ok(false));
    let moment = Moment::at(host.now);
    assert_eq!(host.tracker.exit(P), Err(Refused::Exited(P)));
    assert_eq!(host.tracker.create(P, Effect::ReadOnly, moment), Err(Refused::Exited(P)));
    assert_eq!(host.tracker.output(P, HeldId(1)), Err(Refused::Exited(P)));
    assert_eq!(host.fail(one), [Action::RollBack(P, p), Action::Wake(P)]);
    let (two, p) = host.create(P);
    assert_eq!(host.tracker.exit(P), Ok(false));
    assert_eq!(host.commit(two), [Action::DiscardCheckpoint(P, p), Action::MayGo(P)]);
}

#[test]
fn who_waits_for_a_child_comes_to_depend_on_how_it_did() {
    let mut host = host();
    let (one, q) = host.create(Q);
    let moment = Moment::at(host.now);
    let early = host.tracker.wait(P, Q, UndoId(77), moment);
    assert_eq!(early, Err(Refused::Alive(Q)));
    host.tracker.exit(Q).expect("allowed");
    let (undo, p) = host.wait(P, Q);
    assert_eq!(host.depends(P), [one]);
    let [p, q] = [Action::RollBack(P, p.expect("it has one")), Action::RollBack(Q, q)];
    let undone = Action::Undo(Q.into(), undo);
    assert_eq!(host.fail(one), [undone, p, q, Action::Wake(P), Action::Wake(Q)]);
}

/// The child has exited for certain; that somebody has waited for it is not.
#[test]
fn a_wait_of_the_wrong_path_is_undone() {
    let mut host = host();
    assert_eq!(host.tracker.exit(Q), Ok(true));
    let (one, p) = host.create(P);
    let (undo, none) = host.wait(P, Q);
    assert_eq!(none, None);
    let undone = Action::Undo(Q.into(), undo);
    let actions = host.fail(one);
    assert_eq!(actions, [undone, Action::RollBack(P, p), Action::Wake(P), Action::MayGo(Q)]);
    let (two, _) = host.create(P);
    let (undo, _) = host.wait(P, Q);
    let actions = host.commit(two);
    assert!(actions.contains(&Action::DiscardUndo(Q.into(), undo)));
    assert!(actions.contains(&Action::MayGo(Q)), "its number is not needed any more");
}

/// A signal from `P` to `Q`: what removes it again.
fn send(host: &mut Host, signal: ObjectId) -> UndoId {
    let undo = UndoId(host.number());
    let access = Access { observes: &[Q.into()], makes: &[(signal, undo)], ..Access::default() };
    host.tell(|t, now| t.access(P, access, now));
    undo
}

#[test]
fn a_signal_depends_on_its_sender_and_its_receiver_on_it_once_delivered() {
    let mut host = host();
    let signal = ObjectId(40);
    let (one, p) = host.create(P);
    let sent = send(&mut host, signal);
    assert_eq!(host.depends(signal), [one]);
    assert!(!host.tracker.is_speculative(Q), "it has not been delivered");
    let (delivered, q) = host.change(Q, signal);
    assert_eq!(host.depends(Q), [one]);
    assert_eq!(
        host.fail(one),
        [
            Action::Undo(signal.into(), delivered),
            Action::Undo(signal.into(), sent),
            Action::RollBack(P, p),
            Action::RollBack(Q, q.expect("it has one")),
            Action::Wake(P),
            Action::Wake(Q),
        ]
    );
}

#[test]
fn a_signal_is_delivered_again_to_who_was_taken_back_to_before_it() {
    let mut host = host();
    let signal = ObjectId(40);
    host.create(P);
    send(&mut host, signal);
    let (two, q) = host.create(Q);
    let (delivered, _) = host.change(Q, signal);
    let actions = host.fail(two);
    assert_eq!(
        actions,
        [Action::Undo(signal.into(), delivered), Action::RollBack(Q, q), Action::Wake(Q)]
    );
    assert!(host.tracker.is_speculative(signal), "it has been sent all the same");
}

#[test]
fn the_host_is_told_when_a_signal_is_certain() {
    let mut host = host();
    let signal = ObjectId(40);
    let (one, _) = host.create(P);
    send(&mut host, signal);
    assert!(host.commit(one).contains(&Action::Settled(signal)));
}

#[test]
fn who_sends_a_signal_has_seen_its_receiver() {
    let mut host = host();
    let (one, _) = host.create(Q);
    send(&mut host, ObjectId(40));
    assert_eq!(host.depends(P), [one]);
    assert_eq!(host.depends(ObjectId(40)), [one]);
}
