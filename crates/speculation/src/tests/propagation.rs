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
    let (second, q2) = host.change(Q, FILE);
    assert!(q2.is_some_and(|q2| q2 != q), "it could not share one that it changed nothing after");
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
            Action::Settled(FILE),
            Action::Wake(P),
        ]
    );
    assert_eq!(host.depends(Q), [two], "what came before is kept");
    assert_eq!(host.commit(two), [Action::DiscardCheckpoint(Q, q), Action::Wake(Q)]);
    assert_eq!(host.tracker.speculative(), 0);
}
