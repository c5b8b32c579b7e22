//! Tests of the format: a written run is read back, and damaged or random bytes do no harm.

use super::*;

struct Random(u64);

impl Random {
    fn seeded() -> Self {
        let given = std::env::var("RUNAHEAD_SEED").ok().and_then(|text| text.parse().ok());
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let seed = given.unwrap_or_else(|| now.map_or(1, |now| now.as_nanos() as u64));
        eprintln!("repeat with RUNAHEAD_SEED={seed}");
        Random(seed)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 20) % bound
    }

    fn run(&mut self) -> Run {
        let places = 1 + self.below(40);
        let mut run = Run { command: [self.below(256) as u8; 16], ..Run::default() };
        for n in 0..places {
            let path = format!("/{}/{}", "d/".repeat(self.below(5) as usize), n * self.below(9));
            let attributes = (self.below(3) > 0).then(|| Attributes {
                size: self.below(1 << 40),
                mtime: self.below(1 << 40) as i64 - (1 << 39),
                inode: self.below(u64::MAX),
            });
            let key = self.below(u64::MAX);
            run.paths.push(RecordedPath { path: path.into_bytes(), key, attributes });
        }
        for _ in 0..self.below(200) {
            let place = self.below(places) as u32;
            let offset = self.below(i64::MAX as u64 - RANGE_MAX);
            let length = 1 + self.below(RANGE_MAX);
            let what = match self.below(8) {
                n if n < 5 => PLAIN_KINDS[n as usize],
                5 => AccessKind::Touched { offset, length },
                _ => AccessKind::Data { offset, length },
            };
            run.accesses.push(Access { path: place, kind: what });
            if self.below(9) == 0 {
                run.programs.push(run.accesses.len() as u32);
            }
            if self.below(7) == 0 {
                run.unused.push((run.accesses.len() as u32 - 1, self.below(256) as u8));
            }
        }
        let words: Vec<Vec<u8>> = (0..self.below(4)).map(|n| vec![b'w'; 3 * n as usize]).collect();
        run.origin = Origin::new(words.iter().map(|word| &word[..]), b"/here");
        run
    }
}

/// Asserts all that users of a run rely on.
fn assert_harmless(run: &Run) {
    assert!(run.paths.len() <= PATHS_MAX && run.accesses.len() <= ACCESSES_MAX);
    assert!(run.paths.iter().map(|p| p.path.len()).sum::<usize>() <= PATH_BYTES_MAX);
    assert!(run.programs.len() <= PROGRAMS_MAX && run.programs.is_sorted());
    assert!(run.programs.iter().all(|&n| n as usize <= run.accesses.len()));
    assert!(run.unused.is_sorted_by(|a, b| a.0 < b.0));
    assert!(run.unused.iter().all(|&(access, _)| (access as usize) < run.accesses.len()));
    for place in &run.paths {
        assert!(place.path.starts_with(b"/") && place.path.len() <= PATH_MAX);
        assert!(!place.path.contains(&0));
    }
    for access in &run.accesses {
        assert!((access.path as usize) < run.paths.len());
        if let Some((offset, length)) = access.kind.range() {
            assert!((1..=RANGE_MAX).contains(&length) && offset <= i64::MAX as u64 - length);
        }
    }
}

#[test]
fn encoded_run_decodes_unchanged() {
    let mut random = Random::seeded();
    assert_eq!(decode(&encode(&Run::default())), Ok(Run::default()));
    for _ in 0..500 {
        let run = random.run();
        assert_harmless(&run);
        assert_eq!(decode(&encode(&run)).as_ref(), Ok(&run));
    }
}

#[test]
fn truncated_file_is_damaged() {
    let bytes = encode(&Random(1).run());
    for len in 0..bytes.len() {
        let error = decode(&bytes[..len]).expect_err("not whole");
        let expected = if len == 0 { FormatError::NotOne } else { FormatError::Damaged };
        assert_eq!(error, expected, "{len} of {}", bytes.len());
    }
}

#[test]
fn other_files_and_versions_are_refused() {
    assert_eq!(decode(b"#!/bin/sh\n"), Err(FormatError::NotOne));
    let mut bytes = encode(&Run::default());
    bytes[VERSION_AT] += 1;
    assert_eq!(decode(&bytes), Err(FormatError::Version(VERSION + 1)));
    bytes[VERSION_AT] = VERSION_BEFORE as u8;
    assert!(decode(&bytes).is_ok(), "that of before is read");
    bytes[VERSION_AT] = VERSION_BEFORE as u8 - 1;
    assert_eq!(decode(&bytes), Err(FormatError::Version(VERSION_BEFORE - 1)));
    bytes[VERSION_AT] = VERSION as u8 + 1;
    let text = FormatError::Version(9).to_string();
    assert!(text.contains('9') && text.contains(&VERSION.to_string()), "{text}");
}

