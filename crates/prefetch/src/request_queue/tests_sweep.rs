//! The order on a device that has to move its heads.

use runahead_predict::Tier;

use super::*;
use crate::device_number::Home;
use crate::horizon::WINDOW;

const DISK: Home = Some((8, 0));

fn lies_at(at: u64) -> (Result<Found<()>, StepFailure>, bool) {
    let place = Place { home: DISK, at };
    let class = Class::File { size: 4096 };
    (Ok(Found { file: Arc::new(()), class, place }), true)
}

fn name(n: u64) -> String {
    format!("/d{n}/f")
}

/// Hints the files `all` in this order, has them looked up, and says in which order they are read.
fn order(all: &[u64], queue: &mut Queue<()>, fx: &mut Effects<()>) -> Vec<u64> {
    for (position, n) in all.iter().enumerate() {
        let (position, range) = (position as u64, 0..4096);
        Hint { position, range, ..hint(HintKind::Data, &name(*n)) }.submit(queue, fx);
    }
    let mut read = Vec::new();
    while let Some(job) = queue.pop() {
        match &job.step {
            Step::Look { .. } => {
                let at = path(&job)[2..].split('/').next().and_then(|n| n.parse().ok());
                let next = queue.looked(job, lies_at(at.expect("a number")), fx);
                if let Some(read) = next {
                    queue.finish(read, Ok(4096), fx);
                }
            }
            Step::Read { .. } => {
                let entry = &queue.entries[&job.entry].path;
                let text = str::from_utf8(entry).expect("text")[2..].split('/').next();
                read.push(text.and_then(|n| n.parse().ok()).expect("a number"));
                queue.finish(job, Ok(4096), fx);
            }
            _ => panic!("neither a lookup nor a read"),
        }
    }
    read
}

/// A queue that knows that everything is on a disk whose heads have to be moved.
fn narrow() -> (Queue<()>, Effects<()>) {
    let (mut queue, mut fx) = sized(100_000);
    order(&[0], &mut queue, &mut fx);
    queue.set_narrow(DISK, true);
    (queue, fx)
}

#[test]
fn data_is_read_in_sweeps_where_heads_move() {
    let (mut queue, mut fx) = narrow();
    assert_eq!(order(&[5, 2, 9, 1], &mut queue, &mut fx), [1, 2, 5, 9]);
    // The next goes on from there, and then from the start.
    assert_eq!(order(&[4, 12, 3, 10], &mut queue, &mut fx), [10, 12, 3, 4]);
}

#[test]
fn what_comes_first_is_passed_over_for_one_sweep_at_most() {
    let (mut queue, mut fx) = narrow();
    let all: Vec<u64> = std::iter::once(1 << 20).chain(0..3 * WINDOW as u64).collect();
    let read = order(&all, &mut queue, &mut fx);
    let passed = read.iter().position(|n| *n == 1 << 20).expect("it is read");
    assert!(passed > 0 && passed < WINDOW, "{passed}");
}

#[test]
fn a_sweep_gives_way_to_a_demand() {
    let (mut queue, mut fx) = narrow();
    for n in [3, 1, 2] {
        Hint { range: 0..4096, ..hint(HintKind::Data, &name(n)) }.submit(&mut queue, &mut fx);
    }
    for _ in 0..3 {
        let look = queue.pop().expect("a lookup");
        let at = path(&look)[2..3].parse().expect("a number");
        queue.looked(look, lies_at(at), &mut fx);
    }
    let mut next = || queue.pop().map(|job| queue.entries[&job.entry].path.to_vec());
    assert_eq!(next().as_deref(), Some(&b"/d1/f"[..]));
    let demand = Hint { flags: DEMAND, range: 0..4096, ..hint(HintKind::Data, &name(3)) };
    demand.submit(&mut queue, &mut fx);
    let mut next = || queue.pop().map(|job| queue.entries[&job.entry].path.to_vec());
    assert_eq!(next().as_deref(), Some(&b"/d3/f"[..]));
    assert_eq!(next().as_deref(), Some(&b"/d2/f"[..]));
}

#[test]
fn a_path_goes_to_the_device_that_its_directory_is_on() {
    let (mut queue, mut fx) = new();
    for n in 0..2 {
        let name = format!("/d/{n}");
        Hint { range: 0..4096, ..hint(HintKind::Data, &name) }.submit(&mut queue, &mut fx);
    }
    let look = queue.pop_at(None, Tier::Hint).expect("a lookup");
    queue.looked(look, lies_at(1), &mut fx);
    assert!(queue.pop_at(None, Tier::Hint).is_none(), "the other is known to be elsewhere, too");
    assert!(queue.pop_at(DISK, Tier::Hint).is_some());
}
