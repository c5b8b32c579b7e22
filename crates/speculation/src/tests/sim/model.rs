//! Model: results without predictions. Each process runs to its end, writers before their readers.

use std::vec::Vec;

use super::program::{Network, Operation, State};

/// An effect that is visible from outside: a line, or one operation's write to a pipe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Effect {
    /// The pipe; None for a line.
    pub to: Option<usize>,
    pub bytes: Vec<u8>,
}

/// Result of a process.
#[derive(Default)]
pub(super) struct Course {
    pub effects: Vec<Effect>,
    /// Causes of each effect, as a number of effects of each process.
    pub after: Vec<Vec<usize>>,
}

/// Contents of a pipe, and the position at which each effect of its writer ends.
#[derive(Default)]
struct Stream {
    bytes: Vec<u8>,
    ends: Vec<(u64, usize)>,
}

/// Runs all processes. The reader of a pipe with a limit gets no more than that, because its writer
/// was killed.
pub(super) fn run(network: &Network, limits: &[Option<u64>]) -> Vec<Course> {
    let mut courses: Vec<Course> = Vec::new();
    let mut streams: Vec<Stream> = network.pipes.iter().map(|_| Stream::default()).collect();
    for (process, program) in network.programs.iter().enumerate() {
        let mut state = State::new(network, process);
        for (input, pipe) in program.inputs.iter().enumerate() {
            let all = &streams[*pipe].bytes;
            let len = limits[*pipe].map_or(all.len(), |limit| all.len().min(limit as usize));
            state.inbox[input] = all[..len].iter().copied().collect();
            state.ended[input] = true;
        }
        let mut course = Course::default();
        let mut after = std::vec![0; network.programs.len()];
        loop {
            let operation = state.next(program);
            let mut put_out = |to, bytes: Vec<u8>, after: &mut Vec<usize>| {
                course.after.push(after.clone());
                course.effects.push(Effect { to, bytes });
                after[process] = course.effects.len();
            };
            match operation {
                Operation::Compute => state.done(),
                Operation::Ask => state.answered(state.truth()),
                Operation::Line => {
                    put_out(None, state.bytes(8), &mut after);
                    state.done();
                }
                Operation::Write(pipe, len) => {
                    let (number, bytes) = (after[process], state.bytes(len));
                    streams[pipe].bytes.extend_from_slice(&bytes);
                    let end = streams[pipe].bytes.len() as u64;
                    streams[pipe].ends.push((end, number));
                    put_out(Some(pipe), bytes, &mut after);
                    state.done();
                }
                Operation::Read(input, len) => {
                    state.look_at(input, len);
                    let pipe = program.inputs[input];
                    follow(&courses, network, &streams[pipe], pipe, state.used[input], &mut after);
                }
                Operation::End => break,
            }
        }
        courses.push(course);
    }
    courses
}

/// Adds causes: a read of `used` bytes follows from what the writer did before it wrote them.
fn follow(
    courses: &[Course],
    network: &Network,
    stream: &Stream,
    pipe: usize,
    used: u64,
    after: &mut [usize],
) {
    if used == 0 {
        return;
    }
    let last = stream.ends.partition_point(|(end, _)| *end < used);
    let number = stream.ends[last].1;
    let writer = network.pipes[pipe].writer;
    for (n, sum) in courses[writer].after[number].iter().zip(after) {
        *sum = (*sum).max(*n);
    }
}
