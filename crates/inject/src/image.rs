//! The agent's image, as a file that programs map.

use object::elf::{DT_RELA, DT_RELASZ, PF_X, PT_DYNAMIC, PT_LOAD, R_X86_64_RELATIVE};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, Rela};
use object::{LittleEndian, elf::FileHeader64};
use runahead_abi::AgentConfig;

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

    /// The file that programs map: `config`, to which this adds where everything is, the relocations,
    /// and the image.
    pub fn file(&self, mut config: AgentConfig) -> (Layout, Vec<u8>) {
        let relocations_at = size_of::<AgentConfig>();
        let image_at =
            (relocations_at + 8 * self.relocations.len()).next_multiple_of(PAGE as usize);
        let file_len = (image_at + self.bytes.len()).next_multiple_of(PAGE as usize);
        let total_len = image_at as u64 + self.len;
        config.relocations_at = relocations_at as u32;
        config.relocations = self.relocations.len() as u32;
        config.image_at = image_at as u32;
        config.text_at = (image_at as u64 + self.text.0) as u32;
        config.text_len = self.text.1 as u32;
        config.total_len = total_len as u32;
        let mut file = vec![0; file_len];
        // SAFETY: AgentConfig is repr(C) integers without padding, so all of its bytes are
        // initialised.
        file[..relocations_at].copy_from_slice(unsafe {
            std::slice::from_raw_parts((&raw const config).cast::<u8>(), relocations_at)
        });
        for (pair, &(at, addend)) in
            file[relocations_at..image_at].chunks_exact_mut(8).zip(&self.relocations)
        {
            pair[..4].copy_from_slice(&(at as u32).to_le_bytes());
            pair[4..].copy_from_slice(&(addend as u32).to_le_bytes());
        }
        file[image_at..image_at + self.bytes.len()].copy_from_slice(&self.bytes);
        let entry = image_at as u64 + self.entry;
        (Layout { file_len: file_len as u64, total_len, entry }, file)
    }
}

/// What whoever maps the file needs to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of the file; whole pages.
    pub file_len: u64,
    /// Bytes to be mapped, the rest of which is zero at first.
    pub total_len: u64,
    /// Offset of the first instruction.
    pub entry: u64,
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

    fn read_u32(file: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes"))
    }

    #[test]
    fn the_file_says_where_everything_is() {
        let image = Image::embedded().expect("the build made an image");
        // SAFETY: integers, for which zero is valid.
        let config: AgentConfig = unsafe { std::mem::zeroed() };
        let (layout, file) = image.file(config);
        assert_eq!((file.len() as u64, layout.file_len % PAGE), (layout.file_len, 0));
        assert!(layout.file_len <= layout.total_len && layout.entry < layout.file_len);
        let text_at = read_u32(&file, std::mem::offset_of!(AgentConfig, text_at)).into();
        let text_len: u64 = read_u32(&file, std::mem::offset_of!(AgentConfig, text_len)).into();
        assert!((text_at..text_at + text_len).contains(&layout.entry));
        assert_eq!(text_at % PAGE, 0);
        let at = read_u32(&file, std::mem::offset_of!(AgentConfig, relocations_at)) as usize;
        let count = read_u32(&file, std::mem::offset_of!(AgentConfig, relocations)) as usize;
        let image_at = read_u32(&file, std::mem::offset_of!(AgentConfig, image_at)) as usize;
        assert!(count > 0 && at + 8 * count <= image_at);
        for n in 0..count {
            let (place, addend) = (read_u32(&file, at + 8 * n), read_u32(&file, at + 8 * n + 4));
            assert!(u64::from(place) + 8 <= layout.file_len - image_at as u64);
            assert!(u64::from(addend) < image.len);
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
