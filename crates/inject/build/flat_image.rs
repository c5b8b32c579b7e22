//! The agent's ELF file as programs are to have it in memory: so that nothing has to be read, moved
//! or checked when a command is about to start.

use object::elf::{DT_RELA, DT_RELASZ, PF_X, PT_DYNAMIC, PT_LOAD, R_X86_64_RELATIVE};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, Rela};
use object::{LittleEndian, elf::FileHeader64};

/// Bytes in a page of the processors that the agent is written for.
const PAGE: u64 = 4096;

/// Segments laid out as in memory, and the places that hold addresses.
pub struct Image {
    /// Contents of the file, in whole pages; the rest, up to `len`, is zero.
    pub bytes: Vec<u8>,
    /// Bytes in memory.
    pub len: u64,
    /// Places of addresses, and what they point to.
    pub relocations: Vec<(u64, i64)>,
    /// Offset of the first instruction.
    pub entry: u64,
    /// Offset and bytes of the executable part; whole pages.
    pub text: (u64, u64),
}

impl Image {
    /// Parses the ELF file `data`. A mistake of ours stops the build.
    pub fn parse(data: &[u8]) -> object::Result<Self> {
        let e = LittleEndian;
        let header = FileHeader64::<LittleEndian>::parse(data)?;
        let segments = header.program_headers(e, data)?;
        let mut bytes = Vec::with_capacity(data.len());
        let mut len = 0;
        let mut text = None;
        for s in segments.iter().filter(|s| s.p_type(e) == PT_LOAD) {
            let start = s.p_vaddr(e) as usize;
            len = len.max((s.p_vaddr(e) + s.p_memsz(e)).next_multiple_of(PAGE));
            let filled = s.data(e, data).expect("no segment is cut");
            bytes.resize(bytes.len().max(start + filled.len()), 0);
            bytes[start..start + filled.len()].copy_from_slice(filled);
            if s.p_flags(e).0 & PF_X.0 != 0 {
                let first = s.p_vaddr(e) / PAGE * PAGE;
                let last = (s.p_vaddr(e) + s.p_memsz(e)).next_multiple_of(PAGE);
                assert!(text.replace((first, last - first)).is_none(), "two executable segments");
            }
        }
        bytes.resize(bytes.len().next_multiple_of(PAGE as usize), 0);
        let text = text.expect("there is an executable segment");
        let relocations = relocations(data, header)?;
        let in_text = |at: &u64| (text.0..text.0 + text.1).contains(at);
        assert!(!relocations.iter().any(|(at, _)| in_text(at)), "addresses in the text");
        Ok(Image { bytes, len, relocations, entry: header.e_entry.get(e), text })
    }
}

fn relocations(
    data: &[u8],
    header: &FileHeader64<LittleEndian>,
) -> object::Result<Vec<(u64, i64)>> {
    let e = LittleEndian;
    let segments = header.program_headers(e, data)?;
    let Some(dynamic) = segments.iter().find(|s| s.p_type(e) == PT_DYNAMIC) else {
        return Ok(Vec::new());
    };
    let entries = dynamic.dynamic(e, data)?.unwrap_or(&[]);
    let value = |tag| entries.iter().find(|d| d.tag(e) == tag).map(|d| d.d_val.get(e));
    let (Some(start), Some(size)) = (value(DT_RELA), value(DT_RELASZ)) else {
        return Ok(Vec::new());
    };
    let table = segments
        .iter()
        .filter(|s| s.p_type(e) == PT_LOAD)
        .find_map(|s| s.data_range(e, data, start, size).ok().flatten())
        .expect("relocations lie in a segment");
    let count = table.len() / size_of::<object::elf::Rela64<LittleEndian>>();
    let (table, _) =
        object::pod::slice_from_bytes::<object::elf::Rela64<LittleEndian>>(table, count)
            .expect("relocations are aligned");
    let relative = |r: &object::elf::Rela64<LittleEndian>| {
        assert_eq!(r.r_type(e, false), R_X86_64_RELATIVE, "a relocation needs symbols");
        (r.r_offset(e), r.r_addend(e))
    };
    Ok(table.iter().map(relative).collect())
}
