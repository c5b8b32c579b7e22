//! Processes that are joined by pipes and go on with predictions, as a deterministic simulation.
//!
//! Each runs a program whose next operation follows from its state alone ([`program`]); it reads from a pipe that the state says, and
//! never looks which has something. So what the processes come to does not depend on who is how fast (Kahn, "The semantics of a
//! simple language for parallel programming", 1974), nor on what was predicted, and one run after the other with all answers known is the
//! model ([`model`]). A process layer that does what an agent does ([`process`], [`release`], [`reading`]) is run a little at a time, in
//! any order; its predictions are settled in any order, some of its processes killed. What comes out is compared with the model byte by
//! byte when it does, and must not come out before what it follows from. Who waits goes on only when it is poked, so that a word that
//! nobody is told shows as a world that stands still. That each rule is needed is shown by planted violations ([`runs`]).

mod model;
mod process;
mod program;
mod reading;
mod release;
mod runs;
mod world;
