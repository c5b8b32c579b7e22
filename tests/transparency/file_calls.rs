//! A call returns what it would have returned, and leaves what it would have left: data, offsets,
//! errors, memory.

use runahead_tests::{available, fixture};

/// Runs program `name` with `args` both ways, dynamic and static; its output is to contain `marks`.
fn same(name: &str, args: &[&str], marks: &[&str]) {
    let Some(fixture) = available(fixture()) else { return };
    let pair = fixture.program(name, args);
    let text = pair.outcome.text();
    for mark in marks {
        assert!(text.contains(mark), "{name} {args:?} no longer shows {mark:?}:\n{text}");
    }
}

#[test]
fn reads_partly_in_memory_by_page() {
    same("partial", &["data", "4096"], &["calls, sum"]);
}

#[test]
fn reads_partly_in_memory_by_chunk() {
    same("partial", &["data", "131072"], &["calls, sum"]);
}

#[test]
fn reads_of_a_file_with_holes() {
    same("partial", &["odd/holes", "65536"], &["calls, sum"]);
}

#[test]
fn offsets_of_shared_descriptions() {
    same("offsets", &[], &["child read 5000", "parent read 3000"]);
}

#[test]
fn offset_that_a_shell_goes_on_from() {
    let Some(fixture) = available(fixture()) else { return };
    // The first reader takes the first line's worth of bytes, the second goes on behind them.
    let pair =
        fixture.script("{ dd bs=1000 count=3 2>/dev/null | md5sum; md5sum; } < data").compare();
    assert_eq!(pair.outcome.text().lines().count(), 2);
}

#[test]
fn directories_in_small_pieces_and_out_of_order() {
    same("calls", &["directories"], &["last -1 EINVAL", "again"]);
}

#[test]
fn descriptors_have_the_flags_they_were_opened_with() {
    same("calls", &["flags"], &["open 0: 3, flags 100000, fd flags 0"]);
}

#[test]
fn transfers_mappings_and_appends() {
    same("calls", &["transfers"], &["sendfile(out, in, 0, 50000): 50000", "mapped"]);
}

#[test]
fn creating_and_truncating() {
    same("calls", &["creations"], &["0640): -1 EEXIST"]);
}

#[test]
fn walking_relative_to_directories() {
    same("calls", &["walk"], &["link 4 hard", "openat2 src/d0/f5.c 8: open"]);
}

#[test]
fn errors_of_paths_and_descriptors() {
    same("errors", &["paths"], &["ENOENT", "ENOTDIR", "ELOOP", "EISDIR", "ENAMETOOLONG", "EBADF"]);
}

#[test]
fn bad_pointers_are_efault() {
    same(
        "errors",
        &["pointers"],
        &["open(BAD, O_RDONLY): -1 EFAULT", "read(fd, BAD, 100): -1 EFAULT"],
    );
}

#[test]
fn bad_arguments_that_hide_bad_pointers() {
    same("errors", &["earlier"], &["SYS_access, BAD, 0x7777): -1 EINVAL"]);
}

#[test]
fn results_that_overwrite_their_path() {
    same(
        "errors",
        &["overlapping"],
        &["readlink over itself: 7 nowhere", "stat over itself: 0 1048576"],
    );
}

#[test]
fn strange_offsets_and_lengths() {
    same("errors", &["offsets"], &["pread(fd, buf, 10, -1): -1 EINVAL"]);
}

#[test]
fn running_out_of_descriptors() {
    same("errors", &["limits"], &["EMFILE"]);
}

#[test]
fn files_beyond_two_gigabytes() {
    let Some(fixture) = available(fixture()) else { return };
    fixture.change(|dir| {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::create(dir.join("huge")).expect("the disk has room for a hole");
        file.write_all_at(b"far away", 3 << 30).expect("and for a block");
    });
    let pair = fixture.program("huge", &[]);
    assert!(pair.outcome.text().contains("open: ok"));
}

#[test]
fn calls_from_odd_stacks() {
    same("oddstack", &[], &["unchanged from the red zone on: 1", "away with it: 0"]);
}

#[test]
fn registers_and_stack_are_left_alone() {
    same("registers", &[], &["general: 0 wrong", "at 640000"]);
}
