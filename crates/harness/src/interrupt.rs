//! Ctrl-C, SIGTERM and SIGHUP end the program in order, with everything taken down.
//!
//! Invariant: a signal only sets a flag. Each wait and each long loop asks [`check`], and the error
//! takes the ordinary way out, through every destructor.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::system_error::{System, system};

/// A signal has arrived, and the program ends on account of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("interrupted; everything has been taken down")]
pub struct Interrupted;

static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Starts catching signals.
///
/// # Errors
/// The kernel refused a handler.
pub fn catch() -> Result<(), System> {
    let flag = FLAG.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(flag))
            .map_err(system::<System>("catch signals of", "/proc/self"))?;
    }
    Ok(())
}

/// Fails after a signal.
///
/// # Errors
/// [`Interrupted`] once a signal has arrived.
pub fn check() -> Result<(), Interrupted> {
    let set = FLAG.get().is_some_and(|flag| flag.load(Ordering::Relaxed));
    if set { Err(Interrupted) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_shows_at_the_next_check_and_ends_nothing() {
        catch().expect("handlers can be had");
        assert_eq!(check(), Ok(()));
        signal_hook::low_level::raise(SIGTERM).expect("a signal of our own");
        assert_eq!(check(), Err(Interrupted));
    }
}
