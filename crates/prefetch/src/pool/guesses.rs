//! A worker's part in guessing.

use std::sync::Arc;

use runahead_abi::{ChunkIndex, Identity};
use rustix::io::Result;

use crate::expand::Name;
use crate::guess::{ENTRIES_MAX, Errand, Of, Outcome};
use crate::io::{Node, Reader};
use crate::order::ClientId;
use crate::pool::Pool;
use crate::queue::Class;

impl Pool {
    /// Does something for a guess.
    pub(super) fn guess(
        &self,
        (client, of): (ClientId, Of),
        errand: &Errand<Node>,
        reader: &mut Reader,
    ) -> Outcome<Node> {
        match errand {
            Errand::List { path } => {
                let mut names = Vec::new();
                let listed = self.list(path, Some((&mut names, ENTRIES_MAX + 1)), reader);
                listed.map_or(Outcome::Over, |_| Outcome::Names(names))
            }
            Errand::Browse { path } => {
                if self.list(path, None, reader).is_ok() {
                    self.foresee(client, [Identity::ROOT.join(path).listing()]);
                }
                Outcome::Over
            }
            Errand::Look { path } => {
                let found = reader.look(path, true);
                // Where a routine finds nothing, that is what is to be known.
                if of == Of::Names && found.is_ok() || of == Of::Rooms {
                    self.foresee(client, [Identity::ROOT.join(path)]);
                }
                match found {
                    Ok((node, Class::File { size })) => Outcome::File(Arc::new(node), size),
                    _ => Outcome::Over,
                }
            }
            Errand::Read { path, file, size } => {
                // What cannot be read is as good as read: nothing follows from either.
                if reader.read(file, &(0..*size), &self.devices).is_ok() {
                    let (file, last) = (Identity::ROOT.join(path), ChunkIndex::of(size - 1).0);
                    self.foresee(client, (0..=last).map(|chunk| file.chunk(ChunkIndex(chunk))));
                }
                Outcome::Over
            }
        }
    }

    /// Reads the entries of the directory at `path`, of which `names` takes so many. What is no
    /// directory has none.
    fn list(
        &self,
        path: &[u8],
        names: Option<(&mut Vec<Name>, usize)>,
        reader: &mut Reader,
    ) -> Result<u64> {
        match reader.look(path, true)? {
            (node, Class::Directory) => reader.list(&node, &self.devices, names),
            _ => Ok(0),
        }
    }

    /// What was guessed is in memory: from now on its use shows in the client's log. Under the lock,
    /// so that a client that goes is told before or not at all.
    fn foresee(&self, client: ClientId, keys: impl IntoIterator<Item = Identity>) {
        const TARGET: u32 = 0;
        let state = self.lock();
        let Some(core) = state.clients.get(&client) else { return };
        for key in keys {
            if core.expect(key, TARGET) {
                core.done(key);
            }
        }
    }
}
