//! Networks of programs, made from a seed.

use std::collections::VecDeque;
use std::vec::Vec;

use crate::pipe_tails::hash_numbers;

/// A process of the network.
#[derive(Clone, Default, Debug)]
pub(super) struct Program {
    /// Pipes that it reads from, and that it writes to.
    pub inputs: Vec<usize>,
    pub outputs: Vec<usize>,
    /// Operations before it reads its inputs to their end.
    pub operations: u32,
}

/// A pipe: its writer, its reader, and its capacity.
#[derive(Clone, Debug)]
pub(super) struct Joint {
    pub writer: usize,
    pub reader: usize,
    pub capacity: usize,
}

/// Shape of a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sort {
    /// Each process writes to one pipe.
    Trees,
    /// Some processes write to several pipes.
    Forks,
    Any,
}

/// Programs joined by pipes.
#[derive(Clone, Debug)]
pub(super) struct Network {
    pub seed: u64,
    pub programs: Vec<Program>,
    pub pipes: Vec<Joint>,
}

impl Network {
    /// Makes a network in which writers come before readers. Every process but the last writes, to
    /// one pipe in a tree.
    pub fn new(seed: u64, sort: Sort, random: &mut fastrand::Rng) -> Self {
        let forks = sort == Sort::Forks || sort == Sort::Any && random.u32(..4) == 0;
        let count = random.usize(2..=if forks { 4 } else { 6 });
        let most = *random.choice(&[12, 30, 60]).expect("some");
        let program = |random: &mut fastrand::Rng| Program {
            operations: random.u32(3..most),
            ..Program::default()
        };
        let programs = (0..count).map(|_| program(random)).collect();
        let mut network = Network { seed, programs, pipes: Vec::new() };
        // With smaller pipes, most networks that fork would deadlock by themselves.
        let capacities = if forks { [2048, 4096, 16384, 65536] } else { [512, 4096, 5000, 16384] };
        let capacity = |random: &mut fastrand::Rng| capacities[random.usize(..4)];
        let is_chain = random.bool();
        for writer in 0..count - 1 {
            let reader = if is_chain { writer + 1 } else { random.usize(writer + 1..count) };
            network.join(writer, reader, capacity(random));
        }
        for _ in 0..if forks { random.usize(1..4) } else { 0 } {
            let writer = random.usize(..count - 1);
            network.join(writer, random.usize(writer + 1..count), capacity(random));
        }
        network
    }

    fn join(&mut self, writer: usize, reader: usize, capacity: usize) {
        self.programs[writer].outputs.push(self.pipes.len());
        self.programs[reader].inputs.push(self.pipes.len());
        self.pipes.push(Joint { writer, reader, capacity });
    }
}

/// Next operation of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    Compute,
    /// Question, whose answer may be predicted.
    Ask,
    /// Write of this many bytes to a pipe.
    Write(usize, usize),
    /// Line to a file of its own.
    Line,
    /// Read of this many bytes of an input, or of what is left before its end.
    Read(usize, usize),
    End,
}

/// State of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct State {
    hash: u64,
    left: u32,
    has_said: bool,
    /// Bytes read from each input and not processed yet.
    pub inbox: Vec<VecDeque<u8>>,
    /// Inputs that have ended.
    pub ended: Vec<bool>,
    /// Bytes processed of each input.
    pub used: Vec<u64>,
}

impl State {
    pub fn new(network: &Network, process: usize) -> Self {
        let program = &network.programs[process];
        let inputs = program.inputs.len();
        State {
            hash: hash_numbers(network.seed, process as u64),
            left: program.operations,
            has_said: false,
            inbox: std::vec![VecDeque::new(); inputs],
            ended: std::vec![false; inputs],
            used: std::vec![0; inputs],
        }
    }

    pub fn next(&self, program: &Program) -> Operation {
        /// Size of the reads of an input at the end.
        const PIECE: usize = 3000;
        if self.left == 0 {
            let mut inputs = 0..program.inputs.len();
            let input = inputs.find(|input| !self.ended[*input] || !self.inbox[*input].is_empty());
            return match input {
                Some(input) => Operation::Read(input, PIECE),
                None if !self.has_said => Operation::Line,
                None => Operation::End,
            };
        }
        let a = hash_numbers(self.hash, 1) as usize;
        let any = |all: &[usize]| all[(a >> 8) % all.len()];
        let len = 1 + (a >> 16) % [20, 300, 4096, 6000][a >> 40 & 3];
        match a % 16 {
            0..5 if !program.outputs.is_empty() => Operation::Write(any(&program.outputs), len),
            5..9 if !program.inputs.is_empty() => {
                Operation::Read((a >> 8) % program.inputs.len(), len)
            }
            9..13 => Operation::Ask,
            13 | 14 => Operation::Line,
            _ => Operation::Compute,
        }
    }

    /// Advances to the next operation.
    fn advance(&mut self) {
        self.hash = hash_numbers(self.hash, 2);
        self.has_said |= self.left == 0;
        self.left = self.left.saturating_sub(1);
    }

    /// Completes an operation that returns nothing.
    pub fn done(&mut self) {
        self.advance();
    }

    /// Returns the right answer to the present question.
    pub fn truth(&self) -> u64 {
        hash_numbers(self.hash, 3) % 8
    }

    pub fn answered(&mut self, answer: u64) {
        self.hash = hash_numbers(self.hash, answer);
        self.advance();
    }

    /// True if the data that it wants to read has arrived.
    pub fn has(&self, input: usize, len: usize) -> bool {
        self.ended[input] || self.inbox[input].len() >= len
    }

    /// Processes that data.
    pub fn look_at(&mut self, input: usize, len: usize) {
        let len = len.min(self.inbox[input].len());
        for byte in self.inbox[input].drain(..len) {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        self.used[input] += len as u64;
        self.hash = hash_numbers(self.hash, len as u64);
        if self.left > 0 {
            self.advance();
        }
    }

    /// Returns the bytes that it writes.
    pub fn bytes(&self, len: usize) -> Vec<u8> {
        let words = (0..).flat_map(|n| hash_numbers(self.hash, 4 + n).to_le_bytes());
        words.take(len).collect()
    }
}
