//! Effects outside of files: a try refuses them, and leaves what every program uses.

use runahead_tests::programs::{Link, program};
use runahead_tests::{End, available, installed, runahead};

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

/// Netlink lists interfaces, and changes addresses and routes with CAP_NET_ADMIN. That is given up.
#[test]
fn netlink_changes_nothing_without_network() {
    if available(installed("gcc")).is_none() {
        return;
    }
    let place = Place::filled("netlink");
    let path = program("outside_effects", Link::Dynamic);
    let path = path.to_str().expect("a plain path");
    let direct = place.run(&[path, "a"]).text();
    let refused = ["-q", "--network", "refuse", "--"];
    let tried = place.tried(&[&refused[..], &[path, "a"]].concat());
    let program = runahead().to_str().expect("a plain path");
    let around = ["-q", "--", program, "try"];
    let nested = place.tried(&[&around[..], &refused, &[path, "a"]].concat());
    // SAFETY: reads a number of this process.
    let is_root = unsafe { libc::geteuid() } == 0;
    assert!(!is_root || direct.contains("remove a neighbour: EINVAL\n"), "{direct}");
    for outcome in [tried, nested] {
        let text = outcome.text();
        assert!(text.contains("netlink: 0\nnetlink of audits: "), "{outcome:?}");
        assert!(!is_root || text.contains("netlink of audits: EACCES\n"), "{outcome:?}");
        assert!(text.contains("list interfaces: 0\nremove a neighbour: EPERM\n"), "{outcome:?}");
    }
}
