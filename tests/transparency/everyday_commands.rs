//! Unmodified programs on a cold, slow disk: the same output, end, and files.

use std::path::PathBuf;

use runahead_tests::{End, available, fixture, installed, programs, scratch};

/// Runs each script both ways; none may fail in a way that shows nothing.
fn same(scripts: &[&str]) {
    let Some(fixture) = available(fixture()) else { return };
    for script in scripts {
        // With `exec` the program itself is the target, and not the shell.
        let simple = !script.contains(['|', ';', '&']);
        let line = if simple { format!("exec {script}") } else { (*script).to_owned() };
        let case = fixture.script(&line);
        let pair = case.compare();
        let native = &pair.stats["native"];
        assert!(native.is_null(), "{script} ran natively: {native}");
        assert_ne!(pair.outcome.end, End::Exit(127), "{script}: {:?}", pair.outcome);
    }
}

#[test]
fn search_commands_run_as_natively() {
    same(&[
        "grep -c needle src/d0/f1.c src/d0/f2.c src/d1/f3.c src/d4/f9.c odd/empty nothing",
        "grep -r needle .",
        "grep -rl straw_3 src",
        "grep -rn --binary-files=without-match -e 'needle' odd",
        "grep -F x big",
        "find . -type f -exec grep -l needle {} +",
    ]);
}

#[test]
fn listing_commands_run_as_natively() {
    same(&[
        "find . -size +2k",
        "find . -newer odd/hard -type f",
        "find odd -ls",
        "find -L . -name 'f1*.c' -printf '%p %s %m %n\\n'",
        "du -a .",
        "du -s --apparent-size src odd",
        "ls -lR .",
        "ls -laiR --time-style=full-iso odd",
        "stat odd/* big",
        "tree . || true",
    ]);
}

#[test]
fn reading_commands_run_as_natively() {
    same(&[
        "cat odd/hard odd/empty odd/link odd/dangling odd",
        "cat many/00 many/01 many/02 many/03 big",
        "wc -lwc src/d0/f1.c src/d1/f5.c many/63 odd/holes",
        "md5sum many/10 many/11 many/12 many/13 many/14 data",
        "sha256sum big odd/holes",
        "tail -c 1000 big",
        "tail -n 3 src/d3/f7.c",
        "head -c 70000 data",
        "od -A d -t x1 -j 1048570 odd/holes",
        "dd if=big bs=5000 skip=17 count=50 status=none",
        "dd if=data of=$W/out bs=1k skip=3 seek=2 count=9 conv=notrunc status=none",
        "cmp big data",
        "sort src/d0/f1.c src/d1/f2.c src/d3/f3.c",
        "strings -n 8 data",
        "file odd/holes odd/link odd/empty src/d0/f0.c",
    ]);
}

#[test]
fn copying_and_packing_commands_run_as_natively() {
    same(&[
        "cp -a odd src $W/",
        "cp --sparse=always odd/holes $W/holes",
        "cp -rL src/d0 $W/copy",
        "tar cf $W/out.tar --sort=name src odd",
        "tar cf - --sort=name src odd | md5sum",
        "tar czf $W/out.tgz --sort=name --mtime=@0 odd",
        "mkdir $W/x && tar cf - src/d3 | tar xf - -C $W/x",
        "gzip -nc data > $W/data.gz",
        "xz -T1 -0 -c data > $W/data.xz",
        "gzip -nc data | gzip -dc | cmp - data",
        "split -b 100000 data $W/part.",
        "install -m 751 src/d0/f1.c $W/installed",
        "mv odd/none $W/ || true",
    ]);
    if available(installed("rsync")).is_some() {
        same(&["rsync -a --no-times src/d0 odd $W/"]);
    }
}

#[test]
fn comparing_commands_run_as_natively() {
    same(&[
        "diff -r src/d0 src/d1",
        "diff -rq src odd",
        "cp -r src/d0 $W/d0; diff -r src/d0 $W/d0",
        "cmp data big; echo $?",
    ]);
}

