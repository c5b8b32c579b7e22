//! Errands for files that are named in others: see [`super::name_references`].

use std::sync::Arc;

use runahead_abi::{HintKind, Record};

use super::guess_kind::{GuessKind, PlaceName};
use super::guess_state::{Guesses, LOOKS, READS};
use super::guess_task::{GuessTask, Outcome};
use super::name_references::{Action, SCAN_BYTES};
use crate::deferred_effects::Effects;
use crate::hint_order::{ClientId, Rank};
use crate::read_sizes::EXTEND_MAX_BYTES;
use crate::task_queue::TaskQueue;

impl<F> Guesses<F> {
    /// `client` wants what `record` says, maybe the beginning of a file.
    pub(super) fn saw_named(
        &mut self,
        client: ClientId,
        record: &Record<'_>,
        demand: bool,
        queue: &mut impl TaskQueue,
    ) {
        if !self.scans {
            return;
        }
        let Some(patterns) = self.clients.get_mut(&client) else { return };
        let mut actions = Vec::new();
        let used = match self.sinks.get(&client).filter(|_| demand) {
            Some(sink) => patterns.mentions.settle(|key| sink.was_used(key), &mut actions),
            None => 0,
        };
        // What a shadow foresees it has read itself.
        if demand && record.kind == HintKind::Data && record.header.offset == 0 {
            // What is still hinted or waited for came too late to have spared anything.
            patterns.mentions.saw(record.path, &mut actions);
        }
        self.tally.used[GuessKind::Mentions as usize] += used;
        self.act(client, actions, queue);
    }

    fn act(&mut self, client: ClientId, actions: Vec<Action>, queue: &mut impl TaskQueue) {
        for action in actions {
            let path = action.path().clone();
            let errand = match action {
                Action::List(_) => GuessTask::List { path },
                Action::Fetch(_) | Action::Scan(_) => GuessTask::Look { path },
            };
            self.send(client, errand, LOOKS, queue);
        }
    }

    fn send(
        &mut self,
        client: ClientId,
        errand: GuessTask<F>,
        rank: u64,
        queue: &mut impl TaskQueue,
    ) {
        // They lie anywhere.
        let (directory, suffix) = (Arc::default(), Box::default());
        let place = PlaceName { directory, suffix, of: GuessKind::Mentions };
        self.put(client, &place, Rank::guess(rank), errand, queue);
    }

    /// A worker comes back from an errand to `path`.
    pub(super) fn finish_named(
        &mut self,
        client: ClientId,
        path: Arc<[u8]>,
        outcome: Outcome<F>,
        queue: &mut impl TaskQueue,
        fx: &mut Effects<F>,
    ) {
        let Some(patterns) = self.clients.get_mut(&client) else {
            if let Outcome::File(file, _) = outcome {
                fx.files.push(file);
            }
            return;
        };
        let mut actions = Vec::new();
        match outcome {
            Outcome::File(file, size) => {
                let is_fetched = patterns.mentions.is_pending(&path);
                let most = if is_fetched { EXTEND_MAX_BYTES } else { SCAN_BYTES };
                if !(1..=most).contains(&size) {
                    fx.files.push(file);
                    return;
                }
                self.tally.begun[GuessKind::Mentions as usize] += u64::from(is_fetched);
                self.send(client, GuessTask::Scan { path, file, size }, READS, queue);
            }
            Outcome::Tokens(found) => patterns.mentions.scanned(&path, found, &mut actions),
            Outcome::Names(entries) => {
                let names = entries.into_iter().map(|entry| entry.name);
                patterns.mentions.listed(&path, names, &mut actions);
            }
            // Not a file or a directory. If a directory was wanted, it counts as empty.
            Outcome::Over => patterns.mentions.listed(&path, std::iter::empty(), &mut actions),
        }
        self.act(client, actions, queue);
    }
}
