//! Replaces shared memory: a shadow's stores must reach no other process.
//!
//! Every shared mapping but the agent's becomes private memory with the same contents: small ones
//! at once, large ones as they are used ([`runner_faults`]). Where the kernel cannot seal a mapping
//! that was moved, all are copied, up to a limit. Memory beyond it becomes inaccessible, and a
//! shadow that touches it ends. Read-only mappings are replaced too, as their protection could be
//! changed back. Devices are not copied: reading their registers may have any effect.
//!
//! Large mapped files become lazy, shared or not ([`mapped_pages`]).
//!
//! The program's code and stack are noted on the way, for [`super::return_hooks`].

use linux_raw_sys::general as k;

use runahead_abi::PATH_MAX;

use super::{lazy_regions, mapped_pages, runner_faults};
use crate::plane::AddressRange;
use crate::process_maps::{self, Mapping};
use crate::sys::{self, Errno};
use crate::thread_owned::Owned;

/// Most bytes of shared memory copied for one shadow.
const COPY_BYTES_MAX: u64 = 64 << 20;
/// Most mappings that are replaced; a process with more has no shadow.
const MAPPINGS_MAX: usize = 256;

/// Most executable mappings that are noted; others count as data.
const CODE_MAPPINGS_MAX: usize = 128;

/// Bounds of the program's code, and of the stack of the shadowed thread.
pub(super) struct CodeAndStack {
    code: [AddressRange; CODE_MAPPINGS_MAX],
    count: usize,
    pub stack: AddressRange,
}

// SAFETY: zeroes, like all of it; placed at the end of the image so that small statics share pages.
#[unsafe(link_section = ".bss.large")]
static CODE_AND_STACK: Owned<CodeAndStack> = Owned::new(CodeAndStack::new());

impl CodeAndStack {
    const fn new() -> Self {
        let none = AddressRange::EMPTY;
        CodeAndStack { code: [none; CODE_MAPPINGS_MAX], count: 0, stack: none }
    }

    fn note(&mut self, mapping: &Mapping, stack: u64) {
        let range = AddressRange::new(mapping.start, mapping.end);
        // Code above the stack counts too: a thread's stack lies below the libraries.
        if mapping.executable && mapping.readable && self.count < CODE_MAPPINGS_MAX {
            self.code[self.count] = range;
            self.count += 1;
        }
        if range.contains(stack) {
            self.stack = range;
        }
    }

    /// Start of the code that contains `at`. The list is sorted, as the kernel lists mappings by
    /// address.
    pub(super) fn code_around(&self, at: u64) -> Option<u64> {
        let code = &self.code[..self.count];
        // Most words of a stack are numbers and addresses of data.
        if code.last().is_none_or(|last| at >= last.end) || at < code[0].start {
            return None;
        }
        let next = code.partition_point(|range| range.start <= at);
        let range = code.get(next.checked_sub(1)?)?;
        range.contains(at).then_some(range.start)
    }
}

/// Code and stack that [`give_up_shared`] has noted.
///
/// # Safety
/// In a shadow, after it; with no other reference to it in use.
pub(super) unsafe fn code_and_stack() -> &'static CodeAndStack {
    // SAFETY: passed on to the caller.
    unsafe { code_and_stack_mut() }
}

/// Mutable access to them.
///
/// # Safety
/// As for [`code_and_stack`].
unsafe fn code_and_stack_mut() -> &'static mut CodeAndStack {
    // SAFETY: passed on to the caller.
    unsafe { CODE_AND_STACK.get() }
}

/// A mapping that is replaced.
#[derive(Clone, Copy)]
struct ReplacedMapping {
    mapping: Mapping,
    /// True if a shared mapping is memory, and not a device.
    is_memory: bool,
    /// Stored name of a file whose mapping becomes lazy.
    file: Option<(u32, u32)>,
}

/// Finds mappings that are shared, or of files that no loader has mapped. Notes code and stack.
fn find_mappings(stack: u64, found: &mut [ReplacedMapping; MAPPINGS_MAX]) -> sys::Result<usize> {
    // SAFETY: the one thread of a new process.
    let (places, regions) = unsafe { (code_and_stack_mut(), lazy_regions::of_this_shadow()) };
    places.count = 0;
    let mut loaded = [(0, 0); CODE_MAPPINGS_MAX];
    let (mut count, mut programs) = (0, 0);
    process_maps::each::<PATH_MAX>(|mapping, name| {
        places.note(&mapping, stack);
        if mapping.executable && mapping.inode != 0 && programs < CODE_MAPPINGS_MAX {
            loaded[programs] = (mapping.device, mapping.inode);
            programs += 1;
        }
        let is_worth_it = mapped_pages::is_worth_making_lazy(&mapping, name);
        if mapping.shared || is_worth_it && count < MAPPINGS_MAX {
            let file = if is_worth_it { regions.store_name(name) } else { None };
            let is_memory = is_memory_name(name);
            *found.get_mut(count).ok_or(Errno(sys::ENOMEM))? =
                ReplacedMapping { mapping, is_memory, file };
            count += 1;
        }
        Ok(())
    })?;
    for found in &mut found[..count] {
        let file = (found.mapping.device, found.mapping.inode);
        found.file = found.file.filter(|_| !loaded[..programs].contains(&file));
    }
    Ok(count)
}

