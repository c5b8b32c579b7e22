//! Counters of requests to the storage, counted where a request is queued.
//!
//! Invariant: a request counts when it reaches the server, delayed or not; requests that only
//! negotiate the FUSE protocol (answered once for a whole mount) do not count.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Counters since the storage came up or since the last reset.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Requests of any kind.
    pub requests: u64,
    /// Requests for data.
    pub reads: u64,
    /// Requests that carry data.
    pub writes: u64,
    /// Bytes returned by reads.
    pub read_bytes: u64,
    /// Bytes carried by writes.
    pub written_bytes: u64,
    /// Largest number of requests in service at the same time (on spindles: of busy spindles).
    /// Never more than the parallelism asked for; 0 while the delay is off.
    pub max_in_service: u64,
    /// Largest number of requests that had arrived and were not answered, in service or queued.
    pub max_outstanding: u64,
    /// True if the delay is on.
    pub delay: bool,
    /// Requests of each kind; kinds that never occurred are absent.
    pub operations: BTreeMap<String, u64>,
}

macro_rules! operations {
    ($($variant:ident = $name:literal),* $(,)?) => {
        /// Kinds of request.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Op { $($variant),* }

        impl Op {
            const NAMES: &[&str] = &[$($name),*];
        }
    };
}

operations! {
    Lookup = "lookup", Getattr = "getattr", Setattr = "setattr", Readlink = "readlink",
    Read = "read", Write = "write", Readdir = "readdir", Create = "create", Mkdir = "mkdir",
    Mknod = "mknod", Unlink = "unlink", Rmdir = "rmdir", Rename = "rename", Link = "link",
    Symlink = "symlink", Statfs = "statfs", Fsync = "fsync", Flush = "flush",
    Discard = "discard",
}

/// The running counters behind [`Stats`].
#[derive(Debug)]
pub(crate) struct Counters {
    by_op: [u64; Op::NAMES.len()],
    read_bytes: u64,
    written_bytes: u64,
    max_in_service: u64,
    max_outstanding: u64,
}

impl Counters {
    pub(crate) fn new() -> Self {
        Self {
            by_op: [0; Op::NAMES.len()],
            read_bytes: 0,
            written_bytes: 0,
            max_in_service: 0,
            max_outstanding: 0,
        }
    }

    pub(crate) fn count(&mut self, op: Op, bytes: u64, outstanding: u64) {
        self.by_op[op as usize] += 1;
        match op {
            Op::Read => self.read_bytes += bytes,
            Op::Write => self.written_bytes += bytes,
            _ => {}
        }
        self.max_outstanding = self.max_outstanding.max(outstanding);
    }

    pub(crate) fn saw_in_service(&mut self, in_service: u64) {
        self.max_in_service = self.max_in_service.max(in_service);
    }

    pub(crate) fn snapshot(&self, delay: bool) -> Stats {
        Stats {
            requests: self.by_op.iter().sum(),
            reads: self.by_op[Op::Read as usize],
            writes: self.by_op[Op::Write as usize],
            read_bytes: self.read_bytes,
            written_bytes: self.written_bytes,
            max_in_service: self.max_in_service,
            max_outstanding: self.max_outstanding,
            delay,
            operations: Op::NAMES
                .iter()
                .zip(self.by_op)
                .filter(|(_, count)| *count > 0)
                .map(|(name, count)| ((*name).to_owned(), count))
                .collect(),
        }
    }
}

impl std::fmt::Display for Stats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "requests         {}", self.requests)?;
        writeln!(f, "reads            {} ({} bytes)", self.reads, self.read_bytes)?;
        writeln!(f, "writes           {} ({} bytes)", self.writes, self.written_bytes)?;
        writeln!(f, "max in service   {}", self.max_in_service)?;
        writeln!(f, "max outstanding  {}", self.max_outstanding)?;
        write!(f, "delay            {}", if self.delay { "on" } else { "off" })?;
        for (name, count) in &self.operations {
            write!(f, "\n  {name:<14} {count}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_add_up_and_bytes_belong_to_data_requests() {
        let mut counters = Counters::new();
        counters.count(Op::Read, 4096, 1);
        counters.count(Op::Write, 512, 3);
        counters.count(Op::Lookup, 99, 2);
        let stats = counters.snapshot(true);
        assert_eq!(stats.requests, 3);
        assert_eq!((stats.read_bytes, stats.written_bytes), (4096, 512));
        assert_eq!(stats.max_outstanding, 3);
        assert_eq!(stats.operations.len(), 3);
        assert_eq!(stats.operations["lookup"], 1);
    }
}
