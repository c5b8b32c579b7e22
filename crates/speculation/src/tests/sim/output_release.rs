//! Commit and rollback of held output and open speculations.

use super::process::{Activity, Commit, CommitStage, Rollback, RollbackStage, Sleep};
use super::simulated_world::{Plant, World, pipe};
use crate::{ANSWER_MAX, Id, Resolution};

impl World {
    fn resolve(&self, p: usize, position: usize, came: Resolution) {
        self.session.table.resolve(self.processes[p].open[position].id, came);
    }

    fn poke_dependents(&self, p: usize, id: Id) {
        self.session.table.poke_dependents(id, &self.processes[p].seat);
    }

    fn close(&self, p: usize, position: usize) {
        let (open, seat) = (&self.processes[p].open[position], &self.processes[p].seat);
        self.poke_dependents(p, open.id);
        self.session.table.close(open.id);
        if let Some(other) = open.depends_on.filter(|_| !self.has(Plant::StaysDependent)) {
            self.session.table.leave(other, seat);
        }
    }

    fn stop_reading_if_done(&self, p: usize) {
        if self.processes[p].open.is_empty() && !self.has(Plant::NeverStopsReading) {
            self.session.tails.stop_reading(&self.processes[p].seat);
        }
    }

    pub fn commit_step(&mut self, p: usize, mut commit: Commit) {
        let next = self.processes[p].open.get(commit.count).map(|open| open.held);
        let mark = next.unwrap_or_else(|| self.processes[p].held_end());
        commit.at = match commit.at {
            CommitStage::Says(n) if n < commit.count => {
                let is_done = self.has(Plant::DoneBeforeRelease);
                self.resolve(
                    p,
                    n,
                    if is_done { Resolution::Committed } else { Resolution::Committing },
                );
                CommitStage::Says(n + 1)
            }
            CommitStage::Says(_) => CommitStage::Releases,
            CommitStage::Releases if self.processes[p].first_held < mark => {
                self.release_first(p, &mut commit)
            }
            CommitStage::Releases => CommitStage::Closes(0),
            CommitStage::Writes(done) => {
                let effect = self.processes[p].held[0].effect.clone();
                let done = done + self.write_channel(effect.to, &effect.bytes[done..]);
                if done < effect.bytes.len() {
                    self.counts.blocked += 1;
                    self.processes[p].sleep = effect.to.map_or(Sleep::Not, Sleep::UntilRoom);
                    CommitStage::Writes(done)
                } else {
                    self.finish_first(p)
                }
            }
            CommitStage::Closes(n) if n < commit.count => {
                self.resolve(p, n, Resolution::Committed);
                self.close(p, n);
                CommitStage::Closes(n + 1)
            }
            CommitStage::Closes(_) => {
                self.processes[p].open.drain(..commit.count);
                self.stop_reading_if_done(p);
                let back = |to| Rollback { to, at: RollbackStage::Says(to) };
                let failed = commit.failed.map(|failed| back(failed - commit.count));
                self.processes[p].doing = failed.map_or(Activity::Runs, Activity::RollsBack);
                return;
            }
        };
        self.processes[p].doing = Activity::Commits(commit);
    }

    /// Begins the release of the first held call. Dependents that may continue are poked before a
    /// long write.
    fn release_first(&mut self, p: usize, commit: &mut Commit) -> CommitStage {
        let (position, held) = (self.processes[p].first_held, self.processes[p].held[0].clone());
        let (to, bytes) = (held.effect.to, &held.effect.bytes);
        let mut read = 0;
        if let (Some(number), Some(id)) = (to, held.shared) {
            let seat = &self.processes[p].seat;
            read = self.session.tails.begin_release(pipe(number), position, seat) as usize;
            if read > 0 && !commit.to_poke.contains(&id) {
                commit.to_poke.push(id);
            }
        }
        self.must(read <= bytes.len(), "more was read than was written");
        self.begin_effect(p, to, bytes);
        if read >= bytes.len() {
            return self.finish_first(p);
        }
        self.poke_before_write(p, commit);
        CommitStage::Writes(read)
    }

    fn poke_before_write(&self, p: usize, commit: &mut Commit) {
        for id in commit.to_poke.drain(..).filter(|_| !self.has(Plant::PokesNoDependent)) {
            self.poke_dependents(p, id);
        }
    }

    /// Ends the release of the first held call.
    fn finish_first(&mut self, p: usize) -> CommitStage {
        self.end_effect(p);
        let process = &mut self.processes[p];
        let position = process.first_held;
        process.first_held += 1;
        if let Some(held) = process.held.pop_front() {
            let seat = &process.seat;
            match (held.effect.to, held.shared) {
                (Some(number), Some(_)) => {
                    self.session.tails.end_release(pipe(number), position, seat);
                }
                (Some(_), None) => process.unshared -= 1,
                (None, _) => self.session.files.release(p as u64, 0),
            }
        }
        CommitStage::Releases
    }

    pub fn rollback_step(&mut self, p: usize, mut back: Rollback) {
        let open = self.processes[p].open.len();
        let is_silent = self.has(Plant::HidesRollback);
        back.at = match back.at {
            RollbackStage::Says(n) if n < open && is_silent => RollbackStage::Says(open),
            RollbackStage::Says(n) if n < open => {
                self.resolve(p, n, Resolution::RolledBack);
                RollbackStage::Says(n + 1)
            }
            RollbackStage::Says(_) => {
                self.restore(p, back.to);
                RollbackStage::Drops
            }
            RollbackStage::Drops if self.drop_last_held(p, back.to) => RollbackStage::Drops,
            RollbackStage::Drops => RollbackStage::Closes(back.to),
            RollbackStage::Closes(n) if n < open => {
                self.close(p, n);
                RollbackStage::Closes(n + 1)
            }
            RollbackStage::Closes(_) => {
                self.processes[p].open.truncate(back.to);
                self.stop_reading_if_done(p);
                self.processes[p].doing = Activity::Runs;
                return;
            }
        };
        self.processes[p].doing = Activity::RollsBack(back);
    }

    /// Restores the saved state, and continues with the right answer if it was a prediction.
    fn restore(&mut self, p: usize, to: usize) {
        let open = &self.processes[p].open[to];
        let (truth, mut state) = (open.truth, open.before.clone());
        if open.depends_on.is_none() {
            let mut answer = [0; ANSWER_MAX];
            let len = self.session.table.answer(open.id, &mut answer);
            let is_it = answer[..len] == truth.to_ne_bytes();
            self.must(is_it, "the answer differs from the one that was sent");
            state.answered(truth);
            self.counts.failed += 1;
        } else {
            self.counts.rolled_back += 1;
        }
        self.processes[p].state = state;
    }

    /// Drops the last call held for the rollback. Returns false if none is left.
    fn drop_last_held(&mut self, p: usize, to: usize) -> bool {
        let process = &mut self.processes[p];
        if process.held_end() <= process.open[to].held {
            return false;
        }
        let Some(held) = process.held.pop_back() else { return false };
        let position = process.held_end();
        match (held.effect.to, held.shared) {
            (Some(_), Some(_)) if self.plant == Some(Plant::KeepsTail) => {}
            (Some(number), Some(_)) => {
                self.session.tails.roll_back(pipe(number), position, &process.seat);
            }
            (Some(_), None) => process.unshared -= 1,
            (None, _) => self.session.files.release(p as u64, 0),
        }
        true
    }
}
