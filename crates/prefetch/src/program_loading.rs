//! What executing a program reads: the program, the interpreter of a script, the dynamic linker,
//! and the libraries, as data: no thread, no file, no clock.
//!
//! A hint for a program starts an *expansion*. Its *tasks* are done by the workers: find a file and
//! look at its head; read what else that says it needs; load a part of it. What one brings to light
//! becomes further tasks. An expansion belongs to every client that hinted its program, and stands
//! in each one's lane as a single item; it is given up when the last of them is gone.
//!
//! *Order.* Whoever starts a program waits for one thing after the other: the heads of all its
//! files, then all that relocation goes through (the tables at the start of a file and the data at
//! its end), then the code at the entry point. So tasks have a [`Turn`], and each turn is served for
//! the whole expansion before the next: a large program's code must not hold up the small libraries
//! without which it does not even start. What is left of the files comes last; of programs of 100
//! MB a start touches a third, in an order that nobody knows, and a part that is not there costs a
//! wait, so all is read up to [`WHOLE_MAX`].
//!
//! Scripts start the same few programs hundreds of times. What was expanded is *fresh* for
//! [`FRESH`] and not looked at again, and libraries that another program has brought in are not
//! either: a repeated hint costs one lookup in a table.
//!
//! Only the program's own file has a log key, the hint's: done when all of it has been loaded. The
//! libraries have none. They are opened by another process than the one whose shadow hinted the
//! program, mostly, and so are in another log.
//!
//! Invariants: one expansion has at most [`FILES_MAX`] files and loads at most [`LOAD_MAX`] bytes,
//! whatever the files hold; each of its hints is completed once, or dropped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use runahead_abi::{HintKind, Identity};

use crate::fair_queue::Lanes;
use crate::hint_order::{ClientId, EntryId, Item, Rank, Tag};
use crate::request_queue::{Effects, Submitted, Trouble};

mod elf;
mod expansion_end;
#[cfg(test)]
mod fake_files;
mod file_inspection;
mod ld_cache;
mod library_search;
mod load_plan;
mod loader_arch;
mod program_task;
mod recent_files;
mod script_line;

pub(crate) use file_inspection::{Files, Inspector};
pub(crate) use program_task::{Lead, Located, Report, Role, Task, Turn};
use recent_files::Fresh;

/// How long what was expanded is taken to be in memory.
const FRESH: Duration = Duration::from_secs(10);
/// Files in one expansion.
const FILES_MAX: usize = 256;
/// Bytes that one expansion loads.
const LOAD_MAX: u64 = 1 << 30;
/// Files up to this size are loaded whole, debugging information aside.
const WHOLE_MAX: u64 = 256 << 20;
/// What executes a script may be a script: so many times, as in the kernel.
const SCRIPTS_MAX: u32 = 4;
/// Identities that one client may know a program by.
const KEYS_MAX: usize = 4;

/// A client's part of an expansion.
struct Wanted {
    client: ClientId,
    keys: Vec<Identity>,
    tag: Tag,
    /// Where the expansion stands in the client's lane.
    rank: Option<Rank>,
}

struct Waiting<F> {
    task: Task<F>,
    /// The task is of the program's own file.
    own: bool,
}

struct Expansion<F> {
    path: Arc<[u8]>,
    wanted: Vec<Wanted>,
    tasks: BTreeMap<(Turn, u64), Waiting<F>>,
    /// Workers on it.
    running: usize,
    /// Tasks of the program's own file that wait or are under way.
    own: usize,
    /// Read of it.
    bytes: u64,
    failed: Option<Trouble>,
    /// Names that were followed.
    names: HashSet<Vec<u8>>,
    /// Bytes that may still be loaded.
    left: u64,
}

impl<F> Expansion<F> {
    /// The hints have been completed.
    fn is_loaded(&self) -> bool {
        self.own == 0
    }
}

/// All expansions, and what need not be expanded.
pub(crate) struct Programs<F> {
    open: HashMap<EntryId, Expansion<F>>,
    fresh: Fresh,
    next: u64,
}

