//! Who comes to depend on what (section 6.1), and what a resolution comes to.

use super::*;

/// The paper's third figure, from its first part to its last.
#[test]
fn the_example_of_the_paper() {
    let mut host = host();
    let (one, p) = host.create(P);
    let (two, q) = host.create(Q);
    let (first, none) = host.change(P, FILE);
    assert_eq!(none, None, "the file depended on nothing, so the process has no entry for it");
    host.after(500);
    let (second, q2) = host.change(Q, FILE);
    assert!(q2.is_some_and(|q2| q2 != q), "the first is too old to be shared");
    assert_eq!(host.depends(FILE), [one, two]);
    assert_eq!(host.depends(Q), [one, two]);
    assert_eq!(host.depends(P), [one]);
    let (third, none) = host.change(Q, FILE);
    assert_eq!(none, None, "both depend on the same");
    assert_eq!(
        host.fail(one),
        [
            Action::Undo(FILE.into(), third),
            Action::Undo(FILE.into(), second),
            Action::Undo(FILE.into(), first),
            Action::RollBack(P, p),
            Action::RollBack(Q, q2.expect("it was taken")),
            Action::Wake(P),
            Action::Settled(FILE),
        ]
    );
    assert_eq!(host.depends(Q), [two], "what came before is kept");
    assert_eq!(host.commit(two), [Action::DiscardCheckpoint(Q, q), Action::Wake(Q)]);
    assert_eq!(host.tracker.speculative(), 0);
}

#[test]
fn who_looks_at_something_speculative_needs_a_checkpoint_first() {
    let mut host = host();
    let (spec, _) = host.create(P);
    host.change(P, FILE);
    let refused = host.tracker.observe(Q, FILE, Moment::at(host.now));
    assert_eq!(refused, Err(Refused::NeedsCheckpoint(Q)));
    assert!(!host.tracker.is_speculative(Q), "what is refused has not been done");
    assert_eq!(host.tracker.would_learn(Q, &[FILE.into(), P.into()]), [spec]);
    let q = host.observe(Q, FILE).expect("it depends on something now");
    assert_eq!(host.depends(Q), [spec]);
    assert_eq!(host.tracker.would_learn(Q, &[FILE.into()]), []);
    assert_eq!(host.observe(Q, FILE), None);
    assert!(host.fail(spec).contains(&Action::RollBack(Q, q)));
}

#[test]
fn what_depends_on_nothing_is_not_kept_account_of() {
    let mut host = host();
    let access = Access {
        observes: &[PIPE.into()],
        changes: &[(FILE, UndoId(1))],
        makes: &[(ObjectId(9), UndoId(2))],
    };
    let moment = Moment::at(host.now);
    let told = host.tracker.access(P, access, moment.with(CheckpointId(3)));
    assert_eq!(told, Ok(Accessed { back: Return::Unneeded, kept: false }));
    assert_eq!(host.tracker.speculative(), 0);
}

/// To look at something does not make it depend on who looks.
#[test]
fn what_is_looked_at_stays_as_it_is() {
    let mut host = host();
    host.create(P);
    assert_eq!(host.observe(P, FILE), None);
    assert!(!host.tracker.is_speculative(FILE));
}

/// Section 6.5.
#[test]
fn a_pipe_carries_dependencies_both_ways() {
    let mut host = host();
    let (one, _) = host.create(P);
    let (put, _) = host.change(P, PIPE);
    let (two, _) = host.create(Q);
    let (taken, _) = host.change(Q, PIPE);
    assert_eq!(host.depends(PIPE), [one, two]);
    assert_eq!(host.depends(Q), [one, two]);
    host.change(P, PIPE);
    assert_eq!(host.depends(P), [one, two], "the pipe is as full as the reader left it");
    let actions = host.fail(one);
    let undone: Vec<_> = actions.iter().filter(|a| matches!(a, Action::Undo(..))).collect();
    assert_eq!(undone.len(), 3);
    assert_eq!(undone[1..], [&Action::Undo(PIPE.into(), taken), &Action::Undo(PIPE.into(), put)]);
}

