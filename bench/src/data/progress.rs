//! What is shown while something takes more than a second.
//!
//! Invariant: all of it goes to stderr, and nothing but one plain line does if that is not a
//! terminal.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use runahead_harness::note;

/// A bar over `total` bytes or files.
pub fn bar(message: &'static str, total: u64, unit: Unit) -> ProgressBar {
    let counter = match unit {
        Unit::Bytes => "{bytes}/{total_bytes}",
        Unit::Files => "{pos}/{len} files",
    };
    start(ProgressBar::new(total), message, &format!("{{msg}} [{{bar:30}}] {counter} ({{eta}})"))
}

/// A running clock, for what has no known length.
pub fn clock(message: &'static str) -> ProgressBar {
    let clock = start(ProgressBar::new_spinner(), message, "{spinner} {msg} {elapsed_precise}");
    // Twice a second: it shares the processors with what is measured.
    clock.enable_steady_tick(Duration::from_millis(500));
    clock
}

/// What a bar counts.
#[derive(Debug, Clone, Copy)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Files.
    Files,
}

fn start(bar: ProgressBar, message: &'static str, template: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        note!("{message}");
    }
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style).with_message(message)
}
