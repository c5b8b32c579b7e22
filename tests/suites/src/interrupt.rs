//! Ctrl-C, SIGTERM and SIGHUP end the program in order, with every disk taken down.
//!
//! Invariant: a signal only sets a flag. Whoever waits or loops asks [`check`], and the error takes
//! the ordinary way out, through every destructor.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::error::Error;

static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Starts catching signals.
///
/// # Errors
/// The kernel refused a handler.
pub fn catch() -> Result<(), Error> {
    let flag = FLAG.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(flag))
            .map_err(Error::system("catch signals of", "/proc/self"))?;
    }
    Ok(())
}

/// Whether to go on.
///
/// # Errors
/// [`Error::Interrupted`] once a signal has arrived.
pub fn check() -> Result<(), Error> {
    let set = FLAG.get().is_some_and(|flag| flag.load(Ordering::Relaxed));
    if set { Err(Error::Interrupted) } else { Ok(()) }
}