/// Replaces every shared mapping except the one at `ours`, and large mapped files. The program has
/// its stack pointer at `stack`.
pub(super) fn give_up_shared(ours: u64, stack: u64) -> sys::Result<()> {
    let none = ReplacedMapping { mapping: Mapping::default(), is_memory: false, file: None };
    let mut found = [none; MAPPINGS_MAX];
    let count = find_mappings(stack, &mut found)?;
    let can_move = runner_faults::can_move();
    let mut copied = 0;
    for &ReplacedMapping { mapping, is_memory, file } in &found[..count] {
        let Mapping { start, end, readable, shared, .. } = mapping;
        if start == ours
            || file.is_some_and(|name| mapped_pages::make_inherited_lazy(&mapping, name))
            || !shared
        {
            continue;
        }
        let len = end - start;
        // SAFETY: the program's memory in this process's copy; it is replaced by the same contents
        // or taken away, and the agent keeps nothing in shared memory but `ours`.
        unsafe {
            if readable && is_memory && can_move && len >= runner_faults::MOVED_BYTES_MIN {
                runner_faults::move_away(start, len)?;
                continue;
            }
            if !readable || !is_memory || copied + len > COPY_BYTES_MAX {
                sys::replace_with_private(start, len, k::PROT_NONE)?;
                continue;
            }
            let copy = sys::map_anywhere(len as usize)?;
            // A page beyond the end of its file faults here, which ends this process.
            core::ptr::copy_nonoverlapping(start as *const u8, copy as *mut u8, len as usize);
            sys::move_pages(copy, len, start)?;
        }
        copied += len;
    }
    Ok(())
}

/// True if a shared mapping of this name is memory. `/dev/zero` is the name of anonymous shared
/// memory.
fn is_memory_name(name: &[u8]) -> bool {
    const MEMORY: [&[u8]; 3] = [b"/dev/zero", b"/dev/shm/", b"/dev/hugepages/"];
    const OTHERS: [&[u8]; 4] = [b"/dev/", b"/sys/", b"/proc/", b"/dmabuf"];
    let is_in = |places: &[&[u8]]| places.iter().any(|place| name.starts_with(place));
    name.starts_with(b"/") && (is_in(&MEMORY) || !is_in(&OTHERS))
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    const MAPS: &str = "00401000-00405000 r-xp 00001000 08:01 123 /bin/s-p\n\
        7f00aa000000-7f00aa021000 rw-p 00000000 00:00 0 \n\
        7f00bb000000-7f00bb001000 --xs 00000000 00:01 6 /a file\n\
        7f00cc000000-7f00cc005000 r-xp 00000000 08:01 7 /lib/l.so\n\
        7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0 [stack]\n";

    fn found() -> Vec<Mapping> {
        let mut found = Vec::new();
        process_maps::in_text::<PATH_MAX>(MAPS.as_bytes(), |mapping, _| found.push(mapping));
        found
    }

    #[test]
    fn devices_are_told_from_memory_by_their_names() {
        let memory = [
            "/dev/zero (deleted)",
            "/SYSV0000002a (deleted)",
            "/memfd:x (deleted)",
            "/dev/shm/x",
            "/dev/hugepages/x",
            "/home/x/data",
        ];
        let others =
            ["/dev/uio0", "/sys/bus/pci/x/resource0", "anon_inode:[io_uring]", "socket:[1]", ""];
        assert!(memory.iter().all(|name| is_memory_name(name.as_bytes())));
        assert!(!others.iter().any(|name| is_memory_name(name.as_bytes())));
    }

    #[test]
    fn code_and_stack_are_noted() {
        let mut places = CodeAndStack::new();
        found().iter().for_each(|m| places.note(m, 0x7ffc_0002_0ff8));
        assert_eq!(places.stack, AddressRange::new(0x7ffc_0000_0000, 0x7ffc_0002_1000));
        let around = [0x40_0fff, 0x40_1000, 0x40_4fff, 0x40_5000].map(|at| places.code_around(at));
        assert_eq!(around, [None, Some(0x40_1000), Some(0x40_1000), None]);
        assert_eq!(places.code_around(0x7f00_bb00_0800), None, "it cannot be read");
    }

    #[test]
    fn libraries_lie_above_the_stack_of_a_thread() {
        let mut places = CodeAndStack::new();
        found().iter().for_each(|m| places.note(m, 0x7f00_aa02_0ff8));
        assert_eq!(places.stack, AddressRange::new(0x7f00_aa00_0000, 0x7f00_aa02_1000));
        let around = [0x40_1000, 0x7f00_cc00_1234].map(|at| places.code_around(at));
        assert_eq!(around, [Some(0x40_1000), Some(0x7f00_cc00_0000)]);
    }
}
