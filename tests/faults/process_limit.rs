//! A command keeps its limit of processes and threads: runahead's own are a small part of it.

use runahead_tests::{End, Fixture, Group, Outcome, Run, available, fixture, root};

/// Starts so many programs at a time that read cold files, four times; says how many did not start.
const CROWD: &str = "import subprocess, sys
failed = 0
for turn in range(4):
    crowd = []
    for n in range(int(sys.argv[1])):
        files = ['many/%02d' % ((n * 7 + turn * 11 + k) % 40) for k in range(3)]
        try:
            crowd.append(subprocess.Popen(['cat'] + files, stdout=subprocess.DEVNULL))
        except OSError:
            failed += 1
    failed += sum(process.wait() != 0 for process in crowd)
print('failed', failed)
";

fn once(fixture: &Fixture, run: &Run, group: &Group) -> Outcome {
    fixture.reset();
    group.run(run).run()
}

#[test]
fn a_process_limit_leaves_room_for_the_command() {
    let (Some(fixture), Some(())) = (available(fixture()), available(root())) else { return };
    for (limit, crowd) in [(100, "75"), (100, "40"), (64, "50"), (64, "40"), (14, "13"), (2, "1")] {
        let Some(group) = available(Group::of_tasks("tasks", limit)) else { return };
        let run = fixture.run(&["/usr/bin/python3", "-c", CROWD, crowd]);
        let plain = once(&fixture, &run, &group);
        assert_eq!(plain.end, End::Exit(0), "{limit}: {plain:?}");
        assert_eq!(plain.text(), "failed 0\n", "{limit}, natively: {plain:?}");
        for _ in 0..3 {
            let ahead = once(&fixture, &run.ahead(&[]), &group);
            assert_eq!((ahead.end, ahead.text()), (plain.end, plain.text()), "{limit}: {ahead:?}");
        }
    }
}
