//! Names that are looked for in one directory after another.

use proptest::prelude::*;
use runahead_abi::hint_record::DEMAND;

use super::super::guess_kind::{ALLOWANCE, COST_MIN};
use super::super::guess_state::CREDIT;
use super::super::tests::{A, Bench};
use super::*;

const LOOKED_FOR: [&str; 3] = ["init.so", "init.py", "c/init.pyc"];

fn look(bench: &mut Bench, path: &str) {
    bench.want_as(A, HintKind::Lookup, path, DEMAND);
}

/// A program enters a directory.
fn enter(bench: &mut Bench, directory: &str) {
    for name in LOOKED_FOR {
        look(bench, &format!("{directory}/{name}"));
    }
    bench.demand(&format!("{directory}/c/init.pyc"));
}

fn looked_up(bench: &Bench, directory: &str) -> Vec<&'static str> {
    let was = |name: &&str| bench.read.contains(&format!("{directory}/{name}"));
    LOOKED_FOR.into_iter().filter(was).collect()
}

/// A directory with `directories` subdirectories, of which four have been entered.
fn entered(directories: usize) -> Bench {
    let mut bench = Bench::new(0, 1000);
    bench.directories = (0..directories).map(|n| format!("r{n}")).collect();
    // The two that are named in the routine are no siblings.
    bench.directories.push("c".to_owned());
    (0..4).for_each(|n| enter(&mut bench, &format!("/p/r{n}")));
    bench
}

#[test]
fn two_directories_make_no_routine() {
    let mut bench = Bench::new(0, 1000);
    (0..2).for_each(|n| enter(&mut bench, &format!("/p{n}/r{n}")));
    look(&mut bench, "/p2/r2/init.so");
    bench.run();
    assert!(bench.read.is_empty());
}

#[test]
fn the_first_name_in_a_directory_brings_the_others() {
    let mut bench = Bench::new(0, 1000);
    (0..3).for_each(|n| enter(&mut bench, &format!("/p{n}/r{n}")));
    bench.run();
    bench.read.clear();
    look(&mut bench, "/q/r/init.so");
    bench.run();
    assert_eq!(looked_up(&bench, "/q/r"), ["init.py", "c/init.pyc"]);
    assert!(bench.spent >= 1000, "contents were always wanted, so they are read");
}

#[test]
fn siblings_of_four_directories_are_entered_ahead() {
    let mut bench = entered(10);
    bench.run();
    for n in 4..10 {
        assert_eq!(looked_up(&bench, &format!("/p/r{n}")), LOOKED_FOR, "{n}");
    }
    assert!(looked_up(&bench, "/p/c").is_empty());
}

#[test]
fn without_siblings_only_what_is_entered_is_guessed() {
    let mut bench = Bench::new(0, 1000);
    bench.guesses.enters_siblings = false;
    bench.directories = (0..10).map(|n| format!("r{n}")).collect();
    (0..4).for_each(|n| enter(&mut bench, &format!("/p/r{n}")));
    look(&mut bench, "/p/r4/init.so");
    bench.run();
    assert_eq!(looked_up(&bench, "/p/r4"), ["init.py", "c/init.pyc"]);
    assert!((5..10).all(|n| looked_up(&bench, &format!("/p/r{n}")).is_empty()));
}

#[test]
fn without_patterns_no_name_is_guessed_in_a_directory_or_its_siblings() {
    let mut bench = Bench::new(0, 1000);
    bench.guesses.follows_patterns = false;
    bench.directories = (0..10).map(|n| format!("r{n}")).collect();
    (0..4).for_each(|n| enter(&mut bench, &format!("/p/r{n}")));
    look(&mut bench, "/p/r4/init.so");
    bench.run();
    assert!((4..10).all(|n| looked_up(&bench, &format!("/p/r{n}")).is_empty()));
}

#[test]
fn a_room_that_is_used_makes_room_for_more() {
    let many = (4 * ALLOWANCE / SIBLING_COST) as usize;
    let mut bench = entered(many);
    bench.run();
    let entered = |bench: &Bench| {
        (0..many).filter(|n| !looked_up(bench, &format!("/p/r{n}")).is_empty()).count()
    };
    let first = entered(&bench);
    assert!(first > 8 && first < many, "{first}");
    for n in 4..first {
        bench.want_as(A, HintKind::Lookup, &format!("/p/r{n}/other"), 0);
    }
    bench.run();
    assert!(entered(&bench) > 3 * first / 2, "{} after {first}", entered(&bench));
}

proptest! {
    #![proptest_config(crate::test_support::config(100))]

    /// However directories are entered, what is guessed in vain is bounded.
    #[test]
    fn the_waste_is_bounded(
        siblings in prop::collection::vec((0usize..20, 0usize..200), 1..300),
        run_every in 1usize..10,
    ) {
        let mut bench = Bench::new(20, 1000);
        bench.directories = (0..200).map(|n| format!("r{n}")).collect();
        for (n, (parent, sibling)) in siblings.iter().enumerate() {
            enter(&mut bench, &format!("/p{parent}/r{sibling}"));
            if n % run_every == 0 {
                bench.run();
            }
        }
        bench.run();
        let wanted = siblings.len() as u64 * 4 * COST_MIN;
        prop_assert!(bench.spent <= CREDIT + 4 * wanted, "{} for {wanted}", bench.spent);
        let patterns = bench.guesses.clients.get(&A);
        let mut places = patterns.iter().flat_map(|patterns| patterns.places.values());
        prop_assert!(places.all(|place| place.spent <= place.allowance));
    }
}
