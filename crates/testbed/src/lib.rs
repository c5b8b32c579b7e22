//! Storage with a chosen latency, parallelism and stripe, for tests, demos and benchmarks.
//!
//! * [`Disk`]: a real block device (loop with direct I/O, over the one file of a FUSE file system
//!   that this crate serves) with ext4 on it. Needs root.
//! * [`Share`]: a directory shown through FUSE as a network file system would show it, every
//!   message delayed. Root or an ordinary user with `fusermount3`.
//!
//! Both answer through a server process in the background, which costs no processor time while
//! nothing is asked, and both count what they are asked ([`Stats`]). The queue models are in
//! [`model`].
//!
//! ```no_run
//! use std::time::Duration;
//! use runahead_testbed::{Disk, DiskOptions, drop_caches};
//!
//! # fn main() -> Result<(), runahead_testbed::Error> {
//! if let Err(missing) = Disk::probe() {
//!     eprintln!("skipped: {missing}");
//!     return Ok(());
//! }
//! let options = DiskOptions::new("/mnt/slow").parallel(Duration::from_millis(5), 128);
//! let disk = Disk::up(&options.delay(false))?;
//! std::fs::write("/mnt/slow/data", [1; 4096]).unwrap();
//! disk.set_delay(true)?;
//! drop_caches()?;
//! disk.reset_stats()?;
//! std::fs::read("/mnt/slow/data").unwrap(); // takes a few times 5 ms
//! println!("{}", disk.stats()?);
//! disk.down()
//! # }
//! ```
//!
//! The server is the running program, executed again; it needs no other binary. Dropping a [`Disk`]
//! or [`Share`] takes it down.

#![deny(unsafe_code)]

mod disk;
mod drop_caches;
mod error;
#[allow(unsafe_code)]
mod loop_device;
pub mod model;
mod mounts;
mod owned_storage;
mod path_bytes;
mod probe;
mod process;
mod server;
mod server_start;
mod share;
mod stats;
mod storage;
mod storage_kind;
mod storage_records;
mod swap;
pub mod unit_parsing;

pub use disk::{Disk, DiskOptions};
pub use drop_caches::{drop_caches, retry_if_caches_dropped};
pub use error::{Error, InvalidOption, Missing, Step};
pub use owned_storage::OwnedStorage;
pub use share::{Share, ShareOptions};
pub use stats::Stats;
pub use storage::Storage;
pub use storage_kind::Kind;
pub use swap::Swap;
