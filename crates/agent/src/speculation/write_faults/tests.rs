//! Tests of groups that stores open and checkpoints close, in memory of the test.

extern crate std;

use super::*;
use std::boxed::Box;
use std::vec::Vec;

/// Random number generator (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Maps `pages` pages; the first is not the first of a group, and the page after the last is
/// unmapped.
fn region(pages: u64) -> Region {
    // SAFETY: memory of this test's own.
    let at = unsafe { sys::map_private(sys::Place::Anywhere, (pages + 8) * PAGE) }.unwrap();
    let start = at.next_multiple_of(GROUP) + PAGE;
    let end = start + pages * PAGE;
    // SAFETY: memory of this test's own.
    unsafe { sys::unmap(end, PAGE) }.unwrap();
    let rights = k::PROT_READ | k::PROT_WRITE;
    Region { start, end, rights, ..Region::default() }
}

/// True if the kernel can write at `at`.
fn is_writable(at: u64) -> bool {
    let byte = sys::copy_in::<u8>(at).unwrap();
    // SAFETY: memory of this test's own, whose contents stay the same.
    unsafe { sys::copy_out(&[byte], at) }.is_ok()
}

/// Asserts that exactly the open groups are writable.
fn check(state: &State) {
    for region in state.regions() {
        for page in (region.start..region.end).step_by(PAGE as usize) {
            let is_open = state.opened.has(group(region, page).start);
            assert_eq!(is_writable(page), is_open, "{page:x} of {:x}", region.start);
        }
    }
}

/// A removed range removes the open state of its own pages, and of no others.
#[test]
fn the_rest_of_a_cut_group_stays_open() {
    // SAFETY: zeroes are valid.
    let mut state: Box<State> = unsafe { Box::new_zeroed().assume_init() };
    let random = &mut Random(88_172_645_463_325_252);
    for _ in 0..200 {
        let region = region(60);
        (state.regions[0], state.count) = (region, 1);
        state.begin().unwrap();
        for _ in 0..6 {
            let at = region.start + random.below(60) * PAGE;
            if let Some(found) = state.region(at)
                && !is_writable(at)
            {
                assert!(state.open_for_store(found, at));
            }
            let at = region.start + random.below(60) * PAGE;
            let end = (at + (1 + random.below(9)) * PAGE).min(region.end);
            // Protected, not unmapped: another test's mapping might land there.
            // SAFETY: memory of this test's own.
            unsafe { sys::protect(at, end - at, 0) }.unwrap();
            state.remove_range(at, end);
            check(&state);
        }
        state.save_changed().unwrap();
        check(&state);
        state.end().unwrap();
        // SAFETY: memory of this test's own.
        unsafe { sys::unmap(region.start, region.end - region.start) }.unwrap();
    }
}

fn contents(state: &State) -> Vec<u8> {
    let bytes = |region: &Region| {
        // SAFETY: memory of this test's own.
        let all = unsafe {
            core::slice::from_raw_parts(
                region.start as *const u8,
                (region.end - region.start) as usize,
            )
        };
        all.to_vec()
    };
    state.regions().iter().flat_map(bytes).collect()
}

/// Random stores, checkpoints and rollbacks: a rollback restores memory exactly. In the end each
/// region is one mapping again, with its rights.
#[test]
fn rollbacks_restore_memory_of_each_checkpoint() {
    // SAFETY: zeroes are valid.
    let mut state: Box<State> = unsafe { Box::new_zeroed().assume_init() };
    let mut regions = [region(300), region(1), region(37), region(2)];
    regions.sort_by_key(|region| region.start);
    let random = &mut Random(88_172_645_463_325_252);
    for _ in 0..20 {
        state.regions[..regions.len()].copy_from_slice(&regions);
        state.count = regions.len();
        state.regions().iter().for_each(populate_page);
        state.begin().unwrap();
        let mut checkpoints = Vec::new();
        checkpoints.push((state.latest, contents(&state)));
        for n in 0..200 {
            if n % 16 == 0 {
                check(&state);
            }
            let number = random.below(checkpoints.len() as u64 + 3) as usize;
            match random.below(12) {
                0 | 1 => {
                    state.save_changed().unwrap();
                    checkpoints.push((state.latest, contents(&state)));
                }
                2 if number < checkpoints.len() => {
                    let (mark, held) = &checkpoints[number];
                    state.restore(*mark).unwrap();
                    assert!(contents(&state) == *held, "checkpoint {number}");
                    checkpoints.truncate(number);
                    if checkpoints.is_empty() {
                        break;
                    }
                    state.close_groups(|_| true).unwrap();
                }
                3 if checkpoints.len() > 1 => {
                    checkpoints.remove(0);
                    state.undo.forget_until(checkpoints[0].0);
                }
                _ => {
                    let region = regions[random.below(regions.len() as u64) as usize];
                    let at = region.start + random.below(region.end - region.start);
                    for at in (at..region.end).step_by(997).take(random.below(40) as usize) {
                        if !is_writable(at) {
                            assert!(state.open_for_store(region, at));
                        }
                        // SAFETY: memory of this test's own, which is writable now.
                        unsafe { (at as *mut u8).write(random.below(3) as u8) };
                    }
                }
            }
        }
        state.end().unwrap();
    }
    let mappings = regions.map(|region| {
        let mut count = 0;
        crate::process_maps::each::<1>(|mapping, _| {
            let is_there = mapping.start < region.end && region.start < mapping.end;
            count += u32::from(is_there);
            assert!(!is_there || mapping.writable);
            Ok(())
        })
        .unwrap();
        count
    });
    assert_eq!(mappings, [1; 4]);
}
