//! Clients that come and go, and hints that they give up.

use runahead_predict::{ClientId, Effects, Sink};

use super::queue_state::Queue;

impl<F> Queue<F> {
    /// A new client.
    pub(crate) fn open_client(&mut self) -> ClientId {
        let client = self.new_id();
        self.queues.open(client);
        client
    }

    /// `sink` knows what `client` has used.
    pub(crate) fn watch_use(&mut self, client: ClientId, sink: std::sync::Arc<dyn Sink>) {
        self.guesses.open(client, sink);
    }

    /// A client is gone: gives up all that it hinted, under way or not. How many hints that was.
    pub(crate) fn close_client(&mut self, client: ClientId, fx: &mut Effects<F>) -> usize {
        let mut dropped = 0;
        for id in self.queues.members(client) {
            if let Some(entry) = self.entries.get_mut(&id) {
                dropped += entry.abandon(client, &mut self.queues, fx);
                self.retire_if_idle(id, fx);
            } else if let Some(batch) = self.batches.remove(id, &mut self.queues) {
                batch.forget(fx);
            } else {
                self.guesses.drop(id, &mut self.queues, fx);
                dropped += self.programs.drop((id, client), None, &mut self.queues, fx);
            }
        }
        self.guesses.close(client);
        self.passed.retain(|(of, _), _| *of != client);
        self.queues.close(client);
        dropped
    }

    /// Returns the clients that are not gone.
    pub(crate) fn clients(&self) -> Vec<ClientId> {
        self.queues.clients()
    }

    /// Gives up all that was disclosed to `client` and is taken back in `run`, and no worker has
    /// started on. Returns how many hints that ends. (Nothing is disclosed but data.)
    pub(crate) fn cancel(&mut self, client: ClientId, run: u32, fx: &mut Effects<F>) -> usize {
        let mut dropped = 0;
        for id in self.queues.members(client) {
            if let Some(entry) = self.entries.get_mut(&id) {
                dropped += entry.cancel(client, run, &mut self.queues, fx);
                self.retire_if_idle(id, fx);
            }
        }
        dropped
    }

    /// Gives up all parts of hints of runs of `client` before `before` that no worker has started
    /// on, except what its target waits for; with `None`, all parts. Returns how many hints that
    /// ends.
    pub(crate) fn drop_stale(
        &mut self,
        client: ClientId,
        before: Option<u32>,
        fx: &mut Effects<F>,
    ) -> usize {
        let mut dropped = 0;
        for id in self.queues.members(client) {
            if let Some(entry) = self.entries.get_mut(&id) {
                dropped += entry.drop_stale(client, before, &mut self.queues, fx);
                self.retire_if_idle(id, fx);
            } else if self.batches.is_stale(id, before)
                && let Some(batch) = self.batches.remove(id, &mut self.queues)
            {
                batch.forget(fx);
            } else {
                if before.is_none() {
                    self.guesses.drop(id, &mut self.queues, fx);
                }
                dropped += self.programs.drop((id, client), before, &mut self.queues, fx);
            }
        }
        dropped
    }
}
