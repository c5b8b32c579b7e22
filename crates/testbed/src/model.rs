//! When a request completes: the queue models, in virtual time.
//!
//! Every model is first come, first served, and a service time is known when a request arrives. So
//! the completion time follows at arrival from when the servers (slots or spindles) become free,
//! and nothing else has to be simulated: [`Model::submit`] is a deterministic function of the
//! requests so far.
//!
//! Invariant: at no instant are more requests in service than the model has servers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Bytes per second that a spindle transfers once its head is in place. A request that starts where
/// the previous one on the spindle ended costs its length at this rate, and no seek.
pub const SEQUENTIAL_BYTES_PER_SECOND: u64 = 150_000_000;

/// Queue model of storage.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Service {
    /// Flash or a network: `parallel` requests at a time, each takes `latency` whatever its length.
    Parallel {
        /// Time in service of one request.
        latency: Duration,
        /// Requests in service at the same time; others wait in order of arrival.
        parallel: u32,
    },
    /// A striped array of rotating disks. Block `i` of `stripe` bytes lies on spindle `i %
    /// spindles`; a request completes when all its pieces have. A spindle serves one piece at a
    /// time: `seek` for one that goes elsewhere (transfer included), its length at
    /// [`SEQUENTIAL_BYTES_PER_SECOND`] for one that continues the previous.
    Spindles {
        /// Number of spindles.
        spindles: u32,
        /// Bytes on one spindle before the next spindle follows.
        stripe: u64,
        /// Time in service of a piece that does not continue the previous one.
        seek: Duration,
    },
}

/// A seeded, uniform variation of service times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Jitter {
    /// Largest deviation as a fraction of the service time, 0 to 1; 0.2 means 80% to 120%.
    pub fraction: f64,
    /// Seed: the same requests in the same order get the same service times.
    pub seed: u64,
}

impl Jitter {
    /// Constant service times.
    pub const NONE: Self = Self { fraction: 0.0, seed: 0 };
}

/// Kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// `len` bytes at `offset`.
    Data {
        /// First byte on the storage.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// No data, only an answer: a cache flush on a disk, any metadata request on a share.
    Control,
}

/// The servers' state; see the module. Times are nanoseconds since any fixed point, and must not go
/// backwards.
#[derive(Debug)]
pub struct Model {
    servers: Servers,
    jitter: Jitter,
    random: u64,
}

#[derive(Debug)]
enum Servers {
    Slots {
        latency: u64,
        parallel: usize,
        /// Completion times of the requests that occupy a slot, one for each slot that is not free.
        busy_until: BinaryHeap<Reverse<u64>>,
    },
    Spindles {
        seek: u64,
        stripe: u64,
        spindles: Vec<Spindle>,
    },
}

#[derive(Debug, Clone, Copy, Default)]
struct Spindle {
    free_at: u64,
    /// Position of the head: the address on this spindle after the last byte served.
    head: Option<u64>,
}

impl Model {
    /// An idle storage.
    ///
    /// # Panics
    /// If there is no server, or the stripe is empty: options are checked before a model is made.
    #[must_use]
    pub fn new(service: Service, jitter: Jitter) -> Self {
        let servers = match service {
            Service::Parallel { latency, parallel } => {
                assert!(parallel > 0, "storage that serves nothing");
                Servers::Slots {
                    latency: nanos(latency),
                    parallel: parallel as usize,
                    busy_until: BinaryHeap::with_capacity(parallel as usize + 1),
                }
            }
            Service::Spindles { spindles, stripe, seek } => {
                assert!(spindles > 0 && stripe > 0, "storage that serves nothing");
                Servers::Spindles {
                    seek: nanos(seek),
                    stripe,
                    spindles: vec![Spindle::default(); spindles as usize],
                }
            }
        };
        Self { servers, jitter, random: jitter.seed }
    }

    /// Queues a request that arrives at `now`; returns when it completes.
    pub fn submit(&mut self, now: u64, access: Access) -> u64 {
        let done = match &mut self.servers {
            Servers::Slots { latency, parallel, busy_until } => {
                while busy_until.peek().is_some_and(|Reverse(at)| *at <= now) {
                    busy_until.pop();
                }
                let start = if busy_until.len() < *parallel {
                    now
                } else {
                    busy_until.pop().map_or(now, |Reverse(at)| at)
                };
                let done = start + vary(&mut self.random, self.jitter, *latency);
                busy_until.push(Reverse(done));
                done
            }
            Servers::Spindles { seek, stripe, spindles } => match access {
                Access::Data { offset, len } => pieces(offset, len, *stripe, spindles.len())
                    .map(|piece| {
                        let spindle = &mut spindles[piece.spindle];
                        let cost = if spindle.head == Some(piece.address) {
                            piece.len * 1_000_000_000 / SEQUENTIAL_BYTES_PER_SECOND
                        } else {
                            vary(&mut self.random, self.jitter, *seek)
                        };
                        spindle.free_at = spindle.free_at.max(now) + cost;
                        spindle.head = Some(piece.address + piece.len);
                        spindle.free_at
                    })
                    .max()
                    .unwrap_or(now),
                // A flush is answered when what was queued before it is done.
                Access::Control => spindles.iter().map(|s| s.free_at).fold(now, u64::max),
            },
        };
        debug_assert!(done >= now);
        done
    }

    /// Servers that are busy just after `now`: the requests (for spindles, the pieces) in service.
    #[must_use]
    pub fn in_service(&self, now: u64) -> u64 {
        let count = match &self.servers {
            Servers::Slots { busy_until, .. } => {
                busy_until.iter().filter(|Reverse(at)| *at > now).count()
            }
            Servers::Spindles { spindles, .. } => {
                spindles.iter().filter(|s| s.free_at > now).count()
            }
        };
        count as u64
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Piece {
    spindle: usize,
    address: u64,
    len: u64,
}

/// Cuts a range of the array at stripe boundaries and maps each piece to a spindle and an address
/// on it.
fn pieces(offset: u64, len: u64, stripe: u64, spindles: usize) -> impl Iterator<Item = Piece> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (block, within) = (at / stripe, at % stripe);
        let len = (stripe - within).min(end - at);
        at += len;
        Some(Piece {
            spindle: (block % spindles as u64) as usize,
            address: block / spindles as u64 * stripe + within,
            len,
        })
    })
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4)
}

/// `base` changed by the next deviation.
fn vary(random: &mut u64, jitter: Jitter, base: u64) -> u64 {
    if jitter.fraction == 0.0 {
        return base;
    }
    let unit = (splitmix64(random) >> 11) as f64 / (1u64 << 53) as f64;
    let factor = 1.0 + jitter.fraction * (2.0 * unit - 1.0);
    (base as f64 * factor) as u64
}

/// Steele, Lea and Flood's SplitMix64: one addition of state, good enough to spread latencies.
fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
