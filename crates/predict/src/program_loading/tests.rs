//! Expansions: what is found, in which order, for whom, and that there is an end to it.

use std::time::Duration;

use proptest::prelude::*;
use runahead_abi::HintKind;
use runahead_estimators::Identity;

use super::fake_files::{FakeFiles, Made, ld_cache};
use super::program_expansion::FILES_MAX;
use super::recent_files::FRESH;
use super::*;
use crate::deferred_effects::{Effects, StepFailure, Submitted};
use crate::hint_order::{ClientId, EntryId, Item, Tag};
use crate::test_support::TestQueue;

const A: ClientId = 1;
const B: ClientId = 2;
const NOW: Duration = Duration::ZERO;

/// Programs, and queues of two clients.
struct Bench {
    programs: Programs<Vec<u8>>,
    queue: TestQueue,
    fx: Effects<Vec<u8>>,
    files: FakeFiles,
    inspector: Inspector,
    id: EntryId,
}

fn key(path: &str) -> Identity {
    Identity::ROOT.join(path.as_bytes())
}

impl Bench {
    fn new() -> Self {
        let queue = TestQueue::of(&[A, B]);
        Bench {
            programs: Programs::default(),
            queue,
            fx: Effects::default(),
            files: FakeFiles::default(),
            inspector: Inspector::new(b"/env", b"/bin:/usr/bin"),
            id: 0,
        }
    }

    fn hint(&mut self, client: ClientId, path: &str, now: Duration) -> Submitted {
        self.hint_with(client, path, now, (1, 0))
    }

    fn hint_with(
        &mut self,
        client: ClientId,
        path: &str,
        now: Duration,
        (run, flags): (u32, u32),
    ) -> Submitted {
        self.id += 1;
        let tag = Tag { run, flags, position: 0, hints: 1, steers: 0 };
        let (hint, at) = ((client, key(path), tag), (path.as_bytes(), now));
        self.programs.submit(self.id, hint, at, &mut self.queue, &mut self.fx)
    }

    /// The next task, as a worker would get it.
    fn pop(&mut self) -> Option<(EntryId, Task<Vec<u8>>, bool)> {
        let (_, id, item) = self.queue.first()?;
        assert_eq!(item, Item::Program);
        let (task, own) = self.programs.pop(id, &mut self.queue).expect("a task");
        Some((id, task, own))
    }

    /// Does a task, and what follows from it for the same worker. What was loaded.
    fn serve(&mut self, (id, task, mut own): (EntryId, Task<Vec<u8>>, bool)) -> Vec<String> {
        let mut told = Vec::new();
        let mut next = Some(task);
        while let Some(task) = next {
            let report = match &task {
                Task::Find { lead } => {
                    self.inspector.find(&mut self.files, lead).map(Report::Found)
                }
                Task::Needs { found } => {
                    Ok(Report::Leads(self.inspector.needs(&mut self.files, found, NOW)))
                }
                Task::Load { range, .. } => Ok(Report::Loaded(range.end - range.start)),
            };
            let text = |path: &[u8]| String::from_utf8(path.to_vec()).expect("text");
            match (&task, &report) {
                (_, Ok(Report::Found(Some(located)))) => told.push(text(&located.path)),
                (Task::Load { path, range, .. }, _) => {
                    told.push(format!("{}@{}", text(path), range.start >> 10));
                }
                _ => {}
            }
            let report = (report, NOW);
            next = self.programs.finish((id, own), task, report, &mut self.queue, &mut self.fx);
            own = false;
        }
        told
    }

    fn run(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        while let Some(job) = self.pop() {
            told.extend(self.serve(job));
            assert!(told.len() < 100_000, "no end");
        }
        assert!(self.programs.is_idle());
        assert!(self.queue.is_idle(A) && self.queue.is_idle(B));
        told
    }
}

