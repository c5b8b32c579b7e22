//! CPython's regression tests, one unit for each test file.

use std::path::Path;

use crate::results::report_format::Format;
use crate::suites::suite_definition::{Command, SUITE, Suite, TREE, WORK};

pub static CPYTHON: Suite = Suite {
    name: "cpython",
    about: "CPython's own regression tests (`python -m test -u none`), Debian's build",
    script: include_str!("../../prepare/cpython.sh"),
    command,
    limit: 240,
    quick: true,
    slow: SLOW,
    ..SUITE
};

fn command(unit: &str, version: &str, _tree: &Path) -> Command {
    // "CPython 3.11.2" is in python3.11.
    let release = version.trim_start_matches("CPython ");
    let release = release.rsplit_once('.').map_or(release, |(release, _)| release);
    let python = format!("{TREE}/usr/bin/python{release}");
    let (report, temporary) = (format!("{WORK}/junit.xml"), format!("{WORK}/tmp"));
    let options = ["-m", "test", "-u", "none", "--tempdir", &temporary, "--junit-xml", &report];
    Command::new(&[&[&*python], &options[..], &[unit]].concat(), WORK, Format::Junit)
}

const SLOW: &str = "test_asyncio test_bz2 test_cmd_line_script test_compile test_compileall \
    test_concurrent_futures test_eintr test_email test_faulthandler test_fork1 test_ftplib \
    test_imaplib test_importlib test_io test_largefile test_logging test_lzma test_mailbox \
    test_multiprocessing_fork test_multiprocessing_forkserver \
    test_multiprocessing_main_handling test_multiprocessing_spawn test_pickle test_poll \
    test_poplib test_pydoc test_queue test_regrtest test_selectors test_signal test_socket \
    test_source_encoding test_ssl test_statistics test_subprocess test_support \
    test_tarfile test_threading test_threadsignals test_trace test_wait3 test_wait4 \
    test_weakref test_xmlrpc test_zipfile";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interpreter_is_the_release_that_was_unpacked() {
        let program = |version| command("test_os", version, Path::new("/")).argv[0].clone();
        assert_eq!(program("CPython 3.11.2"), "/mnt/tree/usr/bin/python3.11");
        assert_eq!(program("CPython 3.13.5"), "/mnt/tree/usr/bin/python3.13");
    }
}
