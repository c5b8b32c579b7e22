//! A worker's part in guessing.

use std::sync::Arc;

use runahead_estimators::{ChunkIndex, Identity};
use runahead_predict::{
    ClientId, ENTRIES_MAX, GuessKind, GuessTask, NAMED_IN_MAX, Name, Outcome, SCAN_BYTES, tokens,
};
use rustix::io::Result;

use super::pool::Pool;
use crate::io::{Node, Reader};
use crate::request_queue::Class;

impl Pool {
    /// Does something for a guess.
    pub(super) fn guess(
        &self,
        (client, of): (ClientId, GuessKind),
        errand: &GuessTask<Node>,
        reader: &mut Reader,
    ) -> Outcome<Node> {
        match errand {
            GuessTask::List { path } => {
                let mut names = Vec::new();
                let most = if of == GuessKind::Mentions { NAMED_IN_MAX } else { ENTRIES_MAX };
                let listed = self.list(path, Some((&mut names, most + 1)), reader);
                listed.map_or(Outcome::Over, |_| Outcome::Names(names))
            }
            GuessTask::Browse { path } => {
                if self.list(path, None, reader).is_ok() {
                    self.foresee(client, [Identity::ROOT.join(path).listing()]);
                }
                Outcome::Over
            }
            GuessTask::Look { path } => {
                let found = reader.look(path, true);
                // Where a routine finds nothing, that is what is to be known.
                let is_told = match of {
                    GuessKind::Names | GuessKind::Mentions => found.is_ok(),
                    GuessKind::Siblings => true,
                    GuessKind::Data => false,
                };
                if is_told {
                    self.foresee(client, [Identity::ROOT.join(path)]);
                }
                match found {
                    Ok((node, Class::File { size })) => Outcome::File(Arc::new(node), size),
                    _ => Outcome::Over,
                }
            }
            GuessTask::Read { path, file, size } => {
                self.read_whole(client, path, (file, *size), reader);
                Outcome::Over
            }
            GuessTask::Scan { path, file, size } => {
                if !self.read_whole(client, path, (file, *size), reader) {
                    return Outcome::Tokens(Vec::new());
                }
                let contents = reader.bytes(file, &(0..(*size).min(SCAN_BYTES)), &self.devices);
                Outcome::Tokens(contents.map_or_else(|_| Vec::new(), |bytes| tokens(&bytes)))
            }
        }
    }

    /// Reads a file; false if it cannot be read. (Which is as good as read: nothing follows from
    /// either.)
    fn read_whole(
        &self,
        client: ClientId,
        path: &[u8],
        (file, size): (&Node, u64),
        reader: &mut Reader,
    ) -> bool {
        let is_read = reader.read(file, &(0..size), &self.devices, None).is_ok();
        if is_read {
            let (file, last) = (Identity::ROOT.join(path), ChunkIndex::of(size - 1).0);
            self.foresee(client, (0..=last).map(|chunk| file.chunk(ChunkIndex(chunk))));
        }
        is_read
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

    /// Notes that guessed data is in memory: from now on its use shows in the client's log. This is
    /// done under the lock, so that a client that goes hears of it before or not at all.
    fn foresee(&self, client: ClientId, keys: impl IntoIterator<Item = Identity>) {
        const TARGET: u32 = 0;
        let state = self.lock();
        let Some(pool_client) = state.clients.get(&client) else { return };
        for key in keys {
            if pool_client.expect(key, TARGET) {
                pool_client.done(key);
            }
        }
    }
}
