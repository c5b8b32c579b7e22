//! Test of the files for which output is held.

use super::session;

#[test]
fn what_is_held_as_often_as_released_is_not_held() {
    let session = session();
    let files = &session.files;
    assert!(!files.any_held() && !files.may_be_held(1, 2));
    files.hold(1, 2);
    files.hold(1, 2);
    assert!(
        files.any_held() && files.may_be_held(1, 2) && !files.may_be_held(2, 1),
        "only that one"
    );
    files.release(1, 2);
    assert!(files.may_be_held(1, 2), "once more than it was released");
    files.release(1, 2);
    assert!(!files.any_held() && !files.may_be_held(1, 2));
}
