//! Estimators: what the processes of a session observe, and what they expect from it.
//!
//! Each is a table with its algorithm, most of them in memory that processes share. A layout cannot
//! be told from its lock-free algorithm, so both are here, and `runahead-abi` embeds the types.
//!
//! | module | what it holds |
//! |---|---|
//! | [`access_identity`] | hashes that name accesses: keys of tables; parents of directories |
//! | [`access_spread`] | how densely each file is read |
//! | [`cost_account`] | the balance of time spent on speculation against time spared |
//! | [`directory_entries`] | types and inode numbers of names that directories listed |
//! | [`exemplars`] | files that stand in for missing ones of their kind |
//! | [`filesystem_table`] | traits of Linux's file systems |
//! | [`follow_filter`] | programs that need not be followed for a while |
//! | [`slow_devices`] | devices on which a process has waited recently |
//! | [`time_units`] | ticks of the time-stamp counter, and microseconds |
//! | [`touched_blocks`] | blocks of shared memory that the next shadow will use |
//! | [`value_predictor`] | values that reads from one place in a program return |
//! | `atomic_words` | bytes in words that another process may write meanwhile |
//!
//! Invariant: shared tables are atomics, for which all-zero bytes are a valid value. No loop
//! depends on their contents, and a torn, lost or hostile value costs speed and nothing else.
#![no_std]
#![forbid(unsafe_op_in_unsafe_fn)]

pub mod access_identity;
pub mod access_spread;
mod atomic_words;
pub mod cost_account;
pub mod directory_entries;
pub mod exemplars;
pub mod filesystem_table;
pub mod follow_filter;
pub mod slow_devices;
pub mod time_units;
pub mod touched_blocks;
pub mod value_predictor;

pub use access_identity::{ChunkIndex, Identity, Parents, Piece};
pub use cost_account::Account;
pub use directory_entries::{Entries, Entry};
pub use slow_devices::SlowDevices;
pub use time_units::{Micros, TickRate, Ticks};
pub use value_predictor::Sites;