impl<F> Default for Programs<F> {
    fn default() -> Self {
        Programs { open: HashMap::new(), fresh: Fresh::default(), next: 0 }
    }
}

impl<F> Programs<F> {
    /// Takes a hint for `path` in; `id` is for a new expansion.
    pub(crate) fn submit(
        &mut self,
        id: EntryId,
        (client, key, tag): (ClientId, Identity, Tag),
        (path, now): (&[u8], Duration),
        lanes: &mut Lanes,
        fx: &mut Effects<F>,
    ) -> Submitted {
        let known = self.fresh.get(path, now);
        let open = known.flatten().and_then(|id| Some((id, self.open.get_mut(&id)?)));
        let Some((id, expansion)) = open else {
            if known.is_some() {
                fx.done.push((client, key));
                fx.complete(client, HintKind::Program, &tag, 0, false);
                return Submitted::Answered;
            }
            self.create(id, (client, key, tag), (path, now), lanes);
            return Submitted::Queued;
        };
        let loaded = expansion.is_loaded();
        let submitted = match expansion.wanted.iter_mut().find(|w| w.client == client) {
            Some(wanted) => {
                wanted.tag.renew(&tag);
                if !wanted.keys.contains(&key) && wanted.keys.len() < KEYS_MAX {
                    wanted.keys.push(key);
                }
                Submitted::Duplicate
            }
            None => {
                lanes.join_at(client, id, path);
                expansion.wanted.push(Wanted { client, keys: vec![key], tag, rank: None });
                Submitted::Merged
            }
        };
        self.place(id, lanes);
        if loaded {
            fx.done.push((client, key));
            fx.complete(client, HintKind::Program, &tag, 0, false);
            return Submitted::Answered;
        }
        submitted
    }

    fn create(
        &mut self,
        id: EntryId,
        (client, key, tag): (ClientId, Identity, Tag),
        (path, now): (&[u8], Duration),
        lanes: &mut Lanes,
    ) {
        let path: Arc<[u8]> = path.into();
        self.fresh.put(path.clone(), now, Some(id));
        let role = Role::Program { scripts: 0 };
        let lead = Lead { name: path.to_vec(), places: vec![path.to_vec()].into(), role };
        let mut expansion = Expansion {
            path: path.clone(),
            wanted: vec![Wanted { client, keys: vec![key], tag, rank: None }],
            tasks: BTreeMap::new(),
            running: 0,
            own: 1,
            bytes: 0,
            failed: None,
            names: HashSet::from([path.to_vec()]),
            left: LOAD_MAX,
        };
        let waiting = Waiting { task: Task::Find { lead }, own: true };
        expansion.tasks.insert((Turn::Find, self.next), waiting);
        self.next += 1;
        self.open.insert(id, expansion);
        lanes.join_at(client, id, &path);
        self.place(id, lanes);
    }

    /// Puts an expansion where it belongs in all lanes after its tasks or tags have changed.
    fn place(&mut self, id: EntryId, lanes: &mut Lanes) {
        let Some(expansion) = self.open.get_mut(&id) else { return };
        let turn = expansion.tasks.first_key_value().map(|((turn, _), _)| *turn);
        for wanted in &mut expansion.wanted {
            // What a target that waits in execve(2) needs first is urgent, not the whole file.
            let rank = turn.map(|turn| match wanted.tag.is_demand() && turn <= Turn::Relocate {
                true => Rank::demand(wanted.tag.position),
                false => Rank::hint(wanted.tag.position.saturating_add(turn as u64)),
            });
            if rank == wanted.rank {
                continue;
            }
            let mut shelf = lanes.shelf(wanted.client, id, false);
            if let Some(rank) = wanted.rank {
                shelf.remove(rank, Item::Program);
            }
            if let Some(rank) = rank {
                shelf.insert(rank, Item::Program);
            }
            wanted.rank = rank;
        }
    }

