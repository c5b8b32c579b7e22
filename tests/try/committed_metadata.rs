//! Owners, permissions, extended attributes, holes and sockets are committed as the command left
//! them, by root and by a user of several groups.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use runahead_tests::{available, installed, root, runahead, scratch};

/// Program that prints the name, type, permissions, owners, size, number of links, holes,
/// attributes and contents of each entry of the working directory.
const LOOK: &str = "import os, stat\n\
    def look(name):\n\
    \x20s = os.lstat(name); deep = stat.S_ISDIR(s.st_mode)\n\
    \x20a = [(n, os.getxattr(name, n, follow_symlinks=False)) for n in os.listxattr(name, follow_symlinks=False)]\n\
    \x20print(name, oct(s.st_mode), s.st_uid, s.st_gid, deep or (s.st_size, s.st_nlink), s.st_blocks * 512 < s.st_size, sorted(a))\n\
    \x20[look(os.path.join(name, n)) for n in sorted(os.listdir(name))] if deep else None\n\
    \x20print(open(name).read(99)) if stat.S_ISREG(s.st_mode) else None\n\
    look('.')\n";

/// Groups of the ordinary user, besides the primary one.
const GROUPS: &str = "2000,2001";

/// Directory in which the user may work, with a runahead that the user may run.
struct Case {
    directory: std::path::PathBuf,
    state: std::path::PathBuf,
    as_user: bool,
    /// True if root prepares the tree.
    root_prepares: bool,
}

impl Case {
    fn shell(&self, script: &str, user: bool) -> String {
        let words = ["setpriv", "--reuid=65534", "--regid=65534", "--groups", GROUPS];
        let shell = ["sh", "-c", script];
        let words = if user { [&words[..], &shell].concat() } else { shell.to_vec() };
        let done = Command::new(words[0])
            .args(&words[1..])
            .current_dir(self.directory.join("work"))
            .env("XDG_STATE_HOME", &self.state)
            .output()
            .expect("it starts");
        let text = [done.stdout, done.stderr].concat();
        format!("{}{:?}", String::from_utf8_lossy(&text), done.status.code())
    }

    /// Runs `prepare`, then the script directly or as a try that is committed. Returns what it said
    /// and left.
    fn run(&self, prepare: &str, script: &str, tried: bool) -> [String; 2] {
        let clear = "chattr -R -i . 2>/dev/null; rm -rf ../work/* ../work/.??*";
        self.shell(clear, false);
        self.shell(prepare, self.as_user && !self.root_prepares);
        let program = self.directory.join("runahead");
        let said = match tried {
            false => self.shell(script, self.as_user),
            true => {
                let run =
                    format!("{} try -q --commit-if true -- sh -c '{script}'", program.display());
                self.shell(&run, self.as_user)
            }
        };
        [said, self.shell(&format!("python3 -I -c \"{LOOK}\""), false)]
    }
}

/// Runs each script directly and as a try, with the state on two file systems.
fn compare(name: &str, as_user: bool, scripts: &[(&str, &str)]) {
    compare_prepared(name, (as_user, false), scripts);
}

fn compare_prepared(name: &str, (as_user, root_prepares): (bool, bool), scripts: &[(&str, &str)]) {
    let others = scratch().join(format!("metadata-{name}"));
    let memory = Path::new("/dev/shm").join(format!("runahead-{name}-{}", std::process::id()));
    for state in [others.join("state"), memory.clone()] {
        let directory = others.join("tree");
        for made in [&others, &directory, &directory.join("work"), &state] {
            std::fs::create_dir_all(made).expect("the scratch directory is ours");
            let all = std::fs::Permissions::from_mode(0o777);
            std::fs::set_permissions(made, all).expect("it is ours");
        }
        std::fs::copy(runahead(), directory.join("runahead")).expect("it is ours");
        let case = Case { directory, state, as_user, root_prepares };
        for (prepare, script) in scripts {
            let plain = case.run(prepare, script, false);
            let tried = case.run(prepare, script, true);
            assert_eq!(plain, tried, "{prepare}; then {script} (state in {:?})", case.state);
        }
        case.shell("chattr -R -i . 2>/dev/null", false);
    }
    let _ = std::fs::remove_dir_all(memory);
}

/// Scripts for every user.
const SCRIPTS: &[(&str, &str)] = &[
    ("mkdir d", "chmod 0500 d"),
    ("mkdir d", "chmod 0 d"),
    ("mkdir -p a/b/c; echo x >a/b/c/f", "echo y >>a/b/c/f; chmod 500 a/b/c a/b; chmod 0 a"),
    ("mkdir -p a/b; chmod 500 a/b a", "chmod 755 a/b; echo z >a/b/n; chmod 100 a/b"),
    ("mkdir n", "mkdir -m 0511 n/x; mkdir -p n/y/z; echo 1 >n/y/z/1; chmod 100 n/y/z; chmod 0 n/y"),
    ("truncate -s 20M f", "echo x >>f; truncate -s 10M g; echo y >>g"),
    (":", "python3 -I -c \"import socket; socket.socket(socket.AF_UNIX).bind(\\\"s\\\")\""),
    (":", "mkfifo -m 640 p; ln -s nowhere l; echo 1 >x; ln x y; mkdir d; ln x d/z; stat -c %h x"),
    ("echo a >f; mkdir d", "echo b >f; chmod 4711 f; chmod 3775 d"),
];