#[test]
fn shells_run_as_natively() {
    same(&[
        "for f in src/d0/*; do read -r line < $f; echo \"$line\"; done",
        "cat src/*/*.c | tr a-z A-Z | sort | uniq | wc -l",
        "find src -name 'f1*.c' -print0 | sort -z | xargs -0 -P4 -n5 wc -l | sort",
        "find src/d0 -type f -exec md5sum {} \\;",
        "cat many/* > /dev/full; echo $?",
        "(cat data; exit 5); echo $?",
        "exec 3< data; dd bs=10 count=3 <&3 status=none; dd bs=7 count=2 <&3 status=none | od -c",
        "while read -r a b; do echo \"$b\"; done < src/d0/f0.c | tail -n 2",
        "cat missing src/d0/f0.c | wc -l",
        "set -e; cat src/d0/f0.c > $W/a; cat src/d0/f1.c >> $W/a; ls -l $W/a | cut -c1-10",
    ]);
}

#[test]
fn interpreters_run_as_natively() {
    let Some(fixture) = available(fixture()) else { return };
    fixture.change(|dir| {
        std::fs::create_dir_all(dir.join("py/package")).expect("room");
        std::fs::write(dir.join("py/package/__init__.py"), "from . import deep\n").expect("room");
        std::fs::write(dir.join("py/package/deep.py"), "import json, os\nVALUE = 41 + 1\n").expect("room");
        let main = "import sys, os, package, email.message, decimal\nprint(package.deep.VALUE)\n\
                    for r, d, f in sorted(os.walk('src')):\n    for n in sorted(f):\n        \
                    p = os.path.join(r, n)\n        print(p, len(open(p).read()), os.stat(p).st_size)\n\
                    sys.exit(3)\n";
        std::fs::write(dir.join("py/main.py"), main).expect("room");
    });
    drop(fixture);
    same(&[
        "/usr/bin/python3 -B py/main.py",
        "/usr/bin/python3 -B -c 'import subprocess; print(subprocess.run([\"cat\", \"src/d0/f0.c\"], capture_output=True))'",
        "perl -ne 'print if /needle/' src/d0/f0.c src/d1/f1.c src/d3/f2.c",
        "perl -e 'for (glob q(src/*/*)) { print \"$_ \", -s $_, \"\\n\" }'",
        "awk '/needle/ {n++} END {print n}' src/d0/f0.c src/d1/f9.c",
        "sed -n 's/needle/found/p' src/d3/f2.c src/d4/f3.c",
    ]);
    if available(installed("sqlite3")).is_some() {
        same(&[
            "sqlite3 $W/db 'create table t(a); insert into t values(1),(2); select sum(a) from t'",
            "cp data $W/x; sqlite3 $W/x 'select 1 from nothing' || true",
        ]);
    }
}

#[test]
fn compilers_run_as_natively() {
    let Some(fixture) = available(fixture()) else { return };
    fixture.change(|dir| {
        std::fs::copy(programs::source("compiled_source"), dir.join("compiled.c")).expect("room");
        let makefile =
            "all: a b c\na b c:\n\tcat src/d0/f1.c | md5sum > $(W)/$@\n\t@echo made $@\n";
        std::fs::write(dir.join("Makefile"), makefile).expect("room");
    });
    drop(fixture);
    same(&[
        "gcc -c -o $W/out.o compiled.c",
        "gcc -o $W/out compiled.c && $W/out",
        "make -s -j2 all | sort",
        "cpp compiled.c | md5sum",
    ]);
}

#[test]
fn version_control_runs_as_natively() {
    let Some(fixture) = available(fixture()) else { return };
    fixture.change(|dir| {
        let script = "rm -rf repo; mkdir repo; cp -r src repo/; cd repo; git init -q .; \
            git -c user.name=n -c user.email=e add .; \
            git -c user.name=n -c user.email=e commit -qm one; echo more >> src/d0/f0.c; \
            git -c user.name=n -c user.email=e commit -qam two; echo changed > src/d1/f1.c; \
            rm src/d0/f3.c; echo new > new";
        let run = runahead_tests::Run::new(["sh", "-c", script]).dir(dir);
        assert_eq!(run.run().end, End::Exit(0));
    });
    drop(fixture);
    same(&[
        "git -C repo --no-optional-locks -c core.preloadIndex=false status --porcelain",
        "git -C repo --no-optional-locks status",
        "git -C repo log --stat",
        "git -C repo grep -n needle_3",
        "git -C repo diff",
        "git -C repo show HEAD:src/d0/f0.c",
        "git -C repo ls-files -s",
        "git -C repo fsck",
        "git clone -q repo $W/clone 2>&1; ls $W/clone; git -C $W/clone log | md5sum; rm -rf $W/clone",
    ]);
}

