//! Deterministic simulation of processes that are joined by pipes and continue on predictions.
//!
//! Each process runs a program whose next operation follows from its state alone ([`program`]). It
//! reads from the pipe that the state names, and never checks which pipe has data. So the results
//! depend neither on the processes' speeds (Kahn, "The semantics of a simple language for parallel
//! programming", 1974), nor on the predictions. Running them one after the other with all answers
//! known is the model ([`model`]).
//!
//! A process layer does what an agent does ([`process`], [`output_release`], [`pipe_reads`]). It
//! runs in small steps in any order; its predictions are settled in any order, and some processes
//! are killed. Each output is compared with the model byte by byte when it appears, and must not
//! appear before its causes. A waiting process continues only when it is poked, so a lost poke
//! shows as a deadlock. Planted violations show that each rule is needed ([`seeded_worlds`]).

mod model;
mod output_release;
mod pipe_reads;
mod process;
mod program;
mod seeded_worlds;
mod simulated_world;
