//! Checkpoints that several speculations share, and bounds (section 5.2).

use super::*;

#[test]
fn speculations_share_a_checkpoint_while_it_is_young() {
    let mut host = host();
    let (one, first) = host.create(P);
    host.after(499);
    let told = host.tracker.create(P, Effect::ReadOnly, Moment::at(host.now)).expect("allowed");
    assert_eq!(told.back, Return::Shared(first));
    assert_eq!(told.after, [one]);
    host.after(1);
    let refused = host.tracker.create(P, Effect::ReadOnly, Moment::at(host.now));
    assert_eq!(refused, Err(Refused::NeedsCheckpoint(P)));
    let (three, second) = host.create(P);
    assert_ne!(second, first);
    assert_eq!(host.fail(three), [Action::RollBack(P, second)]);
    assert_eq!(host.depends(P), [one, told.spec]);
}

#[test]
fn who_shares_a_checkpoint_fails_together() {
    let mut host = host();
    let (one, shared) = host.create(P);
    let (two, same) = host.create(P);
    assert_eq!(shared, same);
    let forgotten = Action::Forget(one);
    assert_eq!(host.fail(two), [forgotten, Action::RollBack(P, shared), Action::Wake(P)]);
    assert_eq!(host.tracker.commit(one), Err(Refused::Resolved(one)));
    assert_eq!(host.tracker.open(), 0);
}

#[test]
fn a_shared_checkpoint_is_kept_until_nobody_needs_it() {
    let mut host = host();
    let (one, shared) = host.create(P);
    let (two, _) = host.create(P);
    assert_eq!(host.commit(one), []);
    assert_eq!(host.commit(two), [Action::DiscardCheckpoint(P, shared), Action::Wake(P)]);
}

/// What may lie between two speculations that share a checkpoint.
#[test]
fn what_others_could_see_ends_the_sharing() {
    type Act = fn(&mut Host);
    let between: [(&str, bool, Act); 10] = [
        ("nothing", true, |_| {}),
        ("P looks at a file", true, |host| _ = host.observe(P, FILE)),
        ("P puts something out", true, |host| _ = host.tracker.output(P, HeldId(1))),
        ("P looks at what Q has changed", true, |host| {
            host.create(Q);
            host.change(Q, FILE);
            host.observe(P, FILE);
        }),
        ("Q changes what P has looked at", true, |host| _ = host.change(Q, FILE)),
        ("P changes a file", false, |host| _ = host.change(P, FILE)),
        ("P makes a file", false, |host| {
            let access = Access { makes: &[(PIPE, UndoId(1))], ..Access::default() };
            host.tell(|t, now| t.access(P, access, now));
        }),
        ("P forks", false, |host| _ = host.tracker.fork(P, R)),
        ("P waits", false, |host| _ = host.wait(P, R)),
        ("Q looks at P", false, |host| _ = host.observe(Q, P)),
    ];
    for (what, shares, act) in between {
        let mut host = host();
        let (_, first) = host.create(P);
        act(&mut host);
        let (_, second) = host.create(P);
        assert_eq!(first == second, shares, "{what}");
    }
}

#[test]
fn what_changes_something_elsewhere_is_not_shared() {
    let mut host = host();
    let moment = Moment::at(host.now);
    let mkdir = host.tracker.create(P, Effect::Changes, moment.with(CheckpointId(1)));
    assert_eq!(mkdir.map(|created| created.back), Ok(Return::Own(CheckpointId(1))));
    let next = host.tracker.create(P, Effect::ReadOnly, moment);
    assert_eq!(next, Err(Refused::NeedsCheckpoint(P)));
    host.create(Q);
    host.tracker.changed(Q);
    let next = host.tracker.create(Q, Effect::ReadOnly, moment);
    assert_eq!(next, Err(Refused::NeedsCheckpoint(Q)));
}

/// After a process was taken back, it is where it was when the checkpoint was taken.
#[test]
fn what_was_taken_back_does_not_end_the_sharing() {
    let mut host = host();
    let (_, first) = host.create(P);
    let moment = Moment::at(host.now);
    let two = host.tracker.create(P, Effect::ReadOnly, moment.with(CheckpointId(99)));
    host.change(P, FILE);
    host.fail(two.expect("allowed").spec);
    assert_eq!(host.create(P).1, first);
}

#[test]
fn so_many_speculations_are_open_at_most() {
    let limits = Limits { open: 3, ..Limits::default() };
    let mut host = Host { tracker: Tracker::new(limits), ..host() };
    let (one, _) = host.create(P);
    host.create(Q);
    host.create(P);
    let moment = Moment::at(host.now);
    let refused = host.tracker.create(R, Effect::ReadOnly, moment.with(CheckpointId(50)));
    assert_eq!(refused, Err(Refused::TooMany(3)));
    assert!(!host.tracker.is_speculative(R));
    host.commit(one);
    host.create(R);
    assert_eq!(Limits::default().open, 2_000);
}

#[test]
#[should_panic(expected = "was taken long ago")]
fn a_checkpoint_is_not_used_twice() {
    let mut host = host();
    let (_, first) = host.create(P);
    let moment = Moment::at(host.now).with(first);
    _ = host.tracker.create(P, Effect::ReadOnly, moment);
}
