//! Output that is held (section 5.3).

use super::*;
use crate::Output;

fn put_out(host: &mut Host, process: ProcessId, held: u64) -> Output {
    host.tracker.output(process, HeldId(held)).expect("it runs")
}

#[test]
fn output_of_who_depends_on_nothing_goes_at_once() {
    let mut host = host();
    assert_eq!(put_out(&mut host, P, 1), Output::Now);
}

/// "Speculator need not wait for the second speculation to succeed or fail."
#[test]
fn output_waits_for_what_came_before_it_only() {
    let mut host = host();
    let (one, first) = host.create(P);
    assert_eq!(put_out(&mut host, P, 1), Output::Held);
    host.change(P, FILE);
    let (two, second) = host.create(P);
    put_out(&mut host, P, 2);
    let actions = host.commit(one);
    assert_eq!(actions[..2], [Action::Release(HeldId(1)), Action::DiscardCheckpoint(P, first)]);
    assert!(!actions.contains(&Action::Release(HeldId(2))));
    let actions = host.fail(two);
    assert_eq!(actions[..2], [Action::Drop(HeldId(2)), Action::RollBack(P, second)]);
}

#[test]
fn output_waits_for_all_before_it() {
    let mut host = host();
    let (one, _) = host.create(P);
    host.change(P, FILE);
    let (two, _) = host.create(P);
    put_out(&mut host, P, 1);
    assert_eq!(host.commit(two), []);
    assert_eq!(host.commit(one)[0], Action::Release(HeldId(1)));
}

/// The exception of section 5.3.
#[test]
fn output_waits_for_what_shares_its_checkpoint() {
    let mut host = host();
    let (one, shared) = host.create(P);
    put_out(&mut host, P, 1);
    let (two, same) = host.create(P);
    put_out(&mut host, P, 2);
    assert_eq!(shared, same);
    assert_eq!(host.commit(one), []);
    let released = [1, 2].map(|held| Action::Release(HeldId(held)));
    assert_eq!(host.commit(two)[..2], released);
}

#[test]
fn output_outlives_its_process() {
    let mut host = host();
    let (one, checkpoint) = host.create(P);
    put_out(&mut host, P, 1);
    assert_eq!(host.tracker.exit(P), Ok(false));
    let discard = Action::DiscardCheckpoint(P, checkpoint);
    assert_eq!(host.commit(one), [Action::Release(HeldId(1)), discard, Action::MayGo(P)]);
}

#[test]
fn output_of_a_child_is_dropped_with_it() {
    let mut host = host();
    let (one, p) = host.create(P);
    assert_eq!(host.tracker.fork(P, Q), Ok(true));
    put_out(&mut host, Q, 1);
    put_out(&mut host, P, 2);
    let dropped = [1, 2].map(|held| Action::Drop(HeldId(held)));
    let [destroyed, back] = [Action::Destroy(Q), Action::RollBack(P, p)];
    assert_eq!(host.fail(one), [dropped[0], dropped[1], destroyed, back, Action::Wake(P)]);
}

/// Nobody sees a consequence before its cause, and the rest does not wait.
#[test]
fn output_is_released_in_the_order_of_causes() {
    let mut host = host();
    let (one, _) = host.create(P);
    put_out(&mut host, P, 1);
    host.change(P, FILE);
    host.observe(Q, FILE);
    put_out(&mut host, Q, 2);
    put_out(&mut host, P, 3);
    let (other, _) = host.create(R);
    put_out(&mut host, R, 4);
    assert_eq!(host.commit(other)[0], Action::Release(HeldId(4)));
    let released = [1, 2, 3].map(|held| Action::Release(HeldId(held)));
    assert_eq!(host.commit(one)[..3], released);
}