#[test]
fn a_program_brings_its_linker_and_libraries_breadth_first_and_each_once() {
    let mut bench = Bench::new();
    bench.files.put("/bin/x", Made::needing(&["liba.so", "libc.so", "libnone.so"]).bytes());
    bench.files.put("/lib64/ld.so", Made::needing(&["libnever.so"]).bytes());
    bench.files.put("/usr/lib/liba.so", Made::needing(&["libb.so", "libc.so"]).bytes());
    // What stands in the way is no library for this machine.
    bench.files.put("/env/libb.so", "no library");
    bench.files.put("/lib/libb.so", Made::needing(&["liba.so", "libb.so"]).bytes());
    bench.files.put("/lib/libc.so", Made::needing(&[]).bytes());
    assert_eq!(bench.hint(A, "/bin/x", NOW), Submitted::Queued);
    let told = bench.run();
    assert_eq!(
        told,
        ["/bin/x", "/lib64/ld.so", "/usr/lib/liba.so", "/lib/libc.so", "/lib/libb.so"]
    );
    assert_eq!(bench.fx.done, [(A, key("/bin/x"))]);
    let (client, completion) = bench.fx.completed[0];
    assert_eq!((client, completion.kind, completion.hints), (A, HintKind::Program, 1));
    assert!(!completion.failed && completion.bytes > 0);
}

#[test]
fn the_linkers_cache_tells_where_libraries_are() {
    let mut bench = Bench::new();
    bench.files.put("/bin/x", Made::needing(&["libo.so", "libgone.so"]).bytes());
    bench.files.put("/opt/odd/libo.so", Made::needing(&[]).bytes());
    bench.files.put("/lib/libo.so", Made::needing(&[]).bytes());
    // The cache may be older than what is there.
    bench.files.put("/lib/libgone.so", Made::needing(&[]).bytes());
    let entries =
        [(0x0303, "libo.so", "/opt/odd/libo.so"), (0x0303, "libgone.so", "/opt/odd/libgone.so")];
    bench.files.put("/etc/ld.so.cache", ld_cache(&entries));
    bench.hint(A, "/bin/x", NOW);
    assert_eq!(bench.run(), ["/bin/x", "/opt/odd/libo.so", "/lib/libgone.so"]);
}

#[test]
fn a_program_for_musl_is_searched_as_musl_does() {
    let mut bench = Bench::new();
    let linker = "/m/lib/ld-musl-x86_64.so.1";
    let needs = ["libz.so", "libc.musl-x86_64.so.1"];
    let made = Made { interpreter: Some(linker), ..Made::needing(&needs) };
    bench.files.put("/bin/x", made.bytes());
    bench.files.put(linker, Made::needing(&[]).bytes());
    bench.files.put("/m/etc/ld-musl-x86_64.path", "/m/a\n/m/b\n");
    bench.files.put("/m/b/libz.so", Made::needing(&[]).bytes());
    // Where the GNU C library would look.
    bench.files.put("/lib/libz.so", Made::needing(&[]).bytes());
    bench.files.put("/etc/ld.so.cache", ld_cache(&[(0x0303, "libz.so", "/lib/libz.so")]));
    bench.hint(A, "/bin/x", NOW);
    assert_eq!(bench.run(), ["/bin/x", linker, "/m/b/libz.so"]);
}

#[test]
fn what_a_start_needs_comes_before_the_rest_of_large_files() {
    let mut bench = Bench::new();
    let large = Made { padding: 3 << 20, ..Made::needing(&["libl.so"]) };
    bench.files.put("/bin/x", large.bytes());
    bench.files.put("/lib/libl.so", Made { padding: 1 << 20, ..Made::needing(&[]) }.bytes());
    bench.hint(A, "/bin/x", NOW);
    let told = bench.run();
    let at = |text: &str| told.iter().position(|t| t == text).unwrap_or_else(|| panic!("{text}"));
    assert!(at("/lib/libl.so") < at("/bin/x@128"), "{told:?}");
    // The first piece has the relocations, too.
    assert!(at("/lib/libl.so@128") < at("/bin/x@512"));
    assert_eq!(told.iter().filter(|t| t.starts_with("/bin/x@")).count(), 7);
}

