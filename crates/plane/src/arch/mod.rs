//! Everything that depends on the processor: instructions, entry and signal frames.

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the agent is written for x86-64 so far");
