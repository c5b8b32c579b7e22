//! Worker threads, which do what the scheduler says.
//!
//! A worker blocks in one read, like any program, and there are as many as the limit allows reads:
//! no asynchronous interface covers path walks and directory reads on all file systems, and a
//! blocked thread costs nothing but a small stack. A thread is started when there is something to
//! take, no idle worker to take it, and room below the limit; an idle one sleeps on a condition
//! variable and goes away after [`IDLE_LIFE`].
//!
//! A thread that puts an item into the queue, or takes one out and leaves more behind, brings at
//! most one other worker in, who does the same: load spreads without a herd being woken.
//!
//! Only workers that seem stuck in a read make room for others beyond a few ([`ACTIVE_MAX`]): those
//! that find their answers in memory are limited by processors, and a crowd would be slower. Time
//! alone makes a worker look stuck, so the caller has to look again ([`Pool::kick`]).
//!
//! Invariant: while something can be begun, a worker is on its way or will be at the next look. No
//! system call that can wait for storage, and no call of the sink, is made with the lock held.

mod guess_work;
mod notifications;
mod pool;
mod program_work;
mod worker_thread;

pub(crate) use notifications::PoolClient;
pub(crate) use pool::Pool;
