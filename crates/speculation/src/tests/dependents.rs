//! Tests of dependents and how they learn a resolution.

use std::vec;

use super::{One, owner, session};
use crate::{DEPENDENTS, Host, Id, Owner, Resolution, SLOTS, Session, Status, Table};

fn open(table: &Table, one: &One) -> Id {
    table.open(one.current_thread(), 0, |other| one.is_alive(other)).expect("there is room")
}

fn world() -> (std::boxed::Box<Session>, One, One) {
    let writer = One::new(1);
    let reader = writer.beside(2);
    (session(), writer, reader)
}

#[test]
fn who_depends_is_told_until_he_leaves() {
    let (session, writer, reader) = world();
    let table = &session.table;
    let id = open(table, &writer);
    let before = table.changes();
    table.resolve(id, Resolution::Committing);
    table.poke_dependents(id, &writer);
    assert_eq!((table.changes(), writer.poked()), (before, vec![]), "nobody depends on it");
    assert!(table.depend(id, reader.current_thread()));
    table.resolve(id, Resolution::Committed);
    assert_eq!((table.changes(), writer.poked()), (before + 1, vec![]));
    table.poke_dependents(id, &writer);
    assert_eq!((table.resolution(id), writer.poked()), (Resolution::Committed, vec![owner(2)]));
    table.leave(id, &reader);
    table.poke_dependents(id, &writer);
    assert_eq!(writer.poked(), []);
    assert_eq!(table.counts().depended, 1);
}

#[test]
fn no_more_depend_on_one_than_there_is_room_for() {
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
fn a_slot_is_not_used_again_while_somebody_depends_on_it() {
    let (session, writer, reader) = world();
    let table = &session.table;
    let ids: vec::Vec<Id> = (0..SLOTS).map(|_| open(table, &writer)).collect();
    let take = || table.open(writer.current_thread(), 0, |other| writer.is_alive(other));
    assert!(table.depend(ids[7], reader.current_thread()));
    table.resolve(ids[7], Resolution::RolledBack);
    table.close(ids[7]);
    assert_eq!((take(), table.status(ids[7])), (None, Status::Gone));
    assert_eq!(table.resolution(ids[7]), Resolution::RolledBack, "what has come of it can be seen");
    table.leave(ids[7], &reader);
    let again = take().expect("nobody depends on it");
    assert_eq!((table.is_free(ids[7]), table.resolution(again)), (true, Resolution::Pending));
}

#[test]
fn the_dead_do_not_keep_a_slot_whoever_they_were() {
    let (session, writer, reader) = world();
    let table = &session.table;
    let ids: vec::Vec<Id> = (0..SLOTS).map(|_| open(table, &writer)).collect();
    let take = || table.open(owner(3), 0, |other| writer.is_alive(other));
    assert!(
        table.depend(ids[7], reader.current_thread())
            && table.depend(ids[8], reader.current_thread())
    );
    table.close(ids[7]);
    reader.dies();
    assert!(take().is_some(), "its owner has done with it, and is still there");
    assert_eq!(take(), None, "the other is its owner's");
    writer.dies();
    assert!(take().is_some());
}

/// A right prediction does not tell if one below it was right.
#[test]
fn what_the_dead_have_not_said_was_taken_back() {
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
        "he is alive"
    );
    writer.dies();
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
    assert_eq!(table.changes(), before + 3, "whoever depends on them is to look");
}

/// A process that was killed while it poked a thread delays that thread's leaving for a while only.
#[test]
fn who_leaves_waits_for_one_who_tells_him_and_not_for_ever() {
    struct Dies(One);
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
fn what_was_stacked_later_lies_above() {
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
fn what_a_program_leaves_behind_the_next_of_its_process_finds() {
    let (session, parent, child) = world();
    let table = &session.table;
    let (on, birth) = (open(table, &parent), open(table, &parent));
    assert!(table.expect_child(on, birth));
    table.register_child(on, birth, &child);
    assert_eq!(table.left_behind(birth, &child), None, "it has left nothing yet");
    table.leave_behind(birth, on, 7);
    assert_eq!(table.left_behind(birth, &child), Some((on, 7)));
    assert_eq!(table.left_behind(birth, &parent), None, "it is the child's");
    assert_eq!(table.left_behind(Id(birth.0 + (1 << 16)), &child), None, "it is of another life");
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
    assert_eq!(table.left_behind(again, &child), None, "nothing is left of earlier lives");
}
