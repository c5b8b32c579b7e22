//! Test of the files for which output is held.

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
