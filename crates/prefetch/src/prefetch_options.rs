//! Options of the prefetcher.

/// Bounds on what the prefetcher takes.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Reads in flight, and threads, at most. How many there are below that is measured.
    pub max_in_flight: usize,
    /// Parts of hints that may wait, of all clients together; further hints are refused unless the
    /// target waits for them. One client gets four fifths of it at most, and less when others
    /// press, too.
    pub max_queued: usize,
    /// True if demands of targets are taken as evidence for guesses.
    pub guesses: bool,
    /// Guesses go into sibling directories that no target has entered.
    pub sibling_directories: bool,
    /// Names that a client looks for in one directory after another are guessed.
    pub lookup_patterns: bool,
    /// Hints for programs are acted on, and not refused.
    pub programs: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            max_in_flight: 256,
            max_queued: 1 << 16,
            guesses: true,
            sibling_directories: true,
            lookup_patterns: true,
            programs: true,
        }
    }
}