#[test]
fn permissions_holes_and_sockets_are_committed() {
    if available(installed("python3")).is_some() {
        compare("any", false, SCRIPTS);
    }
}

#[test]
fn a_user_of_several_groups_leaves_the_same() {
    if available(root()).is_none() || available(installed("python3")).is_none() {
        return;
    }
    let groups = [
        ("echo a >f; chgrp 2000 f", "echo b >>f"),
        ("echo a >f; chgrp 2000 f; mkdir d", "chgrp 2001 f d"),
        ("mkdir g; chgrp 2000 g; chmod 2775 g", "echo x >g/n; mkdir g/m"),
        ("ln -s x l", "chgrp -h 2001 l"),
    ];
    compare("groups", true, &[SCRIPTS, &groups].concat());
}

#[test]
fn root_gives_files_away() {
    if available(root()).is_none() || available(installed("python3")).is_none() {
        return;
    }
    let owners = [
        ("echo a >f", "chown 65534:12 f"),
        ("echo a >f", "echo b >>f; chown 65534:12 f"),
        ("mkdir d; ln -s x l", "chown 1234:1234 d; chown -h 1:2 l"),
        ("echo a >f; chown 1:2 f; chmod 6755 f", "chown 3 f"),
    ];
    compare("owners", false, &owners);
}

/// Files, pipes and links that the user may change and cannot replace. New names are names of them.
#[test]
fn what_cannot_be_replaced_is_changed_in_place() {
    let tools = ["chattr", "setpriv", "python3"];
    if available(root()).is_none() || tools.iter().any(|name| available(installed(name)).is_none())
    {
        return;
    }
    let prepare =
        "mkdir d e; echo a >d/f; mkfifo d/p; ln -s loop loop; ln -P loop d/l; chattr +i d";
    let immutable = [
        (prepare, "echo b >>d/f; chmod 600 d/f d/p"),
        (prepare, "ln d/f e/g; ln d/p e/q; ln -P d/l e/l; echo b >>e/g; chmod 640 e/q"),
        (prepare, "chown -h 1:2 loop; chgrp -h 12 d/*"),
    ];
    compare("immutable", false, &immutable);
    let anothers = "mkdir d; echo a | tee f d/g >d/h; mkfifo d/p; chown 65534 d/*; chown 1234 d f; chmod 666 f";
    let of_others = [
        (anothers, "echo b >>f; echo c >d/g; chmod 600 d/h d/p"),
        (anothers, "ln d/g g; echo c >>g"),
        ("echo a >f; chown 1234 f; chmod 666 f; ln f g", "echo b >>g; cat f"),
    ];
    compare_prepared("others", (true, true), &of_others);
}

#[test]
fn attributes_are_committed() {
    let tools = ["setfattr", "setfacl", "python3"];
    if tools.iter().any(|name| available(installed(name)).is_none()) {
        return;
    }
    let attributes = [
        ("mkdir d; echo a >f", "setfattr -n user.a -v 1 d f"),
        (
            "mkdir d; echo a >f; setfattr -n user.b -v 2 d f",
            "setfattr -n user.a -v 1 d; echo b >>f",
        ),
        ("mkdir d", "setfacl -d -m u:65534:rwx d; echo x >d/n; mkdir d/m"),
        (
            "mkdir d; setfacl -d -m u:65534:rwx d; mkdir d/old",
            "umask 077; echo x >d/n; echo x >d/old/n",
        ),
        ("mkdir -p d/in; setfacl -d -m u:65534:rwx d", "echo x >d/in/n; chmod 700 d/in"),
    ];
    compare("attributes", false, &attributes);
}

#[test]
fn attributes_that_are_removed_are_gone() {
    if available(installed("setfattr")).is_none() {
        return;
    }
    let directory = scratch().join("metadata-removed");
    std::fs::create_dir_all(&directory).expect("the scratch directory is ours");
    let script = format!(
        "mkdir -p d && echo a >f && setfattr -n user.a -v 1 d f && {} try -q --state state --commit-if true -- \
         setfattr -x user.a d f; getfattr d f",
        runahead().display()
    );
    let done = Command::new("sh").args(["-c", &script]).current_dir(&directory).output();
    let done = done.expect("it starts");
    assert_eq!((String::from_utf8_lossy(&done.stdout).as_ref(), done.status.code()), ("", Some(0)));
}

/// Files in another user's directory, and those of another user, are written in place: they cannot
/// be replaced there.
#[test]
fn files_that_are_written_in_place_keep_all_their_names() {
    if available(root()).is_none() || available(installed("setpriv")).is_none() {
        return;
    }
    let own = "mkdir shut; echo one > shut/f; chown 65534 shut/f";
    let others = "mkdir d; echo one > d/f; chmod 666 d/f; ln d/f d/g; chmod 777 d";
    compare_prepared(
        "in-place",
        (true, true),
        &[
            (own, "ln shut/f new; echo more >> new"),
            (own, "echo more >> shut/f; ln shut/f new; mkdir n; ln new n/third; chmod 600 n/third"),
            (others, "echo more >> d/f"),
            (others, "echo more >> d/g"),
        ],
    );
}
