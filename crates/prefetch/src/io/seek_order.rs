//! The order in which reads reach a device whose heads move.
//!
//! What is read in one sweep lies in the order in which it is handed out
//! ([`crate::request_queue`]). Threads that were handed it in that order begin in another, and each
//! step back is a seek: so there each begins its read when the one before it has, and waits for it
//! beside the others.

use std::sync::mpsc::{Receiver, Sender, channel};

/// The last place in a line.
#[derive(Default)]
pub(crate) struct SeekLine(Option<Receiver<()>>);

/// A place in a line. Dropping it lets the next one go on.
pub(crate) struct SeekTurn {
    /// Closed when the one before has been dropped.
    before: Option<Receiver<()>>,
    _after: Sender<()>,
}

impl SeekLine {
    pub(crate) fn take(&mut self) -> SeekTurn {
        let (after, next) = channel();
        SeekTurn { before: self.0.replace(next), _after: after }
    }
}

impl SeekTurn {
    /// Returns when the place before this one has been dropped, used or not.
    pub(crate) fn wait(&self) {
        // No message is ever sent.
        let _ = self.before.as_ref().map(Receiver::recv);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn threads_go_in_the_order_of_their_turns() {
        let mut line = SeekLine::default();
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let mut turns: Vec<_> = (0..32).map(|n| (n, line.take())).collect();
            // The last ones come first.
            while let Some((n, turn)) = turns.pop() {
                let order = &order;
                scope.spawn(move || {
                    turn.wait();
                    order.lock().unwrap().push(n);
                });
            }
        });
        assert_eq!(order.into_inner().unwrap(), (0..32).collect::<Vec<_>>());
    }

    #[test]
    fn an_unused_place_in_line_delays_no_other() {
        let mut line = SeekLine::default();
        drop((line.take(), line.take()));
        line.take().wait();
    }
}
