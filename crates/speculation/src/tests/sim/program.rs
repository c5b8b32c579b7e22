//! Little programs: what a process does next follows from its registers, and from nothing else.

use crate::ids::{ObjectId, ProcessId};
use crate::operation::Effect;

/// A number that follows from two others, and looks random.
pub(super) fn mix(a: u64, b: u64) -> u64 {
    let z = a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b.wrapping_add(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 32)
}

/// Kinds of operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Ask,
    Alter,
    Read,
    Write,
    Swap,
    Take,
    TryTake,
    Put,
    Make,
    Fork,
    Wait,
    Print,
    Signal,
    Peek,
    Sync,
}

const KINDS: [Kind; 15] = [
    Kind::Ask,
    Kind::Alter,
    Kind::Read,
    Kind::Write,
    Kind::Swap,
    Kind::Take,
    Kind::TryTake,
    Kind::Put,
    Kind::Make,
    Kind::Fork,
    Kind::Wait,
    Kind::Print,
    Kind::Signal,
    Kind::Peek,
    Kind::Sync,
];

/// How often each kind occurs, on average, in the order of [`KINDS`].
const WEIGHTS: [usize; 15] = [8, 3, 4, 4, 1, 5, 2, 7, 1, 3, 5, 7, 2, 2, 1];

/// What a world is made of, and what its programs do.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub seed: u64,
    pub processes: u64,
    pub files: u64,
    pub pipes: u64,
    pub sinks: u64,
    /// Operations after which a process exits.
    pub steps: u64,
    /// The kinds of operations that programs choose from.
    deck: Vec<Kind>,
}

impl Shape {
    pub fn new(seed: u64, random: &mut fastrand::Rng) -> Self {
        // Many kinds of operations, or much of a few.
        let some = if random.bool() { 2 } else { 8 };
        let mut deck = Vec::new();
        for (kind, weight) in KINDS.into_iter().zip(WEIGHTS) {
            let weight = if random.u32(..8) < some { random.usize(..=2 * weight) } else { 0 };
            deck.extend(std::iter::repeat_n(kind, weight));
        }
        deck.extend([Kind::Ask, Kind::Ask, Kind::Print]);
        Shape {
            seed,
            processes: random.u64(1..6),
            files: random.u64(2..4),
            pipes: random.u64(1..4),
            sinks: random.u64(1..3),
            steps: if random.u32(..8) > 0 { random.u64(4..20) } else { random.u64(20..40) },
            deck,
        }
    }

    pub fn file(&self, n: u64) -> ObjectId {
        ObjectId(n % self.files)
    }

    pub fn pipe(&self, n: u64) -> ObjectId {
        ObjectId(100 + n % self.pipes)
    }

    /// What a process with these registers is truly answered.
    pub fn truth(&self, process: ProcessId, state: u64) -> u64 {
        mix(self.seed, mix(process.0, state)) % 3
    }
}

/// All that is private to a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Registers {
    pub state: u64,
    pub steps: u64,
    /// Children that it has not waited for.
    pub children: Vec<ProcessId>,
    pub parent: Option<ProcessId>,
    pub depth: u64,
    /// Things that it has named.
    pub named: u64,
    /// Files that it or its parent has made.
    pub own: Vec<ObjectId>,
}

impl Registers {
    pub fn first(seed: u64, process: ProcessId) -> Self {
        Registers {
            state: mix(seed, process.0),
            steps: 0,
            children: Vec::new(),
            parent: None,
            depth: 0,
            named: 0,
            own: Vec::new(),
        }
    }

    pub fn forked(&self, parent: ProcessId, child: ProcessId) -> Self {
        Registers {
            state: mix(self.state, child.0),
            steps: 0,
            children: Vec::new(),
            parent: Some(parent),
            depth: self.depth + 1,
            named: 0,
            own: self.own.clone(),
        }
    }

    /// The process has come by this value.
    pub fn learn(&mut self, value: u64) {
        self.state = mix(self.state, value);
    }

    /// The name of what `process` makes next.
    pub fn name(&self, process: ProcessId) -> u64 {
        mix(mix(process.0, 0x6e61_6d65), self.named)
    }

    /// Any file that it knows.
    fn file(&self, shape: &Shape, n: u64) -> ObjectId {
        let all = shape.files + self.own.len() as u64;
        match (n % all).checked_sub(shape.files) {
            Some(own) => self.own[own as usize],
            None => shape.file(n % all),
        }
    }

    /// The operation that comes next.
    pub fn next(&self, shape: &Shape) -> Op {
        if self.steps >= shape.steps {
            return Op::Exit;
        }
        let n = mix(self.state, self.steps);
        let kind = shape.deck[(n % shape.deck.len() as u64) as usize];
        let n = n / shape.deck.len() as u64;
        let file = self.file(shape, n);
        match kind {
            Kind::Ask => Op::Predict(Effect::ReadOnly),
            Kind::Alter => Op::Predict(Effect::Changes),
            Kind::Read => Op::Read(file),
            Kind::Write => Op::Write(file),
            Kind::Swap => match self.file(shape, n / 7) {
                other if other == file => Op::Write(file),
                other => Op::Swap(file, other),
            },
            Kind::Take => Op::Take(shape.pipe(n)),
            Kind::TryTake => Op::TryTake(shape.pipe(n)),
            Kind::Put => Op::Put(shape.pipe(n)),
            Kind::Make => Op::Make,
            Kind::Fork if self.depth < 2 && self.named < 3 => Op::Fork,
            Kind::Fork => Op::Read(file),
            Kind::Wait => self.children.last().map_or(Op::Put(shape.pipe(n)), |c| Op::Wait(*c)),
            Kind::Print => Op::Print(n % shape.sinks),
            Kind::Signal => Op::Signal(self.receiver(shape, n)),
            Kind::Peek => Op::Peek(self.receiver(shape, n)),
            Kind::Sync => Op::Sync,
        }
    }

    /// Another process that it knows, or itself.
    fn receiver(&self, shape: &Shape, n: u64) -> ProcessId {
        match self.children.last() {
            Some(child) if n.is_multiple_of(2) => *child,
            _ => ProcessId(n / 2 % shape.processes),
        }
    }
}

/// What a process does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Op {
    /// Asks somebody far away, or has something changed there.
    Predict(Effect),
    Read(ObjectId),
    Write(ObjectId),
    /// Exchanges what two files have.
    Swap(ObjectId, ObjectId),
    /// Reads from a pipe, and waits until something is in it.
    Take(ObjectId),
    /// Reads from a pipe if something is in it.
    TryTake(ObjectId),
    Put(ObjectId),
    /// Makes a file.
    Make,
    Fork,
    Wait(ProcessId),
    /// Puts something out.
    Print(u64),
    Signal(ProcessId),
    /// Looks at the registers of a process.
    Peek(ProcessId),
    /// Does what nobody can take back.
    Sync,
    Exit,
    /// A signal is delivered to it.
    Deliver(ObjectId),
}
