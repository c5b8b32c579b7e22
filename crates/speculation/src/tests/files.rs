//! For which files output is held.

use super::session;

#[test]
fn what_is_held_as_often_as_released_is_not_held() {
    let session = session();
    let files = &session.files;
    assert!(!files.any() && !files.has(1, 2));
    files.hold(1, 2);
    files.hold(1, 2);
    assert!(files.any() && files.has(1, 2) && !files.has(2, 1), "only that one");
    files.release(1, 2);
    assert!(files.has(1, 2), "once more than it was released");
    files.release(1, 2);
    assert!(!files.any() && !files.has(1, 2));
}