#[test]
fn a_script_brings_what_executes_it_but_not_for_ever() {
    let mut bench = Bench::new();
    bench.files.put("/s1", "#!/s2 x\n");
    bench.files.put("/s2", "#!/s3\n");
    bench.files.put("/s3", "#!/usr/bin/env -S s4 -x\n");
    bench.files.put("/usr/bin/env", Made::needing(&[]).bytes());
    bench.files.put("/usr/bin/s4", "#!/s5\n");
    bench.files.put("/s5", "#!/s6\n");
    bench.hint(A, "/s1", NOW);
    assert_eq!(bench.run(), ["/s1", "/s2", "/s3", "/usr/bin/env", "/usr/bin/s4", "/s5"]);
    let mut bench = Bench::new();
    bench.files.put("/loop", "#!/loop\n");
    bench.hint(A, "/loop", NOW);
    assert_eq!(bench.run(), ["/loop"]);
}

#[test]
fn what_was_expanded_is_not_expanded_again_for_a_while() {
    let mut bench = Bench::new();
    bench.files.put("/bin/x", Made::needing(&["libc.so"]).bytes());
    bench.files.put("/bin/y", Made::needing(&["libc.so"]).bytes());
    bench.files.put("/lib/libc.so", Made { padding: 1 << 20, ..Made::needing(&[]) }.bytes());
    bench.hint(A, "/bin/x", NOW);
    bench.run();
    bench.files.opened.clear();
    let again = FRESH / 2;
    assert_eq!(bench.hint(B, "/bin/x", again), Submitted::Answered);
    assert!(bench.pop().is_none());
    assert_eq!(bench.fx.done.last(), Some(&(B, key("/bin/x"))));
    bench.hint(A, "/bin/y", again);
    assert_eq!(bench.run(), ["/bin/y", "/lib/libc.so"], "it is found, and not loaded again");
    assert_eq!(bench.hint(A, "/bin/x", FRESH), Submitted::Queued);
}

#[test]
fn a_program_that_is_not_there_is_an_answer() {
    let mut bench = Bench::new();
    bench.hint(A, "/bin/none", NOW);
    bench.run();
    assert_eq!(bench.fx.done, [(A, key("/bin/none"))]);
    assert!(bench.fx.completed[0].1.failed);
}

#[test]
fn two_clients_share_an_expansion_and_either_may_go() {
    let mut bench = Bench::new();
    bench.files.put("/bin/x", Made { padding: 2 << 20, ..Made::needing(&["libc.so"]) }.bytes());
    bench.files.put("/lib/libc.so", Made::needing(&[]).bytes());
    assert_eq!(bench.hint(A, "/bin/x", NOW), Submitted::Queued);
    assert_eq!(bench.hint(B, "/bin/x", NOW), Submitted::Merged);
    assert_eq!(bench.hint(B, "/bin/x", NOW), Submitted::Duplicate);
    let first = bench.pop().expect("the program");
    let mut told = bench.serve(first);
    let id = bench.queue.first().expect("more").1;
    let Bench { programs, queue, fx, .. } = &mut bench;
    assert_eq!(programs.drop((id, A), None, queue, fx), 1);
    assert_eq!(fx.forget, [(A, key("/bin/x"), u32::MAX)]);
    told.extend(bench.run());
    assert!(told.contains(&"/lib/libc.so".to_owned()));
    assert_eq!(bench.fx.done, [(B, key("/bin/x"))]);
}

