//! Arbitrary bytes in the memory that a target shares with the supervisor.

use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use runahead_abi::hint_record::{Header, OF_MEMORY};
use runahead_abi::{Control, Shared};
use runahead_admission::process::doorbell;

use crate::fake_target::Target;
use crate::random::Random;
use crate::{assert_bounded, eventually, is_full, resident};

const ROUNDS: u64 = 4000;

#[test]
fn nonsense_in_shared_memory_is_survived() {
    let rounds = if is_full() { ROUNDS * 50 } else { ROUNDS };
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("file");
    std::fs::write(&file, [7; 10_000]).expect("ours");
    let path = file.to_str().expect("plain");
    let mut random = Random::new();
    let target = Target::new(&["true"]);
    let seen = target.join().expect("it has our rights");
    let before = resident();
    for round in 0..rounds {
        let shared = seen.shared();
        // Control words, statuses and heads of rings lie in `first`; other bytes are written now
        // and then.
        for _ in 0..random.next() % 64 {
            let first = size_of_val(&shared.control) + size_of_val(&shared.runs) + 128;
            let within = if random.next().is_multiple_of(4) { size_of::<Shared>() } else { first };
            let at = random.next() as usize % (within / 8) * 8;
            // A process that has said that it gives up is no longer listened to.
            if at != offset_of!(Control, stopped) / 8 * 8 {
                seen.file.write_all_at(&random.word().to_le_bytes(), at as u64).expect("ours");
            }
        }
        // Records that are nearly valid.
        for _ in 0..random.next() % 8 {
            let mut header = Header {
                kind: 1 + random.next() as u32 % 5,
                run: random.next() as u32,
                position: random.word(),
                key: random.word(),
                offset: random.word(),
                length: random.word(),
                // Records of swapped memory are mostly masked out: else they would be every second
                // one.
                flags: random.next() as u32
                    & if random.next().is_multiple_of(8) { !0 } else { !OF_MEMORY },
                path_len: path.len() as u32,
            };
            let mut name = path.as_bytes().to_vec();
            if random.next().is_multiple_of(4) {
                let at = dir.path().as_os_str().len() + 1;
                let place = at + random.next() as usize % (name.len() - at);
                name[place] = random.next() as u8;
            }
            if random.next().is_multiple_of(8) {
                header.path_len = random.word() as u32;
            }
            shared.ring(random.next() as u32).push(&[header.as_bytes(), &name]);
        }
        // A run that seems to have ended reaches the most code.
        if random.next().is_multiple_of(2) {
            let control = &shared.control;
            let run = control.run_request.load(Relaxed);
            shared.run(run).run.store(run, Relaxed);
            shared.run(run).end.store(random.next() as u32 % 9, Relaxed);
            shared.run(run).accesses.store(random.word(), Relaxed);
            control.accesses.store(random.word(), Relaxed);
            control.accesses_at_sync.store(random.word(), Relaxed);
            control.horizon.store(1, Relaxed);
        }
        doorbell::ring(shared);
        if round % 8 == 0 {
            std::thread::sleep(Duration::from_millis(3));
        }
    }
    let submitted = target.submitted();
    eprintln!("{rounds} rounds, {submitted} records came through");
    assert!(submitted > rounds / 16, "nothing was tried: {submitted} records came through");
    // The supervisor still serves the process. It does not resume what it gave up.
    let shared = seen.shared();
    let alive = || {
        shared.control.sleeping.store(1, SeqCst);
        doorbell::ring(shared);
        seen.hint(path, 0);
        eventually(|| shared.rings.iter().all(|ring| ring.is_empty()))
    };
    assert!(alive(), "the dispatcher does not take records any more");
    assert_bounded(before);
    // Other processes are served as well.
    let other = Target::new(&["true"]);
    let fresh = other.join().expect("a new one may join");
    fresh.hint(path, 0);
    assert!(eventually(|| other.submitted() > 0), "a new process is not served");
}

/// The target cannot truncate the shared file, which would kill the supervisor by SIGBUS.
#[test]
fn the_shared_file_keeps_its_length() {
    let target = Target::new(&["true"]);
    let seen = target.join().expect("it has our rights");
    assert!(seen.file.set_len(0).is_err(), "it can be cut");
    assert!(seen.file.set_len(1 << 40).is_err(), "it can grow");
}
