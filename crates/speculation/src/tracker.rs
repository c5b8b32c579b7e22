//! The tracker as its host sees it.

use crate::action::Action;
use crate::commit::commit;
use crate::fail::fail;
use crate::ids::{HeldId, ProcessId, SpecId, Thing, UndoId};
use crate::log::Back;
use crate::operation::{
    Access, Accessed, Created, Effect, Limits, Moment, Output, Refused, Return,
};
use crate::plant::Plant;
use crate::set::{Set, Slot};
use crate::state::State;

/// Keeps account of which process and which object depends on which speculation.
///
/// The host tells it of what processes do, *before* it lets them do it, and of what becomes of
/// predictions; and carries out the [actions](Action) that it is answered with. What was refused
/// has not been done.
///
/// Processes and objects that depend on nothing are not known here, so that they need not be
/// introduced, nor taken leave of.
#[derive(Debug, Default)]
pub struct Tracker {
    state: State,
    limits: Limits,
}

impl Tracker {
    /// A tracker of which nothing depends on anything.
    pub fn new(limits: Limits) -> Self {
        Tracker { state: State::default(), limits }
    }

    /// `process` goes on with a predicted result.
    ///
    /// # Errors
    /// [`Refused::TooMany`], [`Refused::NeedsCheckpoint`], [`Refused::Exited`].
    pub fn create(
        &mut self,
        process: ProcessId,
        effect: Effect,
        moment: Moment,
    ) -> Result<Created, Refused> {
        self.must_run(process)?;
        if self.state.specs.len() >= self.limits.open {
            return Err(Refused::TooMany(self.limits.open));
        }
        let (ret, back) = self.back(process, moment)?;
        let after = self.dependencies(process);
        let (spec, slot) = self.state.specs.open();
        self.state.push(process.into(), Set::of(slot), back, Some(spec));
        if effect == Effect::Changes {
            self.state.changed(process);
        }
        Ok(Created { spec, after, back: ret })
    }

    /// `process` looks at things, changes some, and makes some, in one operation (section 6.1).
    ///
    /// It comes to depend on all that those depend on which it observes or changes. What it
    /// changes or makes then depends on all that the process depends on. To read from a pipe or a
    /// socket is to change it. To send a signal is to make it, and to observe the receiver; to have
    /// it delivered is to change it (section 6.7).
    ///
    /// # Errors
    /// [`Refused::NeedsCheckpoint`], [`Refused::Exited`], [`Refused::Exists`].
    pub fn access(
        &mut self,
        process: ProcessId,
        access: Access<'_>,
        moment: Moment,
    ) -> Result<Accessed, Refused> {
        self.must_run(process)?;
        for &(object, _) in access.makes {
            self.must_be_new(object.into())?;
        }
        let blind = self.state.breaks(Plant::ChangesBlindly);
        let changed = access.changes.iter().map(|&(object, _)| Thing::Object(object));
        let observed = access.observes.iter().copied().chain(changed.filter(|_| !blind));
        let back = self.learn(process, observed, moment)?;
        access.observes.iter().for_each(|thing| self.seen(*thing));
        let kept = self.is_speculative(process);
        if kept {
            for &(object, undo) in access.changes {
                self.mark(process, object.into(), Back::Change(undo));
            }
            for &(object, undo) in access.makes {
                self.mark(process, object.into(), Back::Making(undo));
            }
            if access.changes.len() + access.makes.len() > 0 {
                self.state.changed(process);
            }
        }
        Ok(Accessed { back, kept })
    }

    /// `process` looks at something.
    ///
    /// # Errors
    /// As for [`Tracker::access`].
    pub fn observe(
        &mut self,
        process: ProcessId,
        thing: impl Into<Thing>,
        moment: Moment,
    ) -> Result<Return, Refused> {
        let access = Access { observes: &[thing.into()], ..Access::default() };
        Ok(self.access(process, access, moment)?.back)
    }

    /// `process` does something that others can see, or is seen itself, and the tracker is not told
    /// of it: what follows does not share a checkpoint with what came before.
    pub fn changed(&mut self, process: ProcessId) {
        self.state.changed(process);
    }

    /// `parent` forks `child`, which depends on what the parent depends on, and is destroyed if
    /// any of that fails (section 6.8). Whether it depends on anything.
    ///
    /// # Errors
    /// [`Refused::Exited`], [`Refused::Exists`].
    pub fn fork(&mut self, parent: ProcessId, child: ProcessId) -> Result<bool, Refused> {
        self.must_run(parent)?;
        self.must_be_new(child.into())?;
        let speculative = self.is_speculative(parent);
        if speculative {
            self.mark(parent, child.into(), Back::Birth);
            self.state.changed(parent);
        }
        Ok(speculative)
    }

    /// `process` exits (section 6.9). Whether its number may be given away at once, when it has
    /// been waited for; otherwise [`Action::MayGo`] will say so.
    ///
    /// # Errors
    /// [`Refused::Exited`].
    pub fn exit(&mut self, process: ProcessId) -> Result<bool, Refused> {
        self.must_run(process)?;
        if let Some(log) = self.state.logs.get_mut(&Thing::Process(process)) {
            log.exited = true;
        }
        Ok(!self.is_speculative(process) || self.state.breaks(Plant::ForgetsExited))
    }

