//! Notifications of clients, given while the lock is not held.

use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::{AtomicBool, AtomicU32};

use hashbrown::HashMap;
use runahead_estimators::Identity;
use runahead_predict::{ClientId, Effects, Sink};

use crate::io::Node;

/// A client, as the workers see it.
pub(crate) struct PoolClient {
    pub id: ClientId,
    sink: Arc<dyn Sink>,
    /// True if nothing more is to be looked up for this client.
    pub closed: AtomicBool,
    /// Runs before this have strayed.
    pub stale_before: AtomicU32,
}

impl PoolClient {
    pub(crate) fn new(id: ClientId, sink: Arc<dyn Sink>) -> Self {
        PoolClient { id, sink, closed: AtomicBool::new(false), stale_before: AtomicU32::new(0) }
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
pub(crate) struct Notifications {
    pub fx: Effects<Node>,
    pool_clients: Vec<Arc<PoolClient>>,
}

fn find(pool_clients: &[Arc<PoolClient>], client: ClientId) -> Option<&PoolClient> {
    pool_clients
        .iter()
        .find(|pool_client| pool_client.id == client)
        .map(|pool_client| &**pool_client)
}

impl Notifications {
    /// Creates notifications that reach `pool_client` even if it is gone by then.
    pub(crate) fn to(pool_client: &Arc<PoolClient>) -> Self {
        Notifications { fx: Effects::default(), pool_clients: vec![pool_client.clone()] }
    }

    /// Finds the clients; to be called with the lock held. What was settled under the lock is told
    /// in any case, also to one that goes meanwhile.
    pub(crate) fn address(&mut self, clients: &HashMap<ClientId, Arc<PoolClient>>) {
        let Effects { done, forget, completed, .. } = &self.fx;
        let done = done.iter().map(|&(client, _)| client);
        let forget = forget.iter().map(|&(client, ..)| client);
        let completed = completed.iter().map(|&(client, _)| client);
        for client in done.chain(forget).chain(completed) {
            if find(&self.pool_clients, client).is_none()
                && let Some(pool_client) = clients.get(&client)
            {
                self.pool_clients.push(pool_client.clone());
            }
        }
    }

    /// Tells all, and lets go of files; the lock is not held.
    pub(crate) fn tell(&mut self) {
        let Notifications { fx, pool_clients } = self;
        let sink = |client| find(pool_clients, client).map(|pool_client| &pool_client.sink);
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
        pool_clients.clear();
    }
}
