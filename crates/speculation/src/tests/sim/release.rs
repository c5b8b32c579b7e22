//! Commit and rollback of held output and open speculations.

use super::process::{Back, BackStage, Commit, Doing, Sleep, Stage};
use super::world::{Plant, World, pipe};
use crate::{ANSWER_MAX, Id, Resolution};

impl World {
    fn say(&self, p: usize, position: usize, came: Resolution) {
        self.session.table.resolve(self.processes[p].open[position].id, came);
    }

    fn tell(&self, p: usize, id: Id) {
        self.session.table.poke_dependents(id, &self.processes[p].seat);
    }

    fn close(&self, p: usize, position: usize) {
        let (open, seat) = (&self.processes[p].open[position], &self.processes[p].seat);
        self.tell(p, open.id);
        self.session.table.close(open.id);
        if let Some(other) = open.depends_on.filter(|_| !self.has(Plant::StaysDependent)) {
            self.session.table.leave(other, seat);
        }
    }

    fn leave_if_alone(&self, p: usize) {
        if self.processes[p].open.is_empty() && !self.has(Plant::NeverLeaves) {
            self.session.tails.stop_reading(&self.processes[p].seat);
        }
    }

    pub fn commits(&mut self, p: usize, mut commit: Commit) {
        let next = self.processes[p].open.get(commit.count).map(|open| open.held);
        let mark = next.unwrap_or_else(|| self.processes[p].held_end());
        commit.at = match commit.at {
            Stage::Says(n) if n < commit.count => {
                let is_done = self.has(Plant::DoneBeforeRelease);
                self.say(
                    p,
                    n,
                    if is_done { Resolution::Committed } else { Resolution::Committing },
                );
                Stage::Says(n + 1)
            }
            Stage::Says(_) => Stage::Releases,
            Stage::Releases if self.processes[p].first_held < mark => self.release(p, &mut commit),
            Stage::Releases => Stage::Closes(0),
            Stage::Writes(done) => {
                let effect = self.processes[p].held[0].effect.clone();
                let done = done + self.puts(effect.to, &effect.bytes[done..]);
                if done < effect.bytes.len() {
                    self.counts.blocked += 1;
                    self.processes[p].sleep = effect.to.map_or(Sleep::Not, Sleep::UntilRoom);
                    Stage::Writes(done)
                } else {
                    self.released(p)
                }
            }
            Stage::Closes(n) if n < commit.count => {
                self.say(p, n, Resolution::Committed);
                self.close(p, n);
                Stage::Closes(n + 1)
            }
            Stage::Closes(_) => {
                self.processes[p].open.drain(..commit.count);
                self.leave_if_alone(p);
                let back = |to| Back { to, at: BackStage::Says(to) };
                let failed = commit.failed.map(|failed| back(failed - commit.count));
                self.processes[p].doing = failed.map_or(Doing::Runs, Doing::GoesBack);
                return;
            }
        };
        self.processes[p].doing = Doing::Commits(commit);
    }

    /// Begins the release of the first held call. Dependents that may continue are poked before a
    /// long write.
    fn release(&mut self, p: usize, commit: &mut Commit) -> Stage {
        let (position, held) = (self.processes[p].first_held, self.processes[p].held[0].clone());
        let (to, bytes) = (held.effect.to, &held.effect.bytes);
        let mut read = 0;
        if let (Some(number), Some(id)) = (to, held.shown) {
            let seat = &self.processes[p].seat;
            read = self.session.tails.begin_release(pipe(number), position, seat) as usize;
            if read > 0 && !commit.passed.contains(&id) {
                commit.passed.push(id);
            }
        }
        self.must(read <= bytes.len(), "more was read than was written");
        self.begins(p, to, bytes);
        if read >= bytes.len() {
            return self.released(p);
        }
        self.tell_of_passed(p, commit);
        Stage::Writes(read)
    }

    fn tell_of_passed(&self, p: usize, commit: &mut Commit) {
        for id in commit.passed.drain(..).filter(|_| !self.has(Plant::TellsNobody)) {
            self.tell(p, id);
        }
    }

    /// Ends the release of the first held call.
    fn released(&mut self, p: usize) -> Stage {
        self.ends(p);
        let process = &mut self.processes[p];
        let position = process.first_held;
        process.first_held += 1;
        if let Some(held) = process.held.pop_front() {
            let seat = &process.seat;
            match (held.effect.to, held.shown) {
                (Some(number), Some(_)) => {
                    self.session.tails.end_release(pipe(number), position, seat);
                }
                (Some(_), None) => process.unseen -= 1,
                (None, _) => self.session.files.release(p as u64, 0),
            }
        }
        Stage::Releases
    }

    pub fn goes_back(&mut self, p: usize, mut back: Back) {
        let open = self.processes[p].open.len();
        let is_silent = self.has(Plant::SaysNothing);
        back.at = match back.at {
            BackStage::Says(n) if n < open && is_silent => BackStage::Says(open),
            BackStage::Says(n) if n < open => {
                self.say(p, n, Resolution::RolledBack);
                BackStage::Says(n + 1)
            }
            BackStage::Says(_) => {
                self.becomes(p, back.to);
                BackStage::Drops
            }
            BackStage::Drops if self.drops_one(p, back.to) => BackStage::Drops,
            BackStage::Drops => BackStage::Closes(back.to),
            BackStage::Closes(n) if n < open => {
                self.close(p, n);
                BackStage::Closes(n + 1)
            }
            BackStage::Closes(_) => {
                self.processes[p].open.truncate(back.to);
                self.leave_if_alone(p);
                self.processes[p].doing = Doing::Runs;
                return;
            }
        };
        self.processes[p].doing = Doing::GoesBack(back);
    }

    /// Restores the saved state, and continues with the right answer if it was a prediction.
    fn becomes(&mut self, p: usize, to: usize) {
        let open = &self.processes[p].open[to];
        let (truth, mut state) = (open.truth, open.before.clone());
        if open.depends_on.is_none() {
            let mut answer = [0; ANSWER_MAX];
            let len = self.session.table.answer(open.id, &mut answer);
            let is_it = answer[..len] == truth.to_ne_bytes();
            self.must(is_it, "an answer is not what was said");
            state.answered(truth);
            self.counts.failed += 1;
        } else {
            self.counts.taken_back += 1;
        }
        self.processes[p].state = state;
    }

    /// Drops the last call held for the rollback. Returns false if none is left.
    fn drops_one(&mut self, p: usize, to: usize) -> bool {
        let process = &mut self.processes[p];
        if process.held_end() <= process.open[to].held {
            return false;
        }
        let Some(held) = process.held.pop_back() else { return false };
        let position = process.held_end();
        match (held.effect.to, held.shown) {
            (Some(_), Some(_)) if self.plant == Some(Plant::KeepsTail) => {}
            (Some(number), Some(_)) => {
                self.session.tails.roll_back(pipe(number), position, &process.seat);
            }
            (Some(_), None) => process.unseen -= 1,
            (None, _) => self.session.files.release(p as u64, 0),
        }
        true
    }
}
