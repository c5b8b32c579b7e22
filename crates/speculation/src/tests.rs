//! Tests: each part by itself, under threads, and all of them together in a simulation.

use std::boxed::Box;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::vec::Vec;

use crate::{Host, Owner, Session};

mod dependent_threads;
mod files;
mod pipe_tails;
mod sim;
mod threads;

/// Fresh shared memory.
fn session() -> Box<Session> {
    // SAFETY: all-zero is valid.
    unsafe { Box::new_zeroed().assume_init() }
}

/// The only thread of a process.
const fn owner(process: u32) -> Owner {
    Owner { process, thread: process + 1000 }
}

/// A process on a machine on which nothing happens concurrently.
struct TestHost {
    this: Owner,
    /// Processes that have ended.
    dead: Rc<RefCell<Vec<u32>>>,
    /// Threads that were poked, in order.
    poked: Rc<RefCell<Vec<Owner>>>,
    pauses: Cell<u32>,
}

impl TestHost {
    fn new(process: u32) -> Self {
        let (dead, poked) = (Rc::default(), Rc::default());
        TestHost { this: owner(process), dead, poked, pauses: Cell::new(0) }
    }

    /// Another process of the same machine.
    fn beside(&self, process: u32) -> Self {
        let (dead, poked) = (self.dead.clone(), self.poked.clone());
        TestHost { this: owner(process), dead, poked, pauses: Cell::new(0) }
    }

    fn kill(&self) {
        self.dead.borrow_mut().push(self.this.process);
    }

    /// Returns the threads that were poked since the last call.
    fn take_poked(&self) -> Vec<Owner> {
        self.poked.take()
    }
}

impl Host for TestHost {
    fn current_thread(&self) -> Owner {
        self.this
    }

    fn is_alive(&self, owner: Owner) -> bool {
        !self.dead.borrow().contains(&owner.process)
    }

    fn pause(&self) {
        self.pauses.set(self.pauses.get() + 1);
    }

    fn poke(&self, whom: Owner) {
        self.poked.borrow_mut().push(whom);
    }
}
