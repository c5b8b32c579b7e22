//! Private, writable regions of the program's memory.

use linux_raw_sys::general as k;

use crate::process_maps;
use crate::session::Session;
use crate::sys::{self, Errno};

/// Limit of regions that are followed.
pub const REGIONS: usize = 1024;

/// A private, writable region of the program's memory.
#[derive(Clone, Copy, Default)]
pub struct Region {
    pub start: u64,
    pub end: u64,
    /// Access rights of the program (mprotect(2)).
    pub rights: u32,
    pub is_file: bool,
    /// True for the first thread's stack, which grows.
    pub is_stack: bool,
}

impl Region {
    /// True if `at` lies in the region.
    pub fn holds(&self, at: u64) -> bool {
        (self.start..self.end).contains(&at)
    }
}

/// Calls `each` with all regions in the order of addresses, except mappings for which `is_ours`
/// returns true. ETXTBSY: some memory is shared, so other processes would see the stores.
pub fn each(
    session: &Session,
    is_ours: impl Fn(u64) -> bool,
    mut each: impl FnMut(Region) -> sys::Result<()>,
) -> sys::Result<()> {
    const STACK: &[u8] = b"[stack]";
    process_maps::each::<{ STACK.len() }>(|mapping, name| {
        let mut at = mapping.start;
        while mapping.writable && !is_ours(mapping.start) && at < mapping.end {
            // Memory of the agent may be part of one mapping with memory of the program.
            let owned = session.first_owned(at, mapping.end);
            let (end, next) =
                owned.map_or((mapping.end, mapping.end), |owned| (owned.start, owned.end));
            if at < end {
                if mapping.shared {
                    return Err(Errno(sys::ETXTBSY));
                }
                let right = |is_given: bool, right: u32| if is_given { right } else { 0 };
                each(Region {
                    start: at,
                    end,
                    rights: right(mapping.readable, k::PROT_READ)
                        | right(mapping.executable, k::PROT_EXEC)
                        | k::PROT_WRITE,
                    is_file: mapping.inode != 0,
                    is_stack: name == STACK,
                })?;
            }
            at = next;
        }
        Ok(())
    })
}
