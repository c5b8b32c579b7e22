//! Random numbers of one step, and names drawn with them.

use runahead_tests::Seed;

/// Random numbers, and names.
pub struct Random(Seed);

/// Names of entries. So few that steps meet the entries of others.
pub const NAMES: [&str; 6] = ["a", "b", "c", "d", "l", "x y"];

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(Seed::of(seed))
    }

    /// Generator of step number `step` of a body.
    pub fn of_step(seed: u64, step: u64) -> Self {
        let mut random = Random::new(seed ^ (step + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        random.below(2);
        random
    }

    /// Number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// Bytes of a file, up to `most`.
    pub fn bytes(&mut self, most: u64) -> Vec<u8> {
        let (first, length) = (self.below(26), self.below(most) + 1);
        (0..length).map(|at| b'a' + ((first + at / 7) % 26) as u8).collect()
    }

    /// Name of one to three components below the working directory.
    pub fn plain_path(&mut self) -> String {
        let depth = self.one_of(&[1, 1, 1, 2, 2, 3]);
        let names: Vec<&str> = (0..depth).map(|_| self.one_of(&NAMES)).collect();
        names.join("/")
    }

    /// Path in one of the forms that programs use. `work` is the working directory, `other` one on
    /// another file system.
    pub fn path(&mut self, work: &str, other: &str) -> String {
        let plain = self.plain_path();
        match self.below(16) {
            0 => format!("{work}/{plain}"),
            1 => format!("./{plain}"),
            2 => format!("{}/../{plain}", self.one_of(&NAMES)),
            3 => format!("../work/{plain}"),
            4 => format!("{plain}/"),
            5 => format!("{plain}/."),
            6 => format!("a//{plain}"),
            7 | 8 => format!("{other}/{plain}"),
            9 => format!("{plain}/.."),
            _ => plain,
        }
    }
}
