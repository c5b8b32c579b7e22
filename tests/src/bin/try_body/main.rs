//! Random body of a try: makes a tree, changes it by random steps, and prints what a tree is.
//!
//! * `try_body prepare SEED OTHER OWNER` fills the working directory, and OTHER on another file
//!   system.
//! * `try_body run SEED STEPS OTHER [LEFT_OUT]` does the steps and prints what each returned.
//!   LEFT_OUT is a list of numbers of steps, with commas, that are not done.
//! * `try_body look DIRECTORY...` prints the state of trees.
//! * `try_body clear DIRECTORY...` removes what is in them, also what is immutable.
//! * `try_body steps` prints the kinds of steps.
//! * `try_body interrupt CALL kill|full COMMAND...` runs a command until its call number CALL of
//!   those that change files. There it is killed, or finds all file systems full.
//!
//! Each step has random numbers of its own, so that others can be left out.

mod attribute_steps;
mod child_steps;
mod descriptor_steps;
mod file_steps;
mod interrupted_command;
mod name_steps;
mod other_owners;
mod prepared_tree;
mod random_names;
mod step_context;
mod tree_state;

use std::process::ExitCode;

use interrupted_command::Interruption;
use step_context::{Context, Kind};

/// Kinds of steps, each as often as it stands here.
const KINDS: [&[Kind]; 5] = [
    file_steps::KINDS,
    name_steps::KINDS,
    attribute_steps::KINDS,
    descriptor_steps::KINDS,
    child_steps::KINDS,
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |word: &str| word.parse().expect("a number");
    match words[..] {
        ["prepare", seed, other, owner] => {
            prepared_tree::prepare(number(seed), other.as_ref(), number(owner) as u32)
        }
        ["run", seed, steps, other] => run(number(seed), number(steps), other, ""),
        ["run", seed, steps, other, left_out] => run(number(seed), number(steps), other, left_out),
        ["look", ref directories @ ..] => {
            directories.iter().for_each(|at| tree_state::print(at.as_ref()));
        }
        ["clear", ref directories @ ..] => {
            directories.iter().for_each(|at| prepared_tree::clear(at.as_ref()))
        }
        ["interrupt", at, "kill", ref command @ ..] => {
            return interrupted_command::run(number(at), Interruption::Kill, command);
        }
        ["interrupt", at, "full", ref command @ ..] => {
            return interrupted_command::run(number(at), Interruption::Full, command);
        }
        ["steps"] => KINDS.concat().iter().for_each(|kind| println!("{}", kind.name)),
        _ => {
            eprintln!("try_body: expected a task, not {words:?}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

/// Does `steps` random steps, and prints a line for each.
fn run(seed: u64, steps: u64, other: &str, left_out: &str) {
    let left_out: Vec<u64> = left_out
        .split(',')
        .filter(|word| !word.is_empty())
        .map(|n| n.parse().expect("a number"))
        .collect();
    let kinds = KINDS.concat();
    let mut context = Context::new(other);
    for step in (0..steps).filter(|step| !left_out.contains(step)) {
        context.random = random_names::Random::of_step(seed, step);
        let kind = &kinds[context.random.below(kinds.len() as u64) as usize];
        context.said.clear();
        let result = match (kind.run)(&mut context) {
            Ok(value) => value,
            Err(error) => error.to_string(),
        };
        println!("{step} {} {}: {result}", kind.name, context.said);
    }
}
