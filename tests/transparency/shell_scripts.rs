//! Shells: their shadows continue past forks, execs and waits, without any visible effect.

use std::fs;
use std::path::Path;

use runahead_harness::write_program;
use runahead_tests::{End, available, fixture, installed};

/// Programs of the script, each a file of its own, so that each start waits for the disk.
const TOOLS: usize = 12;

/// Puts the tools and what they read below `root`.
fn populate(root: &Path) {
    let dir = root.join("tools");
    fs::create_dir_all(&dir).expect("the fixture's tree is ours");
    let cat = fs::read("/bin/cat").expect("cat is there");
    for n in 0..TOOLS {
        let tool = dir.join(format!("tool{n}"));
        write_program(&tool, &cat, 0o755).expect("the fixture's tree is ours");
        fs::write(dir.join(format!("in{n}")), format!("line {n}\n").repeat(n + 1)).expect("a file");
    }
    let script = dir.join("script");
    write_program(&script, "#!/bin/sh\necho script \"$@\"; exit 3\n", 0o755).expect("a script");
}

/// Runs `script` with each shell both ways, from the directory of the tools.
fn same(script: &str) {
    let Some(fixture) = available(fixture()) else { return };
    fixture.change(populate);
    for shell in ["dash", "bash"] {
        if available(installed(shell)).is_none() {
            continue;
        }
        let script = format!("cd tools; PATH=$PWD:$PATH; {script}");
        let pair = fixture.case(&[shell, "-c", &script]).with_shadow().compare();
        assert_ne!(pair.outcome.end, End::Exit(127), "{shell} {script}: {:?}", pair.outcome);
        assert!(pair.stats["native"].is_null(), "{shell} {script}: {}", pair.stats["native"]);
    }
}

#[test]
fn programs_in_sequence_run_as_natively() {
    same("for n in 0 1 2 3 4 5 6 7 8 9 10 11; do tool$n in$n; done");
    same("for n in 0 1 2 3; do ./tool$n <in$n >>$W/out || exit 9; done; cat $W/out");
    same("for n in 0 1 2; do tool$n in$n; ./script $n; echo $?; done; exec tool5 in5");
}

#[test]
fn decisions_on_output_of_programs_are_native() {
    same(
        "for n in 0 1 2 3 4; do x=$(tool$n in$n); case $x in *$n*) echo yes >>$W/said;; *) \
          echo no >>$W/said; rm -f in*;; esac; done; cat $W/said",
    );
    same("n=0; while test $n -lt 6; do n=$(expr $n + 1); tool$n in$n | wc -l; done");
    same("tool0 in0 | tool1 | tool2 - in2 | sort -r | tool3 | md5sum");
}

#[test]
fn effects_of_children_happen_once() {
    same(
        "for n in 0 1 2 3 4; do (echo $n >>$W/log; tool$n in$n >$W/copy$n; mkdir $W/dir$n; exit $n); \
          echo $? >>$W/log; done; cat $W/log; ls $W",
    );
    same(
        "f() { trap 'echo trapped >>$W/traps' EXIT; tool$1 in$1; }; for n in 1 2 3; do (f $n); done; \
          cat $W/traps",
    );
}

#[test]
fn background_children_run_as_natively() {
    same("for n in 0 1 2 3 4 5; do tool$n in$n >$W/out$n & done; wait; cat $W/out*");
    same("tool0 in0 >$W/a & p=$!; tool1 in1; wait $p; echo $?; ./script & wait $!; echo $?");
    same("(sleep 0.2; echo late >>$W/late) & tool2 in2; wait; cat $W/late");
}

#[test]
fn nested_programs_run_as_natively() {
    same("find . -name 'in*' -exec tool3 {} \\; | sort");
    same("echo in1 in2 in3 | xargs -n 1 tool4");
    same("env A=1 tool5 in5; nice -n 1 tool6 in6; timeout 20 tool7 in7; nohup tool8 in8");
    if available(installed("make")).is_some() {
        same(
            "printf 'all: a b c\\na b c:\\n\\ttool1 in1 >$$W/$@; cat $$W/$@\\n' >$W/Makefile; \
              make -s -j2 -f $W/Makefile | sort",
        );
    }
}