#[test]
fn an_expansion_ends_with_the_last_that_wants_it_and_is_not_fresh_then() {
    let mut bench = Bench::new();
    bench.files.put("/bin/x", Made { padding: 2 << 20, ..Made::needing(&["libc.so"]) }.bytes());
    bench.hint(A, "/bin/x", NOW);
    let under_way = bench.pop().expect("the program");
    let id = under_way.0;
    let Bench { programs, queue, fx, .. } = &mut bench;
    assert_eq!(programs.drop((id, A), Some(1), queue, fx), 0, "run 1 still counts");
    assert_eq!(programs.drop((id, A), Some(2), queue, fx), 1);
    assert_eq!(fx.forget, [(A, key("/bin/x"), 2)]);
    assert_eq!(bench.serve(under_way), ["/bin/x"]);
    assert!(bench.pop().is_none() && bench.fx.done.is_empty());
    assert_eq!(bench.hint(A, "/bin/x", NOW), Submitted::Queued);
    assert!(!bench.run().is_empty());
}

#[test]
fn what_a_target_waits_for_is_urgent_but_not_all_of_a_large_program() {
    use crate::hint_order::Tier;
    let mut bench = Bench::new();
    bench.files.put("/bin/x", Made { padding: 4 << 20, ..Made::needing(&[]) }.bytes());
    bench.hint_with(A, "/bin/x", NOW, (0, runahead_abi::hint_record::DEMAND));
    assert_eq!(bench.queue.tier(), Some(Tier::Demand));
    let mut urgent = 0;
    while bench.queue.tier() == Some(Tier::Demand) {
        let job = bench.pop().expect("a task");
        bench.serve(job);
        urgent += 1;
    }
    assert!((2..5).contains(&urgent), "{urgent}");
    assert_eq!(bench.queue.tier(), Some(Tier::Hint));
    bench.run();
}

#[test]
fn a_shortage_of_our_own_is_no_answer() {
    let mut bench = Bench::new();
    bench.hint(A, "/bin/x", NOW);
    let (id, task, own) = bench.pop().expect("a task");
    let Bench { programs, queue, fx, .. } = &mut bench;
    programs.finish((id, own), task, (Err(StepFailure::Ours), NOW), queue, fx);
    assert_eq!(fx.forget, [(A, key("/bin/x"), u32::MAX)]);
    assert_eq!(bench.hint(A, "/bin/x", NOW), Submitted::Queued, "tried again");
}

proptest! {
    #![proptest_config(crate::test_support::config(300))]

    /// Libraries that need each other in any way, scripts that execute each other, and damage: the
    /// expansion ends, after a bounded number of files, and its hint is completed.
    #[test]
    fn there_is_an_end_to_every_expansion(
        needs in prop::collection::vec(prop::collection::vec(0usize..400, 0..40), 1..60),
        scripts in prop::collection::vec(0usize..60, 60),
        damage in prop::collection::vec((0usize..60, 0usize..4200, any::<u8>()), 0..60),
    ) {
        let mut bench = Bench::new();
        for (n, needs) in needs.iter().enumerate() {
            let names: Vec<String> = needs.iter().map(|n| format!("lib{n}.so")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let mut bytes = Made::needing(&names).bytes();
            for &(_, at, value) in damage.iter().filter(|(file, ..)| *file == n) {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            bench.files.put(&format!("/lib/lib{n}.so"), bytes);
        }
        for (n, other) in scripts.iter().enumerate() {
            let next = if n % 5 == 0 { format!("/lib/lib{other}.so") } else { format!("/s{other}") };
            bench.files.put(&format!("/s{n}"), format!("#!{next}\n"));
        }
        for path in ["/s1", "/lib/lib0.so"] {
            bench.hint(A, path, NOW);
            let files = bench.run().iter().filter(|path| !path.contains('@')).count();
            prop_assert!(files <= FILES_MAX);
        }
        prop_assert_eq!(bench.fx.done.len(), 2);
        // Each of 256 files is looked for in a bounded number of places.
        prop_assert!(bench.files.opened.len() <= 2 * FILES_MAX * (library_search::CANDIDATES_MAX + 2));
    }
}
