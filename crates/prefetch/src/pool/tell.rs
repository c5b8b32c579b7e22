//! Who is told what, outside the lock.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Acquire;

use runahead_abi::Identity;

use crate::io::Node;
use crate::order::ClientId;
use crate::queue::Effects;
use crate::sink::Sink;

/// A client, as the workers see it.
pub(crate) struct Core {
    pub id: ClientId,
    sink: Arc<dyn Sink>,
    /// Nothing more is to be told to it.
    pub closed: AtomicBool,
}

impl Core {
    pub(crate) fn new(id: ClientId, sink: Arc<dyn Sink>) -> Self {
        Core { id, sink, closed: AtomicBool::new(false) }
    }

    /// Its sink, as long as it may be called; asked for anew for every call.
    pub(crate) fn sink(&self) -> Option<&dyn Sink> {
        (!self.closed.load(Acquire)).then_some(&*self.sink)
    }

    /// Announces a key; true if that is news.
    pub(crate) fn expect(&self, key: Identity, run: u32) -> bool {
        self.sink().is_some_and(|sink| sink.expect(key, run))
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
    /// Finds the clients; to be called with the lock held.
    pub(crate) fn address(&mut self, clients: &HashMap<ClientId, Arc<Core>>) {
        self.cores.clear();
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
        let sink = |client| find(cores, client).and_then(Core::sink);
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

    /// The last words to a client that is being closed.
    pub(crate) fn last(&mut self, core: &Core) {
        self.fx.done.drain(..).for_each(|(_, key)| core.sink.done(key));
        self.fx.forget.drain(..).for_each(|(_, key, before)| core.sink.forget(key, before));
        self.fx.files.clear();
    }
}
