//! State of all guesses.

use std::sync::Arc;

use hashbrown::HashMap;

use super::guess_counts::Tally;
use super::guess_task::WaitingErrand;
use super::pattern_state::ClientPatterns;
use crate::hint_order::{ClientId, EntryId};
use crate::result_sink::Sink;

/// Sum of the first allowances of a client, at most.
pub(super) const CREDIT: u64 = 4 << 20;
/// Sum of all allowances of a client, at most, however much it reads.
pub(super) const CREDIT_MAX: u64 = 64 << 20;
/// Position of reads: known files are read before more is looked for.
pub(super) const READS: u64 = 0;
pub(super) const LOOKS: u64 = 1;
/// Before directories that nothing is known of.
pub(super) const AHEAD: u64 = 2;

/// Guesses of all clients.
pub struct Guesses<F> {
    pub(super) clients: HashMap<ClientId, ClientPatterns>,
    pub(super) waiting: HashMap<EntryId, WaitingErrand<F>>,
    pub(super) next: EntryId,
    /// The sinks of clients, which know what was used.
    pub(super) sinks: HashMap<ClientId, Arc<dyn Sink>>,
    /// Counts of guesses.
    pub tally: Tally,
    /// The storage serves few requests side by side.
    pub narrow: bool,
    /// Files are looked through for names.
    pub scans: bool,
    /// True if guesses are switched off.
    pub off: bool,
    /// Guesses go into sibling directories that no target has entered.
    pub enters_siblings: bool,
    /// Names that a client looks for in one directory after another are guessed.
    pub follows_patterns: bool,
}

impl<F> Default for Guesses<F> {
    fn default() -> Self {
        // Numbers of their own, from the other end: ids are only compared with each other.
        let (clients, waiting) = (HashMap::new(), HashMap::new());
        Guesses {
            clients,
            waiting,
            next: EntryId::MAX,
            sinks: HashMap::new(),
            tally: Tally::default(),
            narrow: false,
            scans: false,
            off: false,
            enters_siblings: true,
            follows_patterns: true,
        }
    }
}

impl<F> Guesses<F> {
    /// `sink` is told of `client`'s guesses, and knows which were used.
    pub fn open(&mut self, client: ClientId, sink: Arc<dyn Sink>) {
        self.sinks.insert(client, sink);
    }

    /// `client` is gone.
    pub fn close(&mut self, client: ClientId) {
        self.clients.remove(&client);
        self.sinks.remove(&client);
    }
}