/// Section 6.6: the state of both ends has been seen, and one was changed.
#[test]
fn one_operation_on_many_things_is_one() {
    let mut host = host();
    let [source, destination] = [ObjectId(20), ObjectId(21)];
    let (one, _) = host.create(P);
    host.change(P, source);
    let (two, _) = host.create(Q);
    host.change(Q, destination);
    let access =
        Access { observes: &[source.into()], changes: &[(destination, UndoId(99))], makes: &[] };
    let told = host.tell(|t, now| t.access(R, access, now));
    let Return::Own(checkpoint) = told.back else { panic!("{told:?}") };
    assert_eq!(host.depends(R), [one, two]);
    assert_eq!(host.depends(destination), [one, two]);
    assert_eq!(host.depends(source), [one]);
    let actions = host.fail(one);
    assert!(actions.contains(&Action::Undo(destination.into(), UndoId(99))));
    assert!(actions.contains(&Action::RollBack(R, checkpoint)));
    assert_eq!(host.depends(destination), [two]);
    assert!(!host.tracker.is_speculative(R));
}

/// Section 5.2: an entry is done with once it depends on nothing, and all before it are.
#[test]
fn commits_in_another_order_wait_for_the_first() {
    let mut host = host();
    let (one, p) = host.create(P);
    host.change(P, FILE);
    let (two, q) = host.create(P);
    let (undo, _) = host.change(P, FILE);
    assert_eq!(host.commit(two), []);
    assert_eq!(host.depends(P), [one]);
    assert_eq!(host.depends(FILE), [one]);
    let actions = host.commit(one);
    let checkpoints = [p, q].map(|id| Action::DiscardCheckpoint(P, id));
    assert!(checkpoints.iter().all(|discard| actions.contains(discard)));
    assert!(actions.contains(&Action::DiscardUndo(FILE.into(), undo)));
    assert!(actions.ends_with(&[Action::Wake(P), Action::Settled(FILE)]), "{actions:?}");
    assert_eq!(host.tracker.commit(one), Err(Refused::Resolved(one)));
    assert_eq!(host.tracker.fail(two), Err(Refused::Resolved(two)));
}

#[test]
fn what_was_committed_is_taken_back_with_what_it_came_after() {
    let mut host = host();
    let (one, p) = host.create(P);
    host.change(P, FILE);
    let (two, q) = host.create(P);
    host.commit(two);
    let actions = host.fail(one);
    assert!(actions.contains(&Action::RollBack(P, p)));
    assert!(actions.contains(&Action::DiscardCheckpoint(P, q)));
    assert!(!actions.contains(&Action::Forget(two)), "it is committed");
}

#[test]
fn a_later_failure_leaves_what_came_before() {
    let mut host = host();
    let (one, _) = host.create(P);
    let (first, _) = host.change(P, FILE);
    let (two, p) = host.create(P);
    let (second, _) = host.change(P, FILE);
    let actions = host.fail(two);
    assert_eq!(actions, [Action::Undo(FILE.into(), second), Action::RollBack(P, p)]);
    assert_eq!(host.depends(FILE), [one]);
    assert!(host.commit(one).contains(&Action::DiscardUndo(FILE.into(), first)));
}

#[test]
fn what_was_made_ceases_to_exist_and_can_be_made_again() {
    let mut host = host();
    let (one, _) = host.create(P);
    let made = ObjectId(30);
    let access = Access { makes: &[(made, UndoId(1))], ..Access::default() };
    host.tell(|t, now| t.access(P, access, now));
    let again = host.tracker.access(P, access, Moment::at(host.now));
    assert_eq!(again, Err(Refused::Exists(made.into())));
    let actions = host.fail(one);
    assert!(actions.contains(&Action::Undo(made.into(), UndoId(1))));
    assert!(!actions.contains(&Action::Settled(made)));
    host.create(P);
    host.tell(|t, now| t.access(P, access, now));
    assert!(host.tracker.is_speculative(made));
}
