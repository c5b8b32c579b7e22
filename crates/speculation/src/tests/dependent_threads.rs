//! Tests of dependents and how they learn a resolution.

use std::vec;

use super::{TestHost, owner, session};
use crate::{DEPENDENTS, Host, Id, Owner, Resolution, SLOTS, Session, Status, Table};

fn open(table: &Table, one: &TestHost) -> Id {
    table.open(one.current_thread(), 0, |other| one.is_alive(other)).expect("there is room")
}

fn world() -> (std::boxed::Box<Session>, TestHost, TestHost) {
    let writer = TestHost::new(1);
    let reader = writer.beside(2);
    (session(), writer, reader)
}

#[test]
fn a_dependent_is_poked_until_it_leaves() {
    let (session, writer, reader) = world();
    let table = &session.table;
    let id = open(table, &writer);
    let before = table.changes();
    table.resolve(id, Resolution::Committing);
    table.poke_dependents(id, &writer);
    assert_eq!(
        (table.changes(), writer.take_poked()),
        (before, vec![]),
        "no process depends on it"
    );
    assert!(table.depend(id, reader.current_thread()));
    table.resolve(id, Resolution::Committed);
    assert_eq!((table.changes(), writer.take_poked()), (before + 1, vec![]));
    table.poke_dependents(id, &writer);
    assert_eq!(
        (table.resolution(id), writer.take_poked()),
        (Resolution::Committed, vec![owner(2)])
    );
    table.leave(id, &reader);
    table.poke_dependents(id, &writer);
    assert_eq!(writer.take_poked(), []);
    assert_eq!(table.counts().depended, 1);
}

#[test]
fn dependents_of_one_speculation_are_limited() {
    let (session, writer, _) = world();
    let id = open(&session.table, &writer);
    let depends = |n| session.table.depend(id, owner(n));
    let most = DEPENDENTS as u32;
    assert!((10..10 + most).all(depends) && !depends(10 + most));
    session.table.leave(id, &writer.beside(12));
    assert!(depends(10 + most));
}

/// A slot is reused only once no process depends on its old speculation.
#[test]
fn a_slot_is_not_reused_while_a_process_depends_on_it() {
    let (session, writer, reader) = world();
    let table = &session.table;
    let ids: vec::Vec<Id> = (0..SLOTS).map(|_| open(table, &writer)).collect();
    let take = || table.open(writer.current_thread(), 0, |other| writer.is_alive(other));
    assert!(table.depend(ids[7], reader.current_thread()));
    table.resolve(ids[7], Resolution::RolledBack);
    table.close(ids[7]);
    assert_eq!((take(), table.status(ids[7])), (None, Status::Gone));
    assert_eq!(table.resolution(ids[7]), Resolution::RolledBack, "the resolution stays visible");
    table.leave(ids[7], &reader);
    let again = take().expect("no process depends on it");
    assert_eq!((table.is_free(ids[7]), table.resolution(again)), (true, Resolution::Pending));
}

#[test]
fn dead_owners_and_dependents_do_not_keep_a_slot() {
    let (session, writer, reader) = world();
    let table = &session.table;
    let ids: vec::Vec<Id> = (0..SLOTS).map(|_| open(table, &writer)).collect();
    let take = || table.open(owner(3), 0, |other| writer.is_alive(other));
    assert!(
        table.depend(ids[7], reader.current_thread())
            && table.depend(ids[8], reader.current_thread())
    );
    table.close(ids[7]);
    reader.kill();
    assert!(take().is_some(), "its live owner has closed it");
    assert_eq!(take(), None, "the owner of the other lives");
    writer.kill();
    assert!(take().is_some());
}

/// A right prediction does not tell if one below it was right.
#[test]
fn unresolved_speculations_of_a_dead_owner_are_rolled_back() {
    let (session, writer, reader) = world();
    let table = &session.table;
    let ids = [(); 4].map(|()| open(table, &writer));
    assert!(ids.iter().all(|id| table.depend(*id, reader.current_thread())));
    assert_eq!(table.commit(ids[1]).map(|_| table.finish_settling(ids[1])), Ok(()));
    table.resolve(ids[2], Resolution::Committing);
    table.resolve(ids[3], Resolution::Committed);
    ids.iter().for_each(|id| table.resolve_orphan(*id, &reader));
    let came = || ids.map(|id| table.resolution(id));
    assert_eq!(
        came(),
        [Resolution::Pending, Resolution::Pending, Resolution::Committing, Resolution::Committed],
        "the owner is alive"
    );
    writer.kill();
    let before = table.changes();
    ids.iter().for_each(|id| table.resolve_orphan(*id, &reader));
    assert_eq!(
        came(),
        [
            Resolution::RolledBack,
            Resolution::RolledBack,
            Resolution::Committed,
            Resolution::Committed
        ]
    );
    assert_eq!(table.changes(), before + 3, "dependents must look again");
}

/// A process that was killed while it poked a thread delays that thread's leaving for a while only.
#[test]
fn leaving_waits_for_a_poke_in_progress_but_not_for_ever() {
    struct Dies(TestHost);
    impl Host for Dies {
        fn current_thread(&self) -> Owner {
            self.0.current_thread()
        }
        fn is_alive(&self, owner: Owner) -> bool {
            self.0.is_alive(owner)
        }
        fn pause(&self) {}
        fn poke(&self, _: Owner) {
            panic!("it is killed");
        }
    }
    let (session, writer, reader) = world();
    let table = &session.table;
    let id = open(table, &writer);
    assert!(table.depend(id, reader.current_thread()));
    let dies = std::panic::AssertUnwindSafe(|| table.poke_dependents(id, &Dies(writer.beside(1))));
    assert!(std::panic::catch_unwind(dies).is_err());
    table.leave(id, &reader);
    assert!(reader.pauses.get() > 0);
    table.close(id);
    assert!(table.is_free(id));
}

#[test]
fn a_later_order_lies_above_an_earlier_one() {
    let (session, writer, _) = world();
    let table = &session.table;
    let [one, other] = [(); 2].map(|()| open(table, &writer));
    table.assign_order(other);
    table.assign_order(one);
    assert!(table.is_above(one, other) && !table.is_above(other, one));
    assert!(!table.is_above(one, one));
}

/// A process that executes another program finds its dependency again, and no other process does.
#[test]
fn the_next_program_of_a_process_finds_what_was_left_for_it() {
    let (session, parent, child) = world();
    let table = &session.table;
    let (on, birth) = (open(table, &parent), open(table, &parent));
    assert!(table.expect_child(on, birth));
    table.register_child(on, birth, &child);
    assert_eq!(table.left_behind(birth, &child), None, "nothing was left yet");
    table.leave_behind(birth, on, 7);
    assert_eq!(table.left_behind(birth, &child), Some((on, 7)));
    assert_eq!(table.left_behind(birth, &parent), None, "it belongs to the child");
    assert_eq!(
        table.left_behind(Id(birth.0 + (1 << 16)), &child),
        None,
        "the id is of another life"
    );
    // A resolution in the middle of the exec is still visible afterwards.
    table.resolve(on, Resolution::RolledBack);
    table.close(on);
    assert_eq!(
        table.left_behind(birth, &child).map(|(on, _)| table.resolution(on)),
        Some(Resolution::RolledBack)
    );
    table.close(birth);
    table.leave(on, &child);
    assert_eq!(table.left_behind(birth, &child), None);
    let again = open(table, &child);
    assert_eq!(table.left_behind(again, &child), None, "a new life starts empty");
}
