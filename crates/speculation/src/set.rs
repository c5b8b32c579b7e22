//! Sets of open speculations.

/// The place of an open speculation among all that are open: below the bound on their number, and
/// given to another one once this is resolved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot(pub u32);

/// A set of slots: a bit for each, up to the highest that was ever in it.
#[derive(Clone, Default, Debug)]
pub(crate) struct Set {
    words: Vec<u64>,
}

impl Set {
    fn place(Slot(slot): Slot) -> (usize, u64) {
        ((slot / 64) as usize, 1 << (slot % 64))
    }

    /// The set of only `slot`.
    pub fn of(slot: Slot) -> Self {
        let mut set = Set::default();
        set.insert(slot);
        set
    }

    pub fn insert(&mut self, slot: Slot) {
        let (word, bit) = Self::place(slot);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= bit;
    }

    pub fn remove(&mut self, slot: Slot) {
        let (word, bit) = Self::place(slot);
        if let Some(word) = self.words.get_mut(word) {
            *word &= !bit;
        }
    }

    pub fn contains(&self, slot: Slot) -> bool {
        let (word, bit) = Self::place(slot);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Adds all that is in `other`.
    pub fn add(&mut self, other: &Set) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            *word |= more;
        }
    }

    /// Takes out all that is in `other`.
    pub fn subtract(&mut self, other: &Set) {
        for (word, less) in self.words.iter_mut().zip(&other.words) {
            *word &= !less;
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        self.words.iter().zip(0u32..).flat_map(|(&word, at)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                left &= left.wrapping_sub(1);
                (bit < 64).then_some(Slot(at * 64 + bit))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn listed(set: &Set) -> Vec<u32> {
        set.iter().map(|slot| slot.0).collect()
    }

    #[test]
    fn a_set_is_what_a_tree_says_it_is() {
        let mut random = fastrand::Rng::with_seed(runahead_harness::seed());
        let mut sets = [(); 2].map(|()| (Set::default(), BTreeSet::new()));
        for _ in 0..5_000 {
            let slot = random.u32(..300);
            let [(set, tree), (other, others)] = &mut sets;
            match random.u8(..40) {
                0 => {
                    set.add(other);
                    tree.extend(others.iter().copied());
                }
                1 => {
                    set.subtract(other);
                    tree.retain(|slot| !others.contains(slot));
                }
                2..20 => {
                    set.insert(Slot(slot));
                    tree.insert(slot);
                }
                _ => {
                    set.remove(Slot(slot));
                    tree.remove(&slot);
                }
            }
            assert_eq!(listed(set), tree.iter().copied().collect::<Vec<_>>());
            assert_eq!(set.is_empty(), tree.is_empty());
            assert_eq!(set.contains(Slot(slot)), tree.contains(&slot));
            sets.swap(0, 1);
        }
        assert_eq!(listed(&Set::of(Slot(64))), [64]);
    }
}
