//! Notifications of clients, given while the lock is not held.

use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::{AtomicBool, AtomicU32};

use hashbrown::HashMap;
use runahead_estimators::Identity;
use runahead_predict::{ClientId, Effects, Sink};

use crate::io::Node;

/// A client, as the workers see it.
pub(crate) struct Core {
    pub id: ClientId,
    sink: Arc<dyn Sink>,
    /// True if nothing more is to be looked up for this client.
    pub closed: AtomicBool,
    /// Runs before this have strayed.
    pub stale_before: AtomicU32,
}

impl Core {
    pub(crate) fn new(id: ClientId, sink: Arc<dyn Sink>) -> Self {
        Core { id, sink, closed: AtomicBool::new(false), stale_before: AtomicU32::new(0) }
    }

    /// Notes that one of many names was looked up. Names of a client that is gone have been
    /// forgotten.
    pub(crate) fn done(&self, key: Identity) {
        if !self.closed.load(Acquire) {
            self.sink.done(key);
        }
    }

    /// True if nothing that `run` wanted is to begin any more.
    pub(crate) fn is_stale(&self, run: u32) -> bool {
        self.closed.load(Acquire) || run < self.stale_before.load(Acquire)
    }

    /// Announces a key; true if that is news.
    pub(crate) fn expect(&self, key: Identity, run: u32) -> bool {
        !self.closed.load(Acquire) && self.sink.expect(key, run)
    }
}

/// Effects and the clients that they concern.
#[derive(Default)]
pub(crate) struct Telling {
    pub fx: Effects<Node>,
    cores: Vec<Arc<Core>>,
}

fn find(cores: &[Arc<Core>], client: ClientId) -> Option<&Core> {
    cores.iter().find(|core| core.id == client).map(|core| &**core)
}

impl Telling {
    /// Creates notifications that reach `core` even if it is gone by then.
    pub(crate) fn to(core: &Arc<Core>) -> Self {
        Telling { fx: Effects::default(), cores: vec![core.clone()] }
    }

    /// Finds the clients; to be called with the lock held. What was settled under the lock is told
    /// in any case, also to one that goes meanwhile.
    pub(crate) fn address(&mut self, clients: &HashMap<ClientId, Arc<Core>>) {
        let Effects { done, forget, completed, .. } = &self.fx;
        let done = done.iter().map(|&(client, _)| client);
        let forget = forget.iter().map(|&(client, ..)| client);
        let completed = completed.iter().map(|&(client, _)| client);
        for client in done.chain(forget).chain(completed) {
            if find(&self.cores, client).is_none()
                && let Some(core) = clients.get(&client)
            {
                self.cores.push(core.clone());
            }
        }
    }

    /// Tells all, and lets go of files; the lock is not held.
    pub(crate) fn tell(&mut self) {
        let Telling { fx, cores } = self;
        let sink = |client| find(cores, client).map(|core| &core.sink);
        for (client, key) in fx.done.drain(..) {
            sink(client).inspect(|sink| sink.done(key));
        }
        for (client, key, before) in fx.forget.drain(..) {
            sink(client).inspect(|sink| sink.forget(key, before));
        }
        for (client, completion) in fx.completed.drain(..) {
            sink(client).inspect(|sink| sink.completed(&completion));
        }
        fx.files.clear();
        cores.clear();
    }
}
