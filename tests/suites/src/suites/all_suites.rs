//! The list of suites.

use crate::error::Error;
use crate::suites::suite_definition::Suite;
use crate::suites::{cpython, gnu_tools, go_packages, libc_test, ltp, other_tools};
use crate::suites::{perl_core, pipe_scripts, planted_units, process_states};

/// Suites, without the one that tests the harness.
pub const SUITES: &[&Suite] = &[
    &cpython::CPYTHON,
    &go_packages::GO,
    &perl_core::PERL,
    &gnu_tools::GREP,
    &gnu_tools::SED,
    &gnu_tools::COREUTILS,
    &ltp::LTP,
    &ltp::OPEN_POSIX,
    &libc_test::LIBC_TEST,
    &other_tools::STRESS_NG,
    &other_tools::GIT,
    &other_tools::BASH,
    &other_tools::MAKE,
    &other_tools::TAR,
    &other_tools::BUSYBOX,
    &other_tools::REDIS,
    &other_tools::LIBUV,
    &other_tools::UTIL_LINUX,
    &pipe_scripts::SCRIPTS,
    &process_states::RR,
    &process_states::ZDTM,
];

/// Returns the suite of this name, also the one that tests the harness.
pub fn find(name: &str) -> Option<&'static Suite> {
    SUITES.iter().copied().chain([&planted_units::PLANTED]).find(|suite| suite.name == name)
}

/// Returns the suites of these names, all if there are none.
pub fn named(names: &[String]) -> Result<Vec<&'static Suite>, Error> {
    if names.is_empty() {
        return Ok(SUITES.to_vec());
    }
    let find = |name: &String| find(name).ok_or_else(|| Error::NoSuite(name.clone()));
    names.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_found() {
        for (n, suite) in SUITES.iter().enumerate() {
            assert!(std::ptr::eq(find(suite.name).unwrap(), *suite));
            assert!(SUITES[..n].iter().all(|other| other.name != suite.name));
        }
        assert!(find("nonesuch").is_none() && named(&["nonesuch".into()]).is_err());
        assert_eq!(named(&[]).unwrap().len(), SUITES.len());
    }
}