    /// `parent` waits for `child`, which has exited, and learns how it did. `undo` has it wait
    /// again. Only [`Action::MayGo`] says when the child's number may be given away, if the undoing
    /// is kept.
    ///
    /// # Errors
    /// [`Refused::NeedsCheckpoint`], [`Refused::Exited`], [`Refused::Alive`] if the child depends
    /// on something and has not exited.
    pub fn wait(
        &mut self,
        parent: ProcessId,
        child: ProcessId,
        undo: UndoId,
        moment: Moment,
    ) -> Result<Accessed, Refused> {
        self.must_run(parent)?;
        let thing = Thing::Process(child);
        if self.state.logs.get(&thing).is_some_and(|log| !log.exited) {
            return Err(Refused::Alive(child));
        }
        let back = self.learn(parent, [thing].into_iter(), moment)?;
        let kept = self.is_speculative(parent);
        if kept {
            self.mark(parent, thing, Back::Reap(undo));
            self.state.logs.entry(thing).or_default().exited = true;
            self.state.changed(parent);
        }
        Ok(Accessed { back, kept })
    }

    /// `process` puts something out. What is held is released when all that the process depends
    /// on is committed, and all that comes to share its last checkpoint; also if the process has
    /// exited by then. It is dropped when any of that fails.
    ///
    /// What is released or goes at once is in an order in which it could have been put out without
    /// speculation: nothing comes before what its process had put out, or could have known of.
    /// Output of others does not wait for it, as what the others do may be what a prediction is
    /// about.
    ///
    /// # Errors
    /// [`Refused::Exited`].
    pub fn output(&mut self, process: ProcessId, held: HeldId) -> Result<Output, Refused> {
        self.must_run(process)?;
        let order = self.state.order();
        let log = self.state.logs.get_mut(&Thing::Process(process));
        Ok(match log.and_then(|log| log.last()) {
            None => Output::Now,
            Some(last) => {
                last.held.push((order, held));
                Output::Held
            }
        })
    }

    /// The prediction has come true. Speculations may be committed in any order; what depends on
    /// others still waits for those.
    ///
    /// # Errors
    /// [`Refused::Resolved`].
    pub fn commit(&mut self, spec: SpecId) -> Result<Vec<Action>, Refused> {
        let slot = self.slot(spec)?;
        Ok(commit(&mut self.state, slot))
    }

    /// The prediction has not come true: all that depends on it is taken back, and nothing else,
    /// but for what shares a checkpoint with that.
    ///
    /// # Errors
    /// [`Refused::Resolved`].
    pub fn fail(&mut self, spec: SpecId) -> Result<Vec<Action>, Refused> {
        let slot = self.slot(spec)?;
        Ok(fail(&mut self.state, slot))
    }

    /// The open speculations on which something depends, the oldest first.
    pub fn dependencies(&self, thing: impl Into<Thing>) -> Vec<SpecId> {
        let log = self.state.logs.get(&thing.into());
        log.map(|log| self.state.specs.list(log.dependencies())).unwrap_or_default()
    }

    /// The open speculations on which `process` would come to depend if it saw all of `things`, the
    /// oldest first. What a host may have it wait for instead.
    pub fn would_learn(&self, process: ProcessId, things: &[Thing]) -> Vec<SpecId> {
        self.state.specs.list(&self.state.unknown(process.into(), things.iter().copied()))
    }

    /// Whether something depends on any speculation.
    pub fn is_speculative(&self, thing: impl Into<Thing>) -> bool {
        self.state.logs.contains_key(&thing.into())
    }

    /// Speculations that are open.
    pub fn open(&self) -> usize {
        self.state.specs.len()
    }

    /// Processes and objects that depend on speculations.
    pub fn speculative(&self) -> usize {
        self.state.logs.len()
    }

    /// Has a rule broken.
    #[cfg(test)]
    pub(crate) fn plant(&mut self, plant: Option<Plant>) {
        self.state.plant = plant;
    }

    fn slot(&self, spec: SpecId) -> Result<Slot, Refused> {
        self.state.specs.slot(spec).ok_or(Refused::Resolved(spec))
    }

    fn must_run(&self, process: ProcessId) -> Result<(), Refused> {
        let log = self.state.logs.get(&Thing::Process(process));
        if log.is_some_and(|log| log.exited) { Err(Refused::Exited(process)) } else { Ok(()) }
    }

    fn must_be_new(&self, thing: Thing) -> Result<(), Refused> {
        if self.is_speculative(thing) { Err(Refused::Exists(thing)) } else { Ok(()) }
    }

    fn back(&mut self, process: ProcessId, moment: Moment) -> Result<(Return, Back), Refused> {
        if let Some(id) = moment.checkpoint {
            assert!(!self.state.has(process, id), "{id} of {process} was taken long ago");
        }
        self.state.back(process, moment, self.limits.share)
    }

    /// `process` comes to depend on all that `observed` does.
    fn learn(
        &mut self,
        process: ProcessId,
        observed: impl Iterator<Item = Thing>,
        moment: Moment,
    ) -> Result<Return, Refused> {
        let unknown = self.state.unknown(process.into(), observed);
        if unknown.is_empty() {
            return Ok(Return::Unneeded);
        }
        let (ret, back) = self.back(process, moment)?;
        self.state.push(process.into(), unknown, back, None);
        Ok(ret)
    }

    /// Somebody has seen `thing`. A process that is taken back to before that would show itself as
    /// it may not be when it does the same again: what follows does not share a checkpoint.
    fn seen(&mut self, thing: Thing) {
        if let Thing::Process(process) = thing
            && !self.state.breaks(Plant::SharesAfterSeen)
        {
            self.state.changed(process);
        }
    }

    /// `thing` comes to depend on all that `process` does, and can be taken `back` to before that.
    fn mark(&mut self, process: ProcessId, thing: Thing, back: Back) {
        if self.state.breaks(Plant::ChangesUnmarked) && matches!(back, Back::Change(_)) {
            return;
        }
        let refs = self.state.unknown(thing, [Thing::Process(process)].into_iter());
        self.state.push(thing, refs, back, None);
    }
}
