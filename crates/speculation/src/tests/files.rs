//! Tests of the files for which output is held, and of those that are mapped.

use super::session;

#[test]
fn a_file_is_held_until_each_hold_is_released() {
    let session = session();
    let files = &session.files;
    assert!(!files.any_held() && !files.may_be_held(1, 2));
    files.hold(1, 2);
    files.hold(1, 2);
    assert!(
        files.any_held() && files.may_be_held(1, 2) && !files.may_be_held(2, 1),
        "only this file"
    );
    files.release(1, 2);
    assert!(files.may_be_held(1, 2), "held once more than released");
    files.release(1, 2);
    assert!(!files.any_held() && !files.may_be_held(1, 2));
}

#[test]
fn a_mapped_file_is_noted_for_good_and_no_other_is() {
    let session = session();
    let mapped = &session.mapped;
    mapped.note(1, 2);
    mapped.note(1, 2);
    assert!(mapped.may_be_mapped(1, 2));
    let others = (3..1000).filter(|inode| mapped.may_be_mapped(1, *inode)).count();
    assert!(others < 3, "{others} others");
}
