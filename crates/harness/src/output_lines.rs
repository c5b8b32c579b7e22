//! Lines for people.
//!
//! Invariant: a reader that went away (`| head`) ends nothing: what is up has still to be taken
//! down, which the standard macros, by panicking, would prevent.

/// A line on standard output: results.
#[macro_export]
macro_rules! say {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($arg)*);
    }};
}

/// A line on standard error: what is going on.
#[macro_export]
macro_rules! note {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($arg)*);
    }};
}
