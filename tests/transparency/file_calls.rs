//! A call returns what it would have returned, and leaves what it would have left: data, offsets,
//! errors, memory.

use runahead_tests::{available, fixture};

same! {
    partly_cached_pages_are_read_whole: "partial_reads" ["data", "4096"] => ["calls, sum"];
    partly_cached_chunks_are_read_whole: "partial_reads" ["data", "131072"] => ["calls, sum"];
    holes_read_as_zeros: "partial_reads" ["odd/holes", "65536"] => ["calls, sum"];
    shared_descriptions_share_their_offset: "shared_offset" [] =>
        ["child read 5000", "parent read 3000"];
    directories_are_listed_in_small_pieces_and_out_of_order: "file_calls" ["directories"] =>
        ["last -1 EINVAL", "again"];
    descriptors_have_the_flags_of_their_open: "file_calls" ["flags"] =>
        ["open 0: 3, flags 100000, fd flags 0"];
    transfers_mappings_and_appends_give_native_results: "file_calls" ["transfers"] =>
        ["sendfile(out, in, 0, 50000): 50000", "mapped"];
    creating_and_truncating_give_native_results: "file_calls" ["creations"] => ["0640): -1 EEXIST"];
    paths_relative_to_directories_give_native_results: "file_calls" ["walk"] =>
        ["link 4 hard", "openat2 src/d0/f5.c 8: open"];
    bad_paths_and_descriptors_give_native_errors: "call_errors" ["paths"] =>
        ["ENOENT", "ENOTDIR", "ELOOP", "EISDIR", "ENAMETOOLONG", "EBADF"];
    bad_pointers_are_efault: "call_errors" ["pointers"] =>
        ["open(BAD, O_RDONLY): -1 EFAULT", "read(fd, BAD, 100): -1 EFAULT"];
    bad_arguments_are_found_before_bad_pointers: "call_errors" ["earlier"] =>
        ["SYS_access, BAD, 0x7777): -1 EINVAL"];
    results_may_overwrite_their_path: "call_errors" ["overlapping"] =>
        ["readlink over itself: 7 nowhere", "stat over itself: 0 1048576"];
    strange_offsets_and_lengths_give_native_results: "call_errors" ["offsets"] =>
        ["pread(fd, buf, 10, -1): -1 EINVAL"];
    a_full_descriptor_table_is_emfile: "call_errors" ["limits"] => ["EMFILE"];
    calls_from_odd_stacks_give_native_results: "odd_stacks" [] =>
        ["unchanged from the red zone on: 1", "away with it: 0"];
    registers_and_stack_are_preserved: "registers" [] => ["general: 0 wrong", "at 640000"];
}

#[test]
fn a_second_reader_continues_at_the_offset_of_the_first() {
    let Some(fixture) = available(fixture()) else { return };
    // The first reader takes the first line's worth of bytes, the second goes on behind them.
    let pair =
        fixture.script("{ dd bs=1000 count=3 2>/dev/null | md5sum; md5sum; } < data").compare();
    assert_eq!(pair.outcome.text().lines().count(), 2);
}

#[test]
fn files_beyond_two_gigabytes_are_read() {
    let Some(fixture) = available(fixture()) else { return };
    fixture.change(|dir| {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::create(dir.join("huge")).expect("the disk has room for a hole");
        file.write_all_at(b"far away", 3 << 30).expect("and for a block");
    });
    let pair = fixture.program("huge_file", &[]);
    assert!(pair.outcome.text().contains("open: ok"));
}
