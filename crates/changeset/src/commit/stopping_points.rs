//! Points at which tests stop a commit, as if it were killed or a call had failed.

/// Error text of a commit that was killed, in tests.
#[cfg(test)]
pub(super) const KILLED: &str = "killed by a test";

#[cfg(test)]
thread_local! {
    /// Number of points that are passed, then whether the commit is killed there.
    pub(super) static STOP: std::cell::Cell<Option<(usize, bool)>> = const { std::cell::Cell::new(None) };
}

/// Passes a point, or fails as a test has asked for.
#[cfg(not(test))]
pub(super) fn pass() -> std::io::Result<()> {
    Ok(())
}

/// Passes a point, or fails as a test has asked for.
#[cfg(test)]
pub(super) fn pass() -> std::io::Result<()> {
    match STOP.get() {
        Some((0, true)) => Err(std::io::Error::other(KILLED)),
        Some((0, false)) => {
            STOP.set(None);
            Err(std::io::Error::other("failed by a test"))
        }
        Some((left, is_killed)) => {
            STOP.set(Some((left - 1, is_killed)));
            Ok(())
        }
        None => Ok(()),
    }
}

/// True if the commit was killed by a test: then it does nothing more.
pub(super) fn is_killed() -> bool {
    #[cfg(test)]
    return matches!(STOP.get(), Some((0, true)));
    #[cfg(not(test))]
    false
}
