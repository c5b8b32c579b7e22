//! Byte ranges of one file that one client wants, and those that are being read.
//!
//! A *want* is a range that no worker reads yet; a *piece* is one that a worker cut off a want and
//! is reading. Wants that touch are joined, so that a program's small reads become large ones; what
//! a new hint shares with a piece, or with a want that is partly read, is not asked for twice. A
//! *group* is what one completion reports: one hint, or several that were joined. It has the most
//! urgent priority and the newest run of them all. What a hint shares with another group is
//! reported with that group; log keys wait for both. What a worker reads for one client is a piece
//! for every other client that wants it, too ([`Ranges::claim`]).
//!
//! Invariant: wants and pieces are disjoint, and a group lives as long as it has parts (wants and
//! pieces); `check` in the tests states it in code.

use std::collections::BTreeMap;
use std::ops::Range;

use hashbrown::HashMap;
use runahead_estimators::access_identity::{CHUNK_BYTES, ChunkIndex};
use runahead_predict::{Item, Rank, Tag};

use crate::fair_queue::QueueHandle;

#[derive(Clone, Copy)]
struct Want {
    end: u64,
    group: u64,
    rank: Rank,
}

struct Piece {
    end: u64,
    group: u64,
}

/// Hints that one completion reports.
pub(crate) struct Group {
    pub tag: Tag,
    /// Wants and pieces that belong to it.
    parts: usize,
    /// Bytes read so far.
    pub bytes: u64,
    /// A part of it could not be read.
    pub failed: bool,
}

/// Result of adding a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Added {
    New,
    Joined,
    Known,
}

/// Wants and pieces of one client in one file.
#[derive(Default)]
pub(crate) struct Ranges {
    wants: BTreeMap<u64, Want>,
    pieces: BTreeMap<u64, Piece>,
    groups: HashMap<u64, Group>,
    next_group: u64,
}

/// The chunks that have at least one byte in `range`.
pub(crate) fn chunks(range: &Range<u64>) -> impl Iterator<Item = ChunkIndex> + use<> {
    (range.start / CHUNK_BYTES..range.end.div_ceil(CHUNK_BYTES)).map(ChunkIndex)
}

impl Ranges {
    pub(crate) fn is_idle(&self) -> bool {
        self.groups.is_empty()
    }

