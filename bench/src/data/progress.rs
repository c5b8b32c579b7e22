//! Progress of steps that take more than a second.
//!
//! Invariant: all of it goes to standard error; if that is not a terminal, only one plain line
//! does.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use runahead_harness::note;

/// A bar that ends at `total` bytes or files.
pub fn bar(message: &'static str, total: u64, unit: Unit) -> ProgressBar {
    let counter = match unit {
        Unit::Bytes => "{bytes}/{total_bytes}",
        Unit::Files => "{pos}/{len} files",
    };
    start(ProgressBar::new(total), message, &format!("{{msg}} [{{bar:30}}] {counter} ({{eta}})"))
}

/// A running clock, for a step of unknown length.
pub fn clock(message: &'static str) -> ProgressBar {
    let clock = start(ProgressBar::new_spinner(), message, "{spinner} {msg} {elapsed_precise}");
    // Twice a second: it shares the processors with what is measured.
    clock.enable_steady_tick(Duration::from_millis(500));
    clock
}

/// Unit of a bar.
#[derive(Debug, Clone, Copy)]
pub enum Unit {
    Bytes,
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