/// Path of a `go` command: in `PATH`, or where Go's archive or Debian's package puts it.
fn go_command() -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/local/go/bin", "/usr/lib/go/bin"].map(PathBuf::from);
    let mut commands = std::env::split_paths(&path).chain(usual).map(|dir| dir.join("go"));
    commands.find(|go| go.is_file()).ok_or_else(|| "go is not installed".to_owned())
}

#[test]
fn go_programs_run_as_natively() {
    let Some(go) = available(go_command()) else { return };
    let Some(fixture) = available(fixture()) else { return };
    let walker = scratch().join("walker");
    let built = std::process::Command::new(go)
        .args(["build", "-o"])
        .arg(&walker)
        .arg(programs::source("tree_walker").with_extension("go"))
        .env("CGO_ENABLED", "0")
        .env("GO111MODULE", "off")
        .status();
    assert!(built.expect("go is installed").success());
    for _ in 0..3 {
        let pair = fixture.case(&[walker.to_str().expect("a plain path"), "."]).compare();
        assert!(pair.outcome.text().contains("from a child\nexit status 3"));
    }
}

#[test]
fn programs_with_a_sanitizer_run_as_natively() {
    let Some(fixture) = available(fixture()) else { return };
    let path = programs::compile("file_calls", &["-fsanitize=address"]);
    let path = path.to_str().expect("a plain path");
    for what in ["directories", "walk", "transfers"] {
        fixture.case(&[path, what]).compare();
    }
}

#[test]
fn commands_of_ordinary_users_run_as_natively() {
    let Some(fixture) = available(fixture()) else { return };
    let Some(()) = available(installed("setpriv")) else { return };
    // The user's rights are in force before the command starts: what it may not read it may not
    // read with us either.
    let plain = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(scratch(), mode).expect("the scratch directory is ours");
    let ours = runahead_tests::runahead().to_str().expect("a plain path");
    for command in [
        &["grep", "-r", "needle", "."] as &[&str],
        &["cat", "odd/secret", "odd/hard", "many/01"],
        &["find", ".", "-size", "+1"],
        &["du", "-s", "."],
        &["md5sum", "data", "big", "odd/secret"],
    ] {
        fixture.reset();
        let without = fixture.run(&[&plain, command].concat()).run();
        fixture.reset();
        let middle = [ours, "run", "--no-learn", "--require", "--"];
        let with = fixture.run(&[&plain as &[&str], &middle, command].concat()).run();
        assert_eq!(with, without, "{command:?}");
    }
}

#[test]
fn commands_on_a_slow_share_run_as_natively() {
    use runahead_testbed::{Share, ShareOptions};
    let probe = Share::probe().map_err(|missing| missing.to_string());
    let (Some(()), Some(fixture)) = (available(probe), available(fixture())) else { return };
    let [source, dir] = ["share-source", "share"].map(|name| scratch().join(name));
    for dir in [&source, &dir] {
        std::fs::create_dir(dir).expect("the scratch directory is ours");
    }
    runahead_tests::tree::populate(&source).expect("room");
    let options =
        ShareOptions::new(&source, &dir).parallel(std::time::Duration::from_millis(2), 64);
    let share = Share::up(&options).expect("a share comes up");
    for script in [
        "exec grep -rc needle .",
        "exec find . -size +2",
        "exec ls -lR .",
        "exec md5sum many/* data big odd/holes",
        "tar cf - --sort=name . | md5sum",
        "exec cp -r src odd $W/",
        "cat src/d0/* | wc; cat odd/* 2>&1 | wc",
    ] {
        let run = fixture.run(&["sh", "-c", script]).dir(&dir);
        let once = |run: &runahead_tests::Run| {
            fixture.reset();
            share.make_cold().expect("the share's server answers");
            (run.run(), runahead_tests::tree::snapshot(fixture.work()))
        };
        let plain = once(&run);
        let ahead = once(&run.ahead(&["--require"]));
        assert!(ahead == plain, "{run}: {plain:?} {ahead:?}");
    }
}