    /// Ranks and items of all wants.
    pub(crate) fn items(&self) -> impl Iterator<Item = (Rank, Item)> + '_ {
        self.wants.iter().map(|(&start, want)| (want.rank, Item::Data(start)))
    }

    /// Starts of the wants with at least one byte in `range`, or (`touch`) next to it.
    fn wants_at(&self, range: &Range<u64>, touch: bool) -> Vec<u64> {
        let slack = u64::from(touch);
        let before = self.wants.range(..range.start).next_back();
        let before = before.filter(|(_, want)| want.end + slack > range.start);
        let inside = self.wants.range(range.start..range.end.saturating_add(slack));
        before.into_iter().chain(inside).map(|(&start, _)| start).collect()
    }

    /// Pieces with at least one byte in `range`.
    fn pieces_at(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, &Piece)> + '_ {
        let (start, end) = (range.start, range.end);
        let before = self.pieces.range(..start).next_back();
        let before = before.filter(move |(_, piece)| piece.end > start);
        before.into_iter().chain(self.pieces.range(start..end.max(start))).map(|(&s, p)| (s, p))
    }

    /// True while a byte of the chunk is wanted or being read.
    pub(crate) fn has_work_in(&self, chunk: ChunkIndex) -> bool {
        let range = chunk.0 * CHUNK_BYTES..(chunk.0 + 1).saturating_mul(CHUNK_BYTES);
        self.pieces_at(&range).next().is_some() || !self.wants_at(&range, false).is_empty()
    }

    /// Wants the bytes of `range`, which is not empty.
    pub(crate) fn add(
        &mut self,
        range: Range<u64>,
        tag: &Tag,
        shelf: &mut QueueHandle<'_>,
    ) -> Added {
        let (mut span, mut joined) = (range.clone(), 0);
        let mut all = Group { tag: *tag, parts: 0, bytes: 0, failed: false };
        let mut old: Option<Tag> = None;
        for start in self.wants_at(&range, true) {
            let want = &self.wants[&start];
            let group = &self.groups[&want.group];
            if group.parts == 1 {
                joined += want.end - start;
                span = span.start.min(start)..span.end.max(want.end);
                all.bytes += group.bytes;
                all.failed |= group.failed;
                match &mut old {
                    Some(old) => old.join(&group.tag),
                    None => old = Some(group.tag),
                }
                shelf.remove(want.rank, Item::Data(start));
                self.groups.remove(&want.group);
                self.wants.remove(&start);
            } else if want.end > range.start && start < range.end {
                self.renew(start, tag, shelf);
            }
        }
        let gaps = self.gaps(&span);
        if gaps.is_empty() {
            // All of it is being read; the newest run shall hear of it.
            let groups: Vec<u64> = self.pieces_at(&range).map(|(_, piece)| piece.group).collect();
            for group in groups {
                if let Some(group) = self.groups.get_mut(&group) {
                    group.tag.renew(tag);
                }
            }
            return Added::Known;
        }
        let grew = gaps.iter().map(|gap| gap.end - gap.start).sum::<u64>() > joined;
        if let Some(mut old) = old {
            if grew {
                old.join(tag)
            } else {
                old.renew(tag)
            }
            all.tag = old;
        }
        let id = self.next_group;
        self.next_group += 1;
        all.parts = gaps.len();
        let rank = all.tag.rank();
        for gap in gaps {
            shelf.insert(rank, Item::Data(gap.start));
            self.wants.insert(gap.start, Want { end: gap.end, group: id, rank });
        }
        self.groups.insert(id, all);
        match (grew, joined) {
            (false, _) => Added::Known,
            (true, 0) => Added::New,
            (true, _) => Added::Joined,
        }
    }

    fn renew(&mut self, start: u64, tag: &Tag, shelf: &mut QueueHandle<'_>) {
        let Some(want) = self.wants.get_mut(&start) else { return };
        let Some(group) = self.groups.get_mut(&want.group) else { return };
        group.tag.renew(tag);
        shelf.remove(want.rank, Item::Data(start));
        want.rank = group.tag.rank();
        shelf.insert(want.rank, Item::Data(start));
    }

    /// Returns the parts of `span` that are neither wanted nor being read.
    fn gaps(&self, span: &Range<u64>) -> Vec<Range<u64>> {
        let mut taken: Vec<_> = self.pieces_at(span).map(|(start, p)| (start, p.end)).collect();
        taken.extend(self.wants_at(span, false).into_iter().map(|s| (s, self.wants[&s].end)));
        taken.sort_unstable();
        let mut gaps = Vec::new();
        let mut at = span.start;
        for (start, end) in taken {
            if start > at {
                gaps.push(at..start);
            }
            at = at.max(end);
        }
        if at < span.end {
            gaps.push(at..span.end);
        }
        gaps
    }

    /// Returns the tag of the want that starts at `start`.
    pub(crate) fn tag(&self, start: u64) -> Option<Tag> {
        self.wants.get(&start).map(|want| self.groups[&want.group].tag)
    }

    /// Cuts the first piece off the want that starts at `start`, up to the next multiple of `most`
    /// bytes; it is being read from now on.
    pub(crate) fn cut(
        &mut self,
        start: u64,
        most: u64,
        shelf: &mut QueueHandle<'_>,
    ) -> Option<Range<u64>> {
        let want = self.wants.remove(&start)?;
        shelf.remove(want.rank, Item::Data(start));
        let end = want.end.min((start / most + 1) * most);
        self.pieces.insert(start, Piece { end, group: want.group });
        if end < want.end {
            shelf.insert(want.rank, Item::Data(end));
            if let Some(group) = self.groups.get_mut(&want.group) {
                group.parts += 1;
            }
            self.wants.insert(end, want);
        }
        Some(start..end)
    }

    /// Turns the wanted parts of `range`, which a worker reads for another client, into pieces.
    pub(crate) fn claim(&mut self, range: &Range<u64>, shelf: &mut QueueHandle<'_>) {
        for start in self.wants_at(range, false) {
            let Some(want) = self.wants.remove(&start) else { continue };
            shelf.remove(want.rank, Item::Data(start));
            let (group, end) = (want.group, want.end);
            let piece = start.max(range.start)..end.min(range.end);
            self.pieces.insert(piece.start, Piece { end: piece.end, group });
            let mut parts = 1;
            for rest in [start..piece.start, piece.end..end] {
                if !rest.is_empty() {
                    shelf.insert(want.rank, Item::Data(rest.start));
                    self.wants.insert(rest.start, Want { end: rest.end, ..want });
                    parts += 1;
                }
            }
            if let Some(group) = self.groups.get_mut(&group) {
                group.parts += parts - 1;
            }
        }
    }

    /// Notes that a worker has read the first `bytes` of `range`. Returns the pieces that `range`
    /// stands for here, and the groups of which they were the last parts.
    pub(crate) fn finish(
        &mut self,
        range: &Range<u64>,
        bytes: u64,
        failed: bool,
    ) -> (Vec<Range<u64>>, Vec<Group>) {
        let read_to = range.start.saturating_add(bytes);
        let starts: Vec<u64> = self.pieces_at(range).map(|(start, _)| start).collect();
        let (mut pieces, mut groups) = (Vec::new(), Vec::new());
        for start in starts {
            let Some(piece) = self.pieces.remove(&start) else { continue };
            pieces.push(start..piece.end);
            if let Some(group) = self.groups.get_mut(&piece.group) {
                group.bytes += read_to.clamp(start, piece.end) - start;
                group.failed |= failed;
            }
            groups.extend(self.drop_part(piece.group));
        }
        (pieces, groups)
    }

    /// Gives up everything, pieces too: all ranges, and the hints that asked for them.
    pub(crate) fn abandon(&mut self, shelf: &mut QueueHandle<'_>) -> (Vec<Range<u64>>, usize) {
        self.wants.iter().for_each(|(&start, want)| shelf.remove(want.rank, Item::Data(start)));
        let hints = self.groups.values().map(|group| group.tag.hints as usize).sum();
        let Ranges { wants, pieces, .. } = std::mem::take(self);
        let pieces = pieces.into_iter().map(|(start, piece)| start..piece.end);
        (wants.into_iter().map(|(start, want)| start..want.end).chain(pieces).collect(), hints)
    }

    fn drop_part(&mut self, id: u64) -> Option<Group> {
        let group = self.groups.get_mut(&id)?;
        group.parts -= 1;
        if group.parts == 0 { self.groups.remove(&id) } else { None }
    }

    fn remove_want(
        &mut self,
        start: u64,
        shelf: &mut QueueHandle<'_>,
    ) -> (Range<u64>, Option<Group>) {
        let Some(want) = self.wants.remove(&start) else { return (start..start, None) };
        shelf.remove(want.rank, Item::Data(start));
        (start..want.end, self.drop_part(want.group))
    }

    /// Gives up the wants of hints that are stale (see [`Tag::is_stale`]): their ranges, and the
    /// groups that are gone with them.
    pub(crate) fn drop_stale(
        &mut self,
        before: Option<u32>,
        shelf: &mut QueueHandle<'_>,
    ) -> (Vec<Range<u64>>, Vec<Group>) {
        self.drop_where(|tag| tag.is_stale(before), shelf)
    }

    /// Drops wants whose tags are `unwanted`. Returns the ranges that no hint wants any more, and
    /// the groups that end by it.
    pub(crate) fn drop_where(
        &mut self,
        unwanted: impl Fn(&Tag) -> bool,
        shelf: &mut QueueHandle<'_>,
    ) -> (Vec<Range<u64>>, Vec<Group>) {
        let starts = self.wants.iter().filter(|(_, want)| unwanted(&self.groups[&want.group].tag));
        let starts: Vec<u64> = starts.map(|(&start, _)| start).collect();
        let (ranges, groups): (_, Vec<_>) =
            starts.into_iter().map(|start| self.remove_want(start, shelf)).unzip();
        (ranges, groups.into_iter().flatten().collect())
    }

    /// The file is `size` bytes long: wants of unknown length grow to its end when it is at most
    /// `extend_max` long, and nothing beyond the end is read. Returns the ranges cut away, whose
    /// answer is known now (there is nothing), and the groups that needed nothing else.
    pub(crate) fn fit(
        &mut self,
        size: u64,
        extend_max: u64,
        shelf: &mut QueueHandle<'_>,
    ) -> (Vec<Range<u64>>, Vec<Group>) {
        let starts: Vec<u64> = self.wants.range(..size).map(|(&start, _)| start).collect();
        for start in starts {
            // Joined to an earlier one meanwhile, it is part of what that grew to.
            let Some(want) = self.wants.get(&start) else { continue };
            let tag = &self.groups[&want.group].tag;
            if let Some(end) = tag.end_in(start, size, extend_max).filter(|&end| want.end < end) {
                let tag = Tag { hints: 0, steers: 0, ..*tag };
                self.add(start..end, &tag, shelf);
            }
        }
        let (mut cut, mut groups) = (Vec::new(), Vec::new());
        while let Some((&start, want)) = self.wants.last_key_value() {
            if start >= size {
                let (range, group) = self.remove_want(start, shelf);
                cut.push(range);
                groups.extend(group);
                continue;
            }
            if want.end > size {
                cut.push(size..want.end);
                if let Some(want) = self.wants.get_mut(&start) {
                    want.end = size;
                }
            }
            break;
        }
        (cut, groups)
    }
}

#[cfg(test)]
#[path = "byte_ranges/tests.rs"]
mod tests;