    /// The next task of expansion `id`, and whether it is of the program's own file.
    pub(crate) fn pop(&mut self, id: EntryId, lanes: &mut Lanes) -> Option<(Task<F>, bool)> {
        let expansion = self.open.get_mut(&id)?;
        let (_, Waiting { task, own }) = expansion.tasks.pop_first()?;
        expansion.running += 1;
        self.place(id, lanes);
        Some((task, own))
    }

    /// A task of expansion `id` is over. The task that the same worker shall do next, if there is.
    pub(crate) fn finish(
        &mut self,
        (id, own): (EntryId, bool),
        task: Task<F>,
        (result, now): (Result<Report<F>, Trouble>, Duration),
        lanes: &mut Lanes,
        fx: &mut Effects<F>,
    ) -> Option<Task<F>> {
        // Closing a file may wait for a server: not under the lock.
        match &task {
            Task::Find { .. } => {}
            Task::Needs { found } => fx.files.push(found.file.clone()),
            Task::Load { file, .. } => fx.files.push(file.clone()),
        }
        let expansion = self.open.get_mut(&id)?;
        let mut next = None;
        match result {
            Ok(Report::Found(Some(located))) => {
                next = self.located((id, own), (located, now), fx);
            }
            Ok(Report::Found(None)) if own => expansion.failed = Some(Trouble::Answer),
            Ok(Report::Found(None)) => {}
            Ok(Report::Leads(leads)) => self.follow(id, leads, now),
            Ok(Report::Loaded(bytes)) => expansion.bytes += if own { bytes } else { 0 },
            Err(trouble) if own => expansion.failed = Some(trouble),
            Err(_) => {}
        }
        let expansion = self.open.get_mut(&id)?;
        if next.is_none() {
            expansion.running -= 1;
        }
        if own {
            expansion.own -= 1;
            if expansion.own == 0 {
                self.loaded(id, fx);
            }
        }
        self.place(id, lanes);
        self.retire(id, lanes, fx);
        next
    }

    /// A file was found: what is to be loaded of it, and what it names, becomes tasks.
    fn located(
        &mut self,
        (id, own): (EntryId, bool),
        (located, now): (Box<Located<F>>, Duration),
        fx: &mut Effects<F>,
    ) -> Option<Task<F>> {
        let expansion = self.open.get_mut(&id)?;
        let Located { path, file, bytes, parts, leads, needs } = *located;
        // Nobody wants it any more, or somebody else has brought it in.
        let stale = expansion.wanted.is_empty() || !own && self.fresh.get(&path, now).is_some();
        if stale {
            fx.files.push(file);
            fx.files.extend(needs.map(|needs| needs.file));
            return None;
        }
        if own {
            expansion.bytes += bytes;
        } else {
            self.fresh.put(path.clone(), now, None);
        }
        for (turn, range) in parts {
            let length = range.end - range.start;
            if length > expansion.left {
                break;
            }
            expansion.left -= length;
            let task = Task::Load { file: file.clone(), path: path.clone(), range };
            expansion.own += usize::from(own);
            expansion.tasks.insert((turn, self.next), Waiting { task, own });
            self.next += 1;
        }
        fx.files.push(file);
        self.follow(id, leads, now);
        needs.map(|found| Task::Needs { found: Arc::new(found) })
    }

    /// Files that were named become tasks, if they are news.
    fn follow(&mut self, id: EntryId, leads: Vec<Lead>, now: Duration) {
        let Some(expansion) = self.open.get_mut(&id) else { return };
        for lead in leads {
            let fresh = lead.places.first().is_none_or(|p| self.fresh.get(p, now).is_some());
            if fresh
                || expansion.wanted.is_empty()
                || expansion.names.len() >= FILES_MAX
                || !expansion.names.insert(lead.name.clone())
            {
                continue;
            }
            let waiting = Waiting { task: Task::Find { lead }, own: false };
            expansion.tasks.insert((Turn::Find, self.next), waiting);
            self.next += 1;
        }
    }

    #[cfg(test)]
    fn is_idle(&self) -> bool {
        self.open.is_empty()
    }
}

#[cfg(test)]
#[path = "program_loading/tests.rs"]
mod tests;
