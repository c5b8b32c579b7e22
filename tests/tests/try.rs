//! `runahead try`: a command whose changes are held apart does what it does natively, changes nothing until it is committed, and then
//! what it would have changed; and whatever is to keep it from more is seen to do so.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use runahead_tests::programs::{Link, program};
use runahead_tests::tree::snapshot;
use runahead_tests::{
    End, Outcome, Run, Seed, available, drain, installed, root, runahead, scratch,
};

/// A directory for one test: the tree that commands work in, and where tries are kept.
struct Place {
    work: PathBuf,
    state: PathBuf,
}

/// What is there before anybody has changed anything.
fn fill(work: &Path) {
    for dir in ["d0/d1", "d1/a", "d2"] {
        fs::create_dir_all(work.join(dir)).expect("it is ours");
    }
    let files = [
        ("a", "one\n"),
        ("d0/b", "two\n"),
        ("d0/d1/c", "three\n"),
        ("d1/a/a", "four\n"),
        ("d2/long name", "five\n"),
    ];
    for (name, text) in files {
        fs::write(work.join(name), text).expect("it is ours");
    }
    symlink("d0", work.join("l")).expect("it is ours");
    symlink("../a", work.join("d1/l")).expect("it is ours");
    let status = Command::new("find")
        .arg(work)
        .args(["-exec", "touch", "-h", "-d", "2001-01-01", "{}", "+"])
        .status();
    assert!(status.expect("find is there").success());
}

impl Place {
    fn new(name: &str) -> Self {
        let place = scratch().join(format!("try-{name}"));
        let (work, state) = (place.join("around/work"), place.join("state"));
        fs::create_dir_all(&work).expect("the scratch directory is ours");
        fs::create_dir_all(&state).expect("the scratch directory is ours");
        Place { work, state }
    }

    fn filled(name: &str) -> Self {
        let place = Place::new(name);
        fill(&place.work);
        place
    }

    fn run(&self, argv: &[&str]) -> Outcome {
        Run::new(argv).dir(&self.work).run()
    }

    /// `runahead try` with these options, words and command.
    fn tried(&self, words: &[&str]) -> Outcome {
        let program = runahead().to_str().expect("a plain path");
        let state = self.state.to_str().expect("a plain path");
        let first = [program, "try", "--state", state];
        Run::new(first.iter().chain(words)).dir(&self.work).run()
    }

    /// Runs a script as a try, in which `TRY` is the program that tries.
    fn around(&self, script: &str) -> Outcome {
        let script = format!("TRY={:?}; {script}", runahead());
        self.shell(&script)
    }

    fn shell(&self, script: &str) -> Outcome {
        self.tried(&["-q", "--", "/bin/sh", "-c", script])
    }

    /// Empties the tree, and what was made beside it (by way of a symbolic link, say), and fills it again.
    fn again(&self) {
        let around = self.work.parent().expect("it was made there");
        fs::remove_dir_all(around).expect("it is ours");
        fs::create_dir_all(&self.work).expect("it is ours");
        fill(&self.work);
    }

    /// Commits the only try; whether there was one.
    fn commit(&self) {
        let none = self.tried(&["list"]).stdout.is_empty();
        if !none {
            let outcome = self.tried(&["commit"]);
            assert_eq!(outcome.end, End::Exit(0), "{outcome:?}");
        }
        assert!(self.tried(&["list"]).stdout.is_empty(), "nothing is left");
    }

