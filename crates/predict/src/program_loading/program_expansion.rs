//! Expansions of programs: their tasks, and for whom they are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use runahead_abi::HintKind;
use runahead_estimators::Identity;

use super::program_task::{FileLead, Located, Report, Role, Task, Urgency};
use super::recent_files::RecentFiles;
use crate::deferred_effects::{Effects, StepFailure, Submitted};
use crate::hint_order::{ClientId, EntryId, Item, Rank, Tag};
use crate::task_queue::TaskQueue;

/// Files in one expansion.
pub(super) const FILES_MAX: usize = 256;
/// Bytes that one expansion loads.
const LOAD_MAX: u64 = 1 << 30;
/// Identities that one client may know a program by.
const KEYS_MAX: usize = 4;

/// A client's part of an expansion.
pub(super) struct ExpansionClient {
    pub(super) client: ClientId,
    pub(super) keys: Vec<Identity>,
    pub(super) tag: Tag,
    /// Rank of the expansion in the client's queue, if it has tasks that wait.
    pub(super) rank: Option<Rank>,
}

pub(super) struct WaitingTask<F> {
    pub(super) task: Task<F>,
    /// The task is of the program's own file.
    pub(super) own: bool,
}

pub struct Expansion<F> {
    pub(super) path: Arc<[u8]>,
    pub(super) wanted: Vec<ExpansionClient>,
    pub(super) tasks: BTreeMap<(Urgency, u64), WaitingTask<F>>,
    /// Workers on it.
    pub(super) running: usize,
    /// Tasks of the program's own file that wait or are under way.
    pub(super) own: usize,
    /// Read of it.
    pub(super) bytes: u64,
    pub(super) failed: Option<StepFailure>,
    /// Names that were followed.
    pub(super) names: HashSet<Vec<u8>>,
    /// Bytes that may still be loaded.
    pub(super) left: u64,
}

impl<F> Expansion<F> {
    /// The hints have been completed.
    pub(super) fn is_loaded(&self) -> bool {
        self.own == 0
    }
}

/// Open expansions, and the files that need no expansion.
pub struct Programs<F> {
    pub(super) open: HashMap<EntryId, Expansion<F>>,
    pub(super) fresh: RecentFiles,
    pub(super) next: u64,
}

impl<F> Default for Programs<F> {
    fn default() -> Self {
        Programs { open: HashMap::new(), fresh: RecentFiles::default(), next: 0 }
    }
}

impl<F> Programs<F> {
    /// Takes a hint for `path` in; `id` is for a new expansion.
    pub fn submit(
        &mut self,
        id: EntryId,
        (client, key, tag): (ClientId, Identity, Tag),
        (path, now): (&[u8], Duration),
        queue: &mut impl TaskQueue,
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
            self.create(id, (client, key, tag), (path, now), queue);
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
                queue.join_at(client, id, path);
                expansion.wanted.push(ExpansionClient { client, keys: vec![key], tag, rank: None });
                Submitted::Merged
            }
        };
        self.place(id, queue);
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
        queue: &mut impl TaskQueue,
    ) {
        let path: Arc<[u8]> = path.into();
        self.fresh.put(path.clone(), now, Some(id));
        let role = Role::Program { scripts: 0 };
        let lead = FileLead { name: path.to_vec(), places: vec![path.to_vec()].into(), role };
        let mut expansion = Expansion {
            path: path.clone(),
            wanted: vec![ExpansionClient { client, keys: vec![key], tag, rank: None }],
            tasks: BTreeMap::new(),
            running: 0,
            own: 1,
            bytes: 0,
            failed: None,
            names: HashSet::from([path.to_vec()]),
            left: LOAD_MAX,
        };
        let waiting = WaitingTask { task: Task::Find { lead }, own: true };
        expansion.tasks.insert((Urgency::Find, self.next), waiting);
        self.next += 1;
        self.open.insert(id, expansion);
        queue.join_at(client, id, &path);
        self.place(id, queue);
    }

    /// Puts an expansion where it belongs in all queues after its tasks or tags have changed.
    fn place(&mut self, id: EntryId, queue: &mut impl TaskQueue) {
        let Some(expansion) = self.open.get_mut(&id) else { return };
        let urgency = expansion.tasks.first_key_value().map(|((urgency, _), _)| *urgency);
        for wanted in &mut expansion.wanted {
            // What a target that waits in execve(2) needs first is urgent, not the whole file.
            let rank = urgency.map(|urgency| {
                match wanted.tag.is_demand() && urgency <= Urgency::Relocate {
                    true => Rank::demand(wanted.tag.position),
                    false => Rank::hint(wanted.tag.position.saturating_add(urgency as u64)),
                }
            });
            if rank == wanted.rank {
                continue;
            }
            if let Some(rank) = wanted.rank {
                queue.remove(wanted.client, id, rank, Item::Program);
            }
            if let Some(rank) = rank {
                queue.insert(wanted.client, id, rank, Item::Program);
            }
            wanted.rank = rank;
        }
    }

    /// The next task of expansion `id`, and whether it is of the program's own file.
    pub fn pop(&mut self, id: EntryId, queue: &mut impl TaskQueue) -> Option<(Task<F>, bool)> {
        let expansion = self.open.get_mut(&id)?;
        let (_, WaitingTask { task, own }) = expansion.tasks.pop_first()?;
        expansion.running += 1;
        self.place(id, queue);
        Some((task, own))
    }

    /// A task of expansion `id` is over. The task that the same worker shall do next, if there is.
    pub fn finish(
        &mut self,
        (id, own): (EntryId, bool),
        task: Task<F>,
        (result, now): (Result<Report<F>, StepFailure>, Duration),
        queue: &mut impl TaskQueue,
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
            Ok(Report::Found(None)) if own => expansion.failed = Some(StepFailure::Answer),
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
        self.place(id, queue);
        self.retire(id, queue, fx);
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
        // No client wants the expansion any more, or another expansion has loaded the file.
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
        for (urgency, range) in parts {
            let length = range.end - range.start;
            if length > expansion.left {
                break;
            }
            expansion.left -= length;
            let task = Task::Load { file: file.clone(), path: path.clone(), range };
            expansion.own += usize::from(own);
            expansion.tasks.insert((urgency, self.next), WaitingTask { task, own });
            self.next += 1;
        }
        fx.files.push(file);
        self.follow(id, leads, now);
        needs.map(|found| Task::Needs { found: Arc::new(found) })
    }

    /// Files that were named become tasks, if they are news.
    fn follow(&mut self, id: EntryId, leads: Vec<FileLead>, now: Duration) {
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
            let waiting = WaitingTask { task: Task::Find { lead }, own: false };
            expansion.tasks.insert((Urgency::Find, self.next), waiting);
            self.next += 1;
        }
    }

    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }
}
