//! The agent's image, ready to be placed at an address.

use object::elf::{DT_RELA, DT_RELASZ, PF_X, PT_DYNAMIC, PT_LOAD, R_X86_64_RELATIVE};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, Rela};
use object::{LittleEndian, elf::FileHeader64};

const ELF: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agent.elf"));
/// Bytes in a page of the processors that the agent is written for.
pub const PAGE: u64 = 4096;

/// Why the embedded file is not an image. A mistake of ours, caught by this crate's tests.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Not an ELF file as the build should have made it.
    #[error("the agent's image is damaged: {0}")]
    Elf(#[from] object::Error),
    /// It asks for more than being loaded and relocated.
    #[error("the agent's image has {0}, which nothing here would provide")]
    Unexpected(&'static str),
}

/// Segments laid out as in memory, and the places that hold addresses.
#[derive(Debug)]
pub struct Image {
    /// What the file has; the rest, up to `len`, is zero.
    bytes: Vec<u8>,
    len: u64,
    relocations: Vec<(u64, i64)>,
    entry: u64,
    text: (u64, u64),
}

impl Image {
    /// The agent that was built with this crate.
    pub fn embedded() -> Result<Self, ImageError> {
        Self::parse(ELF)
    }

    fn parse(data: &[u8]) -> Result<Self, ImageError> {
        let e = LittleEndian;
        let header = FileHeader64::<LittleEndian>::parse(data)?;
        let segments = header.program_headers(e, data)?;
        let mut bytes = Vec::with_capacity(data.len());
        let mut len = 0;
        let mut text = None;
        for s in segments.iter().filter(|s| s.p_type(e) == PT_LOAD) {
            let start = s.p_vaddr(e) as usize;
            len = len.max((s.p_vaddr(e) + s.p_memsz(e)).next_multiple_of(PAGE));
            let filled = s.data(e, data).map_err(|()| ImageError::Unexpected("a cut segment"))?;
            bytes.resize(bytes.len().max(start + filled.len()), 0);
            bytes[start..start + filled.len()].copy_from_slice(filled);
            if s.p_flags(e).0 & PF_X.0 != 0 {
                let first = s.p_vaddr(e) / PAGE * PAGE;
                let last = (s.p_vaddr(e) + s.p_memsz(e)).next_multiple_of(PAGE);
                if text.replace((first, last - first)).is_some() {
                    return Err(ImageError::Unexpected("two executable segments"));
                }
            }
        }
        let text = text.ok_or(ImageError::Unexpected("no executable segment"))?;
        let relocations = relocations(data, header)?;
        if relocations.iter().any(|(at, _)| (text.0..text.0 + text.1).contains(at)) {
            return Err(ImageError::Unexpected("addresses in its text"));
        }
        Ok(Image { bytes, len, relocations, entry: header.e_entry.get(e), text })
    }

    /// Bytes that it takes in memory; whole pages.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Never: an image has at least its text.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Offset of the first instruction.
    pub fn entry(&self) -> u64 {
        self.entry
    }

    /// Offset and bytes of the part that must be executable; whole pages.
    pub fn text(&self) -> (u64, u64) {
        self.text
    }

    /// The bytes to write for an image that lies at `base`; memory behind them is to be zero.
    pub fn place(mut self, base: u64) -> Vec<u8> {
        for &(at, addend) in &self.relocations {
            let value = base.wrapping_add_signed(addend).to_le_bytes();
            self.bytes[at as usize..at as usize + 8].copy_from_slice(&value);
        }
        self.bytes
    }
}

fn relocations(
    data: &[u8],
    header: &FileHeader64<LittleEndian>,
) -> Result<Vec<(u64, i64)>, ImageError> {
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
        .ok_or(ImageError::Unexpected("relocations outside its segments"))?;
    let count = table.len() / size_of::<object::elf::Rela64<LittleEndian>>();
    let (table, _) =
        object::pod::slice_from_bytes::<object::elf::Rela64<LittleEndian>>(table, count)
            .map_err(|()| ImageError::Unexpected("misaligned relocations"))?;
    table
        .iter()
        .map(|r| match r.r_type(e, false) {
            R_X86_64_RELATIVE => Ok((r.r_offset(e), r.r_addend(e))),
            _ => Err(ImageError::Unexpected("a relocation that needs symbols")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_image_can_be_placed_anywhere() {
        let image = Image::embedded().expect("the build made an image");
        let (text, text_len) = image.text();
        assert!((text..text + text_len).contains(&image.entry()));
        assert_eq!(image.len() % PAGE, 0);
        let base = 0x7000_0000_0000;
        let (relocations, len) = (image.relocations.clone(), image.len());
        let placed = image.place(base);
        assert!(placed.len() as u64 <= len && !relocations.is_empty());
        for &(at, addend) in &relocations {
            let bytes: [u8; 8] = placed[at as usize..at as usize + 8].try_into().expect("8 bytes");
            assert_eq!(u64::from_le_bytes(bytes), base + addend as u64);
            assert!((addend as u64) < len);
        }
    }

    #[test]
    fn the_image_never_touches_wide_registers() {
        // The entry saves the lower halves of vector registers only, which suffices as long as no
        // instruction with a VEX or EVEX prefix writes one. Those prefixes are c4, c5 and 62 at
        // the start of an instruction; compiled for baseline x86-64 there are none, and asking the
        // disassembler keeps it so when flags change.
        let dump = std::process::Command::new("objdump")
            .args(["-d", concat!(env!("OUT_DIR"), "/agent.elf")])
            .output();
        let Ok(dump) = dump else {
            eprintln!("skipped: objdump is not installed (Debian: apt install binutils)");
            return;
        };
        let text = String::from_utf8_lossy(&dump.stdout);
        assert!(text.contains("syscall"), "the dump is not of the agent");
        for wide in ["%ymm", "%zmm"] {
            assert!(!text.contains(wide), "the agent's image uses {wide}");
        }
        let vex = text
            .lines()
            .filter_map(|l| l.split('\t').nth(2))
            .any(|op| op.starts_with('v') && op.contains("%xmm"));
        assert!(!vex, "the agent's image has instructions that clear upper halves");
    }
}
