//! A try changes nothing outside, also where the agent is absent or lets writes through.

use std::collections::BTreeMap;
use std::process::Command;

use runahead_tests::{End, available, installed};

use crate::try_directory::{Place, untouched};

/// A file that a try has removed and holds open still exists in the lower tree.
#[test]
fn removed_files_keep_their_permissions() {
    if available(installed("python3")).is_none() {
        return;
    }
    let place = Place::filled("gone");
    let before = untouched(&place.work);
    let program = "import os; f = os.open('a', os.O_RDONLY); g = os.open('d0/b', os.O_RDONLY); os.unlink('a')\n\
                   os.rename('d0', 'x'); os.fchmod(f, 0o600); os.utime(f, (5, 5)); os.fchmod(g, 0o640); print(oct(os.stat('x/b').st_mode))";
    let outcome = place.tried(&["-q", "--", "python3", "-I", "-S", "-B", "-c", program]);
    assert_eq!(outcome.end, End::Exit(0), "{outcome:?}");
    assert_eq!(before, untouched(&place.work));
}

/// The kernel denies writes that the agent, by a planted bug, lets through.
#[test]
fn the_kernel_denies_writes_past_the_agent() {
    let place = Place::filled("planted");
    let before = untouched(&place.work);
    let script = "echo x > a; echo x > new; true > d0/b; echo x >> d1/l; cat a; ls";
    let outcome = place.tried(&["-q", "--plant", "writes", "--", "/bin/sh", "-c", script]);
    assert_eq!(outcome.complaints().matches("Permission denied").count(), 4, "{outcome:?}");
    assert_eq!(outcome.text(), "one\na\nd0\nd1\nd2\nl\n");
    assert_eq!(before, untouched(&place.work));
    // Without the kernel's part the same would be seen.
    let options =
        ["-q", "--plant", "writes", "--plant", "unconfined", "--", "/bin/sh", "-c", script];
    place.tried(&options);
    assert_ne!(before, untouched(&place.work), "this test can fail");
}

/// A program without the agent in it, all the same confined.
#[test]
fn a_process_without_agent_changes_nothing() {
    let place = Place::filled("unfollowed");
    let before = untouched(&place.work);
    let script = "RUNAHEAD=0 /bin/sh -c 'echo x > a; rm d0/b; mv d1 x; mkdir y; chmod 600 a; touch -d 2004-04-04 a; chown $(id -u) a; ln a z; \
                  truncate -s 0 a; setfattr -n user.x -v y a 2>&1 || echo no; cat a'";
    let outcome = place.shell(script);
    assert!(outcome.text().contains("one\n"), "{outcome:?}");
    assert_eq!(before, untouched(&place.work), "{outcome:?}");
}

#[test]
fn signals_and_sockets_stay_inside() {
    let place = Place::filled("inside");
    let mut outside = Command::new("sleep").arg("60").spawn().expect("it starts");
    let script = format!(
        "kill -TERM {} && echo killed; sleep 60 & kill $! && echo ours; wait",
        outside.id()
    );
    let outcome = place.shell(&script);
    assert!(outcome.text().contains("ours") && !outcome.text().contains("killed"), "{outcome:?}");
    assert!(outside.try_wait().expect("it is ours").is_none(), "it has not ended");
    outside.kill().expect("it is ours");
    outside.wait().expect("it is ours");
    if available(installed("python3")).is_none() {
        return;
    }
    let program = "import socket, threading\n\
                   for family in (socket.AF_INET, socket.AF_INET6):\n\
                   \x20try: socket.socket(family); print('open')\n\
                   \x20except OSError as e: print(e.errno)\n\
                   s = socket.socket(socket.AF_UNIX); s.bind('sock'); s.listen(1)\n\
                   c = socket.socket(socket.AF_UNIX); c.connect('sock'); c.send(b'x'); print(s.accept()[0].recv(1))\n";
    let python = ["-q", "--network", "refuse", "--", "python3", "-I", "-S", "-B", "-c", program];
    let outcome = place.tried(&python);
    assert_eq!(outcome.text(), "13\n13\nb'x'\n", "{outcome:?}");
    assert!(!place.work.join("sock").exists());
    assert_eq!(
        place.tried(&["commit"]).end,
        End::Exit(0),
        "a socket without its owner is committed"
    );
}

/// A message needs no connection to reach another program's socket.
#[test]
fn messages_to_sockets_outside_are_refused_with_the_network() {
    if available(installed("python3")).is_none() {
        return;
    }
    let place = Place::filled("outside-messages");
    let outside = std::os::unix::net::UnixDatagram::bind(place.work.join("outside"));
    let outside = outside.expect("it is ours");
    outside.set_nonblocking(true).expect("it is ours");
    let program = "import socket\n\
                   new = lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n\
                   for send in (lambda: new().sendto(b'x', 'outside'), lambda: new().sendmsg([b'x'], [], 0, 'outside')):\n\
                   \x20try: print(send())\n\
                   \x20except OSError as e: print('errno', e.errno)\n";
    for (network, said) in [("refuse", "errno 13\nerrno 13\n"), ("allow", "1\n1\n")] {
        let python = ["--network", network, "--", "python3", "-I", "-S", "-B", "-c", program];
        let outcome = place.tried(&[&["-q"][..], &python].concat());
        assert_eq!(outcome.text(), said, "{network}: {outcome:?}");
        let arrived = outside.recv(&mut [0; 9]).is_ok();
        assert_eq!(arrived, network == "allow", "{network}");
    }
}

/// Every call that the kernel's headers know is in the table of calls.
#[test]
fn the_table_has_every_call() {
    let Some(()) = available(installed("gcc")) else { return };
    let table: BTreeMap<i64, &str> = runahead_abi::overlay::try_calls::CALLS
        .iter()
        .map(|call| (i64::from(call.0), call.1))
        .collect();
    for (number, name) in runahead_tests::names_of_calls() {
        assert_eq!(table.get(&number).copied(), Some(name.as_str()), "call {number}");
    }
}