    /// A try of a script that makes `a`, and goes on after that.
    fn until_a_is_there(&self, script: &str) -> std::process::Child {
        let program = runahead().to_str().expect("a plain path");
        let state = self.state.to_str().expect("a plain path");
        let argv = [program, "try", "-q", "--state", state, "--", "/bin/sh", "-c", script];
        let running = Run::new(argv).dir(&self.work).command().spawn().expect("it starts");
        while !self.tried(&["status"]).text().contains("work/a") {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        running
    }
}

/// All that a program can see of a tree but the times of now: [`snapshot`], and times that were set.
fn seen(work: &Path) -> BTreeMap<PathBuf, String> {
    const NOW: i64 = 1_500_000_000;
    let mut all = snapshot(work);
    for (name, text) in &mut all {
        let Ok(found) = work.join(name).symlink_metadata() else { continue };
        if found.mtime() < NOW {
            text.push_str(&format!(" {}.{}", found.mtime(), found.mtime_nsec()));
        }
    }
    all
}

/// Inodes, sizes and times of all, too: nothing at all has happened to the tree.
fn untouched(work: &Path) -> BTreeMap<PathBuf, (u64, u64, i64, i64, i64)> {
    let about = |path: &Path| {
        let m = path.symlink_metadata().expect("it is there");
        (m.ino(), m.size(), m.mtime(), m.ctime(), m.ctime_nsec())
    };
    snapshot(work).keys().map(|name| (name.clone(), about(&work.join(name)))).collect()
}

fn differences(a: &BTreeMap<PathBuf, String>, b: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let names: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
    let differ = names.into_iter().filter(|name| a.get(*name) != b.get(*name));
    differ
        .map(|name| format!("{}: {:?} and {:?}", name.display(), a.get(name), b.get(name)))
        .collect()
}

/// Runs a command natively and as a try that is then committed; both see and leave the same, and before that nothing happens.
fn twins(place: &Place, argv: &[&str]) {
    let plain = place.run(argv);
    let made = seen(&place.work);
    place.again();
    let before = untouched(&place.work);
    let command = [&["-q", "--"], argv].concat();
    let tried = place.tried(&command);
    assert_eq!(plain, tried, "{argv:?}");
    assert_eq!(before, untouched(&place.work), "{argv:?}: before it was committed");
    place.commit();
    let differences = differences(&made, &seen(&place.work));
    assert!(differences.is_empty(), "{argv:?}: natively, and committed: {differences:#?}");
}

fn sh(place: &Place, script: &str) {
    let argv = ["/bin/sh", "-c", script];
    twins(place, &argv);
    place.again();
    nested_twins(place, &argv);
    place.again();
}

/// The same, as a try inside a try, in which `before` has been done: the inner one is committed, and changes what the outer one has; then that.
fn nested_twins_behind(place: &Place, before: &str, argv: &[&str]) {
    place.run(&["/bin/sh", "-c", before]);
    let plain = place.run(argv);
    let made = seen(&place.work);
    place.again();
    let untouched_before = untouched(&place.work);
    let list =
        "find . | sort; find . -type f ! -perm 000 | sort | xargs -d '\\n' -r cat 2> /dev/null";
    // The status is the inner command's; what the outer one sees is the same before and after.
    let script = format!(
        "{before}; {{ {list}; }} > ../before; \"$TRY\" try -q -- \"$@\"; status=$?; {{ {list}; }} > ../after; cmp ../before ../after || exit 99; \
         rm ../before ../after; if [ -n \"$(\"$TRY\" try list)\" ]; then \"$TRY\" try commit || exit 98; fi; exit $status"
    );
    let program = runahead().to_str().expect("a plain path");
    let environment = format!("TRY={program}");
    let command = ["-q", "--", "env", &environment, "/bin/sh", "-c", &script, "sh"];
    let tried = place.tried(&[&command[..], argv].concat());
    assert_eq!(plain, tried, "{argv:?} behind {before}");
    assert_eq!(untouched_before, untouched(&place.work), "{argv:?}: before it was committed");
    place.commit();
    let differences = differences(&made, &seen(&place.work));
    assert!(differences.is_empty(), "{argv:?} behind {before}: {differences:#?}");
}

fn nested_twins(place: &Place, argv: &[&str]) {
    nested_twins_behind(place, "true", argv);
}

#[test]
fn a_shell_does_the_same() {
    let place = Place::filled("shell");
    let scripts = [
        "echo a > f; cat f; mv f g; ls; rm -r d0; ls -l l/; mkdir d0; ls d0; cat l/b; echo x > l/b; cat d0/b",
        "mv d0 z; ls z; cat z/d1/c; rmdir d2; rm 'd2/long name'; rmdir d2; ls; cd z/d1; pwd; echo hi > ../../top; cat ../../top",
        "sed -i s/o/0/ a d0/b; cat a d0/b; find . -name 'c' -delete; find . | sort; cp -a d1 e; diff -r d1 e; ls -R",
        "tar cf t.tar d0 d1; rm -rf d0 d1; tar xf t.tar; rm t.tar; find . -type f | sort | xargs cat; rm -rf ./* ; ls",
        "touch -d 2002-02-02 a d1; chmod 700 d0; chmod 600 d0/b; stat -c '%n %a %Y' a d0 d1 d0/b; ln a b; echo x >> b; cat a; stat -c %h a",
        "printf '#!/bin/sh\\necho $0 $@; cat $0' > s; chmod +x s; ./s 1 2; cd d1; ../s 3; mkdir -p n/m; cd n/m; pwd; ls ..; ls ../../..; cat ../../../a",
        "cp /bin/echo e; ./e hello; ln -s e k; ./k again; readlink -f k; rm e; ./k; echo $?; umask 077; echo > new; mkdir newd; ls -ld newd new | cut -c1-10",
        "(cd d0 && exec cat b) ; cat < a > c; cat c; exec 3<>d0/b; echo z >&3; cat d0/b; (sleep 0.1; echo later > d2/x) & wait; cat d2/x",
        "echo x > nowhere/file; cat nowhere; rm nowhere; rmdir a; rm d0; mkdir a; mv d0 d0/d1; mv a d0; mv d0 a; cd a; ln d0 x; echo end",
        "ln -s a/ k; ln -s none/ n; ln -s d0/ d; echo x > k; echo x > n; echo x > d; cat k; ls n d; echo x >> d/b; cat d0/b; echo end",
    ];
    scripts.iter().for_each(|script| sh(&place, script));
}

#[test]
fn programs_of_others_do_the_same() {
    let place = Place::filled("programs");
    let git = "export HOME=$PWD GIT_AUTHOR_DATE='2000-01-01 00:00' GIT_COMMITTER_DATE='2000-01-01 00:00' GIT_AUTHOR_NAME=a \
               GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; git init -q; git add .; git commit -qm one; echo x > a; \
               git commit -qam two; git checkout -q HEAD~1; cat a; git stash list; git clone -q . ../clone; cd ../clone; git log \
               --format=%s --all; git fsck; cd ../work; rm -rf .git ../clone";
    let python = "python3 -I -S -B -c \"import os, subprocess, tempfile, shutil, threading\n\
                  print(subprocess.run(['cat', 'b'], cwd='d0', capture_output=True).stdout)\n\
                  try: subprocess.run(['./nope'])\n\
                  except Exception as e: print(e)\n\
                  d = tempfile.mkdtemp(dir='.'); open(d + '/x', 'w').write('1'); os.rename(d, 'moved'); print(os.listdir('moved'))\n\
                  shutil.copytree('d1', 'copy', symlinks=True); shutil.rmtree('d1'); os.chdir('copy'); print(os.getcwd()[-4:])\n\
                  t = [threading.Thread(target=lambda n=n: [open('t%d' % n, 'a').write('x') for _ in range(50)]) for n in range(4)]\n\
                  [x.start() for x in t]; [x.join() for x in t]; print([os.path.getsize('t%d' % n) for n in range(4)])\"";
    let make = "printf 'all: x y\\nx: a\\n\\tcp a x\\ny: x\\n\\tcat x d0/b > y\\n' > Makefile; make -j2 -O | sort; make -q && echo made; touch a; make -q || echo old";
    for (name, script) in [("git", git), ("python3", python), ("make", make)] {
        if available(installed(name)).is_some() {
            sh(&place, script);
        }
    }
}

/// Random steps, each said, on few names (`programs/names.c`).
#[test]
fn random_steps_do_the_same() {
    const RUNS: usize = 25;
    let (place, program) = (Place::filled("random"), program("names", Link::Dynamic));
    let program = program.to_str().expect("a plain path");
    let mut seeds = Seed::new();
    for _ in 0..RUNS {
        let seed = seeds.below(u64::MAX).to_string();
        eprintln!("names {seed} 150");
        twins(&place, &[program, &seed, "150"]);
        place.again();
    }
}

/// The same, some in a try, and some in one inside that.
#[test]
fn random_steps_do_the_same_inside() {
    const RUNS: usize = 25;
    let (place, program) = (Place::filled("random-inside"), program("names", Link::Dynamic));
    let program = program.to_str().expect("a plain path");
    let mut seeds = Seed::new();
    for _ in 0..RUNS {
        let [first, second] = [(); 2].map(|()| seeds.below(u64::MAX).to_string());
        eprintln!("names {first} 60, names {second} 100");
        // (Whoever writes to a named pipe of the real tree is refused, and names of one file of it part.)
        let before = format!(
            "{program:?} {first} 60 > /dev/null 2>&1; find . -type p -delete; find . ! -type d -links +1 > ../more; sort ../more | xargs -d '\\n' -r rm; rm ../more"
        );
        nested_twins_behind(&place, &before, &[program, &second, "100"]);
        place.again();
    }
}

#[test]
fn what_is_undone_leaves_no_trace() {
    let place = Place::filled("undo");
    let before = untouched(&place.work);
    let outcome = place
        .shell("rm -rf d0; mv d1 x; echo y > a; chmod 600 a; touch -d 2003-03-03 d2; mkfifo p; ls");
    assert_eq!((outcome.end, outcome.text().as_str()), (End::Exit(0), "a\nd2\nl\np\nx\n"));
    assert_eq!(place.tried(&["undo"]).end, End::Exit(0));
    assert_eq!(before, untouched(&place.work));
    assert!(fs::read_dir(&place.state).expect("it is there").next().is_none(), "nothing is kept");
}

#[test]
fn what_it_would_change_is_told() {
    let place = Place::filled("told");
    place.shell("echo more >> a; rm -r d0/d1; mkdir n; echo new > n/f; chmod 700 d2; ln -s a k");
    let json = place.tried(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    let changes: Vec<_> = status["changes"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|change| {
            let path =
                change["path"].as_str().expect("a path").rsplit_once("work/").expect("below it").1;
            format!(
                "{} {} {path}",
                change["change"].as_str().unwrap_or("?"),
                change["type"].as_str().unwrap_or("?")
            )
        })
        .collect();
    let expected = [
        "modified file a",
        "deleted directory d0/d1",
        "deleted file d0/d1/c",
        "attributes directory d2",
        "added symlink k",
        "added directory n",
        "added file n/f",
    ];
    assert_eq!(changes, expected);
    assert_eq!(status["try"]["status"], 0);
    let text = place.tried(&["status"]).text();
    assert!(text.contains(" D ") && text.lines().count() == 1 + expected.len(), "{text}");
    let diff = place.tried(&["diff"]).text();
    assert!(
        diff.contains("\n-three\n") && diff.contains("\n+more\n") && diff.contains("\n+new\n"),
        "{diff}"
    );
    let lines: serde_json::Value =
        serde_json::from_slice(&place.tried(&["diff", "--json"]).stdout).expect("JSON");
    assert_eq!(
        (&lines["files"][0]["added"], &lines["files"][0]["removed"]),
        (&1.into(), &0.into()),
        "{lines}"
    );
    assert_eq!(place.tried(&["undo"]).end, End::Exit(0));
}

#[test]
fn what_somebody_else_has_changed_is_not_overwritten() {
    let place = Place::filled("conflict");
    place.shell("echo ours >> a; rm -r d0; echo ours > new; echo fine > other");
    fs::write(place.work.join("a"), "theirs").expect("it is ours");
    fs::write(place.work.join("d0/late"), "theirs").expect("it is ours");
    fs::write(place.work.join("new"), "theirs").expect("it is ours");
    let before = untouched(&place.work);
    let outcome = place.tried(&["commit"]);
    assert_eq!(outcome.end, End::Exit(3), "{outcome:?}");
    for name in ["work/a: it was changed", "d0/late: it was made", "work/new: it was made"] {
        assert!(outcome.complaints().contains(name), "{name}: {outcome:?}");
    }
    assert!(!outcome.complaints().contains("other"), "{outcome:?}");
    assert_eq!(before, untouched(&place.work), "nothing was done");
    assert_eq!(place.tried(&["commit", "--force"]).end, End::Exit(0));
    assert_eq!(fs::read_to_string(place.work.join("a")).expect("it is there"), "one\nours\n");
    assert!(!place.work.join("d0").exists() && place.work.join("other").exists());
}

#[test]
fn a_check_decides() {
    let place = Place::filled("check");
    let status = |check: &str, script: &str| {
        place.tried(&["-q", "--commit-if", check, "--", "/bin/sh", "-c", script]).end
    };
    let text = || fs::read_to_string(place.work.join("a")).expect("it is there");
    assert_eq!(status("grep -q two a", "echo two > a"), End::Exit(0));
    assert_eq!(text(), "two\n");
    assert_eq!(status("echo dirt > a; grep -q no a; exit 4", "echo three > a"), End::Exit(4));
    assert_eq!(status("true", "echo three > a; exit 7"), End::Exit(7));
    assert_eq!(text(), "two\n");
    assert!(place.tried(&["list"]).stdout.is_empty(), "each is decided");
}

#[test]
fn several_tries_start_from_the_same() {
    let place = Place::filled("several");
    for word in ["first", "second"] {
        assert_eq!(
            place.shell(&format!("cat a; echo {word} > a; echo {word} > {word}")).text(),
            "one\n"
        );
    }
    let list = place.tried(&["list"]).text();
    let ids: Vec<_> = list.lines().map(|line| line.split(' ').next().unwrap_or_default()).collect();
    assert_eq!(ids.len(), 2, "{list}");
    assert!(place.tried(&["diff", ids[0]]).text().contains("+first"));
    assert!(place.tried(&["diff"]).text().contains("+second"), "the newest");
    assert_eq!(place.tried(&["commit", ids[1]]).end, End::Exit(0));
    assert_eq!(
        place.tried(&["commit", ids[0]]).end,
        End::Exit(3),
        "the other has changed the same"
    );
    assert_eq!(place.tried(&["undo", ids[0]]).end, End::Exit(0));
}

#[test]
fn what_runs_is_not_decided_yet() {
    let place = Place::filled("running");
    let mut running = place.until_a_is_there("echo x > a; until [ -e b ]; do sleep 0.05; done");
    assert!(place.tried(&["list"]).text().contains("running"));
    for task in ["commit", "undo"] {
        let outcome = place.tried(&[task]);
        assert_eq!(outcome.end, End::Exit(1), "{outcome:?}");
        assert!(outcome.complaints().contains("still running"), "{outcome:?}");
    }
    // It sees what others make meanwhile.
    fs::write(place.work.join("b"), "").expect("it is ours");
    assert!(running.wait().expect("it is ours").success());
    assert_eq!(place.tried(&["undo"]).end, End::Exit(0));
}

/// Without us the next program would see the real tree, and take it for what the try has made of it.
#[test]
fn without_its_supervisor_a_try_ends_at_its_next_program() {
    let place = Place::filled("alone");
    let script = "echo x > a; until [ -e b ]; do :; done; cat a; echo went on";
    let mut running = place.until_a_is_there(script);
    running.kill().expect("it is ours");
    let output = running.stdout.take().map(drain).expect("it is piped");
    running.wait().expect("it is ours");
    fs::write(place.work.join("b"), "").expect("it is ours");
    let said = output.recv_timeout(std::time::Duration::from_secs(10)).expect("all have ended");
    assert!(!String::from_utf8_lossy(&said).contains("one"), "the real file's text");
    assert_eq!(place.tried(&["undo"]).end, End::Exit(0));
    assert_eq!(fs::read_to_string(place.work.join("a")).expect("it is there"), "one\n");
}

#[test]
fn statuses_and_errors() {
    let place = Place::filled("statuses");
    let ended = |words: &[&str]| place.tried(words).end;
    assert_eq!(ended(&["-q", "--", "/bin/sh", "-c", "exit 9"]), End::Exit(9));
    assert_eq!(ended(&["-q", "--", "/bin/sh", "-c", "kill -TERM $$"]), End::Signal(15));
    assert_eq!(ended(&["-q", "--", "no-such-program"]), End::Exit(127));
    assert_eq!(ended(&["-q", "--", "/etc/passwd"]), End::Exit(126));
    assert_eq!(ended(&["--", "true"]), End::Exit(0));
    assert_eq!(ended(&["ls"]), End::Exit(2));
    assert_eq!(ended(&["--network", "hold", "--", "true"]), End::Exit(125));
    assert_eq!(ended(&["status"]), End::Exit(1));
    assert_eq!(ended(&["commit", "x"]), End::Exit(1));
    assert_eq!(place.around("\"$TRY\" try -q -- sh -c 'exit 9'").end, End::Exit(9));
    assert_eq!(place.around("\"$TRY\" try -q -- no-such-program").end, End::Exit(127));
    assert_eq!(place.around("\"$TRY\" try --state /tmp -- true").end, End::Exit(125));
    let unseen = place.around("RUNAHEAD=0 \"$TRY\" try -- true");
    assert_eq!(unseen.end, End::Exit(125));
    assert!(unseen.complaints().contains("without an agent"), "{unseen:?}");
    assert!(place.tried(&["list"]).stdout.is_empty(), "what has changed nothing is not kept");
}

/// The names of all tries, as they are listed.
fn names(place: &Place) -> Vec<String> {
    let list = place.tried(&["list"]).text();
    list.lines().map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn what_is_undone_inside_leaves_what_is_around_it() {
    let place = Place::filled("undone-inside");
    let script = "echo outer > a; echo outer > o; mkdir e; touch -d 2002-02-02 a o e; stat -c '%n %i %s %Y %Z %a %h' a o e d1 d0/b > ../s; \
                  \"$TRY\" try -q -- sh -c 'cat a; rm -r d0 e; echo inner > a; chmod 700 o; mv d1 x; mkfifo p; ls'; \
                  stat -c '%n %i %s %Y %Z %a %h' a o e d1 d0/b | cmp - ../s; rm ../s; cat a; ls; \"$TRY\" try undo; \"$TRY\" try list; ls; cat a";
    let outcome = place.around(script);
    let inner = "outer\na\nd2\nl\no\np\nx\n";
    let outer = ["a", "d0", "d1", "d2", "e", "l", "o"].map(|name| format!("{name}\n")).concat();
    assert_eq!(outcome.text(), format!("{inner}outer\n{outer}{outer}outer\n"), "{outcome:?}");
    place.commit();
    assert_eq!(fs::read_to_string(place.work.join("a")).expect("it is there"), "outer\n");
    assert!(place.work.join("d0/b").exists() && !place.work.join("p").exists());
}

#[test]
fn tries_inside_one_are_decided_from_outside_too() {
    let place = Place::filled("decided");
    place.around("echo 1 > a; for n in one two; do \"$TRY\" try -q -- sh -c \"cat a; echo $n > a; echo > $n\"; done");
    let [outer, one, two] = &names(&place)[..] else { panic!("three: {:?}", names(&place)) };
    assert!(one.starts_with(&format!("{outer}.")) && two.starts_with(&format!("{outer}.")));
    let json = place.tried(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(
        (&status["try"]["id"], &status["try"]["inside"]),
        (&outer.as_str().into(), &serde_json::Value::Null)
    );
    let inside: Vec<_> = status["tries"].as_array().into_iter().flatten().collect();
    assert_eq!(
        inside.iter().map(|one| one["id"].as_str()).collect::<Vec<_>>(),
        [Some(one.as_str()), Some(two)]
    );
    assert!(inside.iter().all(|one| one["inside"] == outer.as_str()), "{status}");
    let refused = place.tried(&["commit"]);
    assert_eq!(refused.end, End::Exit(1));
    assert!(refused.complaints().contains(two.as_str()), "{refused:?}");
    let diff = place.tried(&["diff", one]).text();
    assert!(diff.contains("\n-1\n+one\n"), "against what is around it: {diff}");
    assert_eq!(place.tried(&["commit", one]).end, End::Exit(0));
    let conflict = place.tried(&["commit", two]);
    assert_eq!(conflict.end, End::Exit(3), "{conflict:?}");
    assert_eq!(place.tried(&["undo", two]).end, End::Exit(0));
    assert_eq!(
        fs::read_to_string(place.work.join("a")).expect("it is there"),
        "one\n",
        "of the real tree"
    );
    place.commit();
    assert_eq!(fs::read_to_string(place.work.join("a")).expect("it is there"), "one\n");
    assert!(place.work.join("one").exists() && !place.work.join("two").exists());
}

#[test]
fn tries_are_inside_tries_inside_tries() {
    let place = Place::filled("deep");
    let step = |script: &str, inner: &str| {
        format!("{script}; \"$TRY\" try -q -- sh -c '{inner}' && \"$TRY\" try commit; cat a; ls")
    };
    let third = "echo 3 >> a; rm -r d1; cat a d2/*";
    let second = step("echo 2 >> a; mv d0 x", &third.replace('\'', ""));
    // (Quotes inside quotes.)
    let first = format!(
        "echo 1 >> a; export TRY; cat > ../second <<'END'\n{second}\nEND\n\
                         \"$TRY\" try -q -- sh ../second && \"$TRY\" try commit; cat a; ls; rm ../second"
    );
    let outcome = place.around(&first);
    assert_eq!(outcome.end, End::Exit(0), "{outcome:?}");
    place.commit();
    assert_eq!(
        fs::read_to_string(place.work.join("a")).expect("it is there"),
        "one\n1\n2\n3\n",
        "{outcome:?}"
    );
    assert!(!place.work.join("d1").exists() && place.work.join("x/b").exists());
}

/// Of a process without the agent in it, that knows where the outer try has its changes.
#[test]
fn the_kernel_keeps_what_is_inside_from_what_is_around_it() {
    let place = Place::filled("fence");
    let work = place.work.to_str().expect("a plain path");
    let state = place.state.to_str().expect("a plain path");
    let change = format!(
        "for f in {state}/*/held/upper{work}/a; do echo x >> $f; rm $f; chmod 700 $f; touch -d 2002-02-02 $f; done"
    );
    let all = place.around(&format!("echo outer > a; RUNAHEAD=0 sh -c '{change}'; cat a"));
    assert!(!all.text().contains("outer"), "this test can fail: {all:?}");
    assert_eq!(place.tried(&["undo"]).end, End::Exit(0));
    let inner = format!(
        "echo outer > a; touch -d 2001-01-01 a; \"$TRY\" try -q -- env RUNAHEAD=0 sh -c '{change}'; cat a; stat -c '%a %Y' a"
    );
    let outcome = place.around(&inner);
    assert_eq!(outcome.text(), "outer\n644 978307200\n", "{outcome:?}");
    assert_eq!(
        outcome.complaints().matches("denied").count()
            + outcome.complaints().matches("not permitted").count(),
        4,
        "{outcome:?}"
    );
}

/// One that a try has removed, and has open, is still there in the real tree.
#[test]
fn what_is_gone_keeps_its_permissions() {
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

/// Two sessions cannot trace one process: there is one.
#[test]
fn a_session_inside_a_try_is_not_one() {
    let place = Place::filled("session");
    let outcome = place.around(
        "echo new > a; \"$TRY\" run -- cat a; \"$TRY\" run -- sh -c 'echo more >> a; cat a'",
    );
    assert_eq!(outcome.text(), "new\nnew\nmore\n", "{outcome:?}");
    assert_eq!(fs::read_to_string(place.work.join("a")).expect("it is there"), "one\n");
}

/// With the agent letting writes through, as a bug of its would, the kernel still denies them.
#[test]
fn what_gets_past_the_agent_changes_nothing() {
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
fn a_process_that_is_not_followed_changes_nothing() {
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
    assert_eq!(place.tried(&["commit"]).end, End::Exit(0), "a socket is nobody's any more");
}

#[test]
fn an_ordinary_user_is_told_the_same() {
    if available(root()).is_none() {
        return;
    }
    let place = Place::filled("user");
    fs::set_permissions(scratch(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let program = scratch().join("runahead-of-all");
    fs::copy(runahead(), &program).expect("it can be copied");
    let own = "chown -R 65534:65534 ../.. && chmod 555 d0 && chmod 444 a";
    assert!(
        Command::new("/bin/sh")
            .args(["-c", own])
            .current_dir(&place.work)
            .status()
            .expect("it runs")
            .success()
    );
    let script = "echo x > a; rm d0/b; touch d0/n; echo x >> d0/b; cat d0/b; echo x > /etc/hosts; rm /etc/passwd; chmod 700 /etc; mkdir /usr/x; \
                  cat /etc/shadow; rm -rf d0 2>/dev/null; chmod 755 d0; touch d0/n; rm -r d0; chown 0 a; chgrp 0 a; mv a b; ls; stat -c '%U %a' b d2";
    let setpriv = |command: &[&str]| {
        let first = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
        Run::new(first.iter().chain(command)).dir(&place.work).run()
    };
    let (program, state) = (program.to_str().expect("plain"), place.state.to_str().expect("plain"));
    let tried = setpriv(&[program, "try", "-q", "--state", state, "--", "/bin/sh", "-c", script]);
    assert!(place.work.join("d0/d1/c").exists() && place.work.join("a").exists(), "{tried:?}");
    let plain = setpriv(&["/bin/sh", "-c", script]);
    assert_eq!(plain, tried);
    let made = seen(&place.work);
    assert!(
        Command::new("/bin/sh")
            .args(["-c", "rm -rf ./*"])
            .current_dir(&place.work)
            .status()
            .expect("it runs")
            .success()
    );
    fill(&place.work);
    assert!(
        Command::new("/bin/sh")
            .args(["-c", own])
            .current_dir(&place.work)
            .status()
            .expect("it runs")
            .success()
    );
    let outcome = setpriv(&[program, "try", "--state", state, "undo"]);
    assert_eq!(outcome.end, End::Exit(0), "{outcome:?}");
    let again = setpriv(&[program, "try", "-q", "--state", state, "--", "/bin/sh", "-c", script]);
    assert_eq!(plain, again);
    let outcome = setpriv(&[program, "try", "--state", state, "commit"]);
    assert_eq!(outcome.end, End::Exit(0), "{outcome:?}");
    let differences = differences(&made, &seen(&place.work));
    assert!(differences.is_empty(), "{differences:#?}");
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
