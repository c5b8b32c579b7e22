//! Effects outside of files: a try refuses them, and leaves what every program uses.

use runahead_tests::programs::{Link, program};
use runahead_tests::{End, available, installed};

use crate::try_directory::Place;

/// Lines of `tests/programs/outside_effects.c` that a try answers with an error.
const REFUSED: [(&str, &str); 13] = [
    ("set flags", "ENOTTY"),
    ("set version", "ENOTTY"),
    ("set the version of ext4", "ENOTTY"),
    ("exclusive terminal", "ENOTTY"),
    ("line discipline", "ENOTTY"),
    ("not exclusive", "ENOTTY"),
    ("user namespace", "EPERM"),
    ("host name namespace", "EPERM"),
    ("user namespace by clone3", "ENOSYS"),
    ("adjust the clock", "EPERM"),
    ("adjust a clock", "EPERM"),
    ("messages on the console", "EPERM"),
    ("set label", "ENOTTY"),
];

#[test]
fn effects_outside_of_files_are_refused() {
    if available(installed("gcc")).is_none() {
        return;
    }
    let place = Place::filled("effects");
    let path = program("outside_effects", Link::Dynamic);
    let path = path.to_str().expect("a plain path");
    let (plain, tried) = (place.run(&[path, "a"]), place.tried(&["-q", "--", path, "a"]));
    assert_eq!((plain.end, tried.end), (End::Exit(0), End::Exit(0)), "{tried:?}");
    for (before, after) in plain.text().lines().zip(tried.text().lines()) {
        let (name, _) = before.split_once(": ").expect("a name and a result");
        match REFUSED.iter().find(|refused| refused.0 == name) {
            Some((_, errno)) => assert_eq!(after, format!("{name}: {errno}")),
            None => assert_eq!(before, after),
        }
    }
    assert!(plain.text().contains("exclusive terminal: 0\n"), "this test can fail: {plain:?}");
}

/// A socket of netlink changes addresses and routes with CAP_NET_ADMIN.
#[test]
fn root_gets_no_netlink_without_network() {
    if available(installed("gcc")).is_none() {
        return;
    }
    let place = Place::filled("netlink");
    let path = program("outside_effects", Link::Dynamic);
    let path = path.to_str().expect("a plain path");
    let outcome = place.tried(&["-q", "--network", "refuse", "--", path, "a"]);
    // SAFETY: reads a number of this process.
    let wanted = match unsafe { libc::geteuid() } {
        0 => "netlink: EACCES\n",
        _ => "netlink: 0\n",
    };
    assert!(outcome.text().contains(wanted), "{outcome:?}");
}