#[test]
fn every_flipped_bit_is_noticed() {
    let mut bytes = encode(&Random(2).run());
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(decode(&bytes).is_err(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

/// A hostile writer would give the file a right checksum.
#[test]
fn any_text_decodes_to_an_error_or_a_harmless_run() {
    let mut random = Random::seeded();
    let (mut good, mut bad) = (0, 0);
    for _ in 0..3000 {
        let bytes = encode(&random.run());
        let length = u32::from_le_bytes(bytes[LENGTH_AT..TEXT_AT].try_into().expect("4")) as usize;
        let mut text = lz4_flex::block::decompress(&bytes[TEXT_AT..], length).expect("ours");
        for _ in 0..random.below(6) {
            let at = random.below(text.len() as u64) as usize;
            match random.below(4) {
                0 => text[at] = random.below(256) as u8,
                1 => text[at] ^= 1 << random.below(8),
                2 => text.truncate(at + 1),
                _ => text.insert(at, 0xff),
            }
        }
        match decode(&with_text(&text)) {
            Ok(run) => {
                good += 1;
                assert_harmless(&run);
            }
            Err(error) => {
                bad += 1;
                assert_eq!(error, FormatError::Nonsense);
            }
        }
        // And no bytes at all like ours.
        let noise: Vec<u8> = (0..random.below(300)).map(|_| random.below(256) as u8).collect();
        decode(&with_text(&noise)).inspect(assert_harmless).ok();
        let _ = decode(&noise);
    }
    assert!(good > 100 && bad > 100, "{good} and {bad}: one side was not tried");
}

/// A few bytes that unpack to much.
#[test]
fn decompression_bombs_are_refused() {
    let mut many = postcard::to_allocvec(&Head {
        command: [0; 16],
        places: PATHS_MAX as u32,
        accesses: 0,
        programs: 0,
        unused: 0,
        line: vec![],
        directory: vec![],
    })
    .expect("plain");
    let long =
        WirePlace { shared: 0, rest: [b'/'; PATH_MAX].to_vec(), key: [0; 8], attributes: None };
    many.extend(postcard::to_allocvec(&long).expect("plain"));
    let again = WirePlace { shared: PATH_MAX as u16, rest: vec![], key: [0; 8], attributes: None };
    let again = postcard::to_allocvec(&again).expect("plain");
    (1..PATHS_MAX).for_each(|_| many.extend_from_slice(&again));
    assert_eq!(decode(&with_text(&many)), Err(FormatError::Nonsense), "a gigabyte of paths");

    let more = Head {
        command: [0; 16],
        places: u32::MAX,
        accesses: u32::MAX,
        programs: 0,
        unused: 0,
        line: vec![],
        directory: vec![],
    };
    let more = postcard::to_allocvec(&more).expect("plain");
    assert_eq!(decode(&with_text(&more)), Err(FormatError::Nonsense));

    let mut long = with_text(&[]);
    long[LENGTH_AT..TEXT_AT].copy_from_slice(&u32::MAX.to_le_bytes());
    let sum = checksum(&long[LENGTH_AT..]);
    long[SUM_AT..LENGTH_AT].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(decode(&long), Err(FormatError::Nonsense));
}

#[test]
fn encode_within_truncates_long_runs() {
    let mut run = Run::default();
    for n in 0..20_000u64 {
        let path = format!("/{}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes();
        run.paths.push(RecordedPath {
            path,
            key: n.wrapping_mul(77_777_777_777),
            attributes: None,
        });
        run.accesses.push(Access { path: n as u32, kind: AccessKind::Lookup });
    }
    let bytes = encode_within(&run, 100_000);
    let cut = decode(&bytes).expect("whole");
    assert!(bytes.len() <= 100_000 && cut.accesses.len() > 1000, "{}", cut.accesses.len());
    assert_eq!(cut.accesses[..], run.accesses[..cut.accesses.len()]);
    assert_eq!(cut.paths[..], run.paths[..cut.paths.len()]);
    assert_eq!(decode(&encode_within(&run, 0)).expect("whole").accesses, []);
}
