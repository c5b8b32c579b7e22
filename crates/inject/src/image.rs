//! The agent's image, as a file that programs map.

use runahead_abi::AgentConfig;
use runahead_abi::swapped_memory::PAGE_BYTES;

/// Contents of the image's file, in whole pages; the rest, up to `LEN`, is zero.
static IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agent.image"));
/// Pairs as [`AgentConfig`] has them.
static RELOCATIONS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agent.relocations"));
// Bytes of the image, offsets in it of its first instruction and executable part.
include!(concat!(env!("OUT_DIR"), "/agent.rs"));

/// Layout of the file, for the code that maps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of the file; whole pages.
    pub file_len: u64,
    /// Bytes to be mapped, the rest of which is zero at first.
    pub total_len: u64,
    /// Offset of the first instruction.
    pub entry: u64,
}

/// The file that programs map.
#[derive(Debug)]
pub struct AgentFile {
    /// Layout of the file.
    pub layout: Layout,
    /// Front of the file: configuration and relocations.
    pub front: Vec<u8>,
    /// Rest of the file.
    pub image: &'static [u8],
}

impl AgentFile {
    /// Builds the file with `config`, to which this adds the layout.
    pub fn new(mut config: AgentConfig) -> Self {
        let relocations_at = size_of::<AgentConfig>();
        let image_at = (relocations_at + RELOCATIONS.len()).next_multiple_of(PAGE_BYTES as usize);
        let total_len = image_at as u64 + LEN;
        config.relocations_at = relocations_at as u32;
        config.relocations = (RELOCATIONS.len() / 8) as u32;
        config.image_at = image_at as u32;
        config.text_at = (image_at as u64 + TEXT.0) as u32;
        config.text_len = TEXT.1 as u32;
        config.total_len = total_len as u32;
        let mut front = Vec::with_capacity(image_at);
        // SAFETY: AgentConfig is repr(C) integers without padding, so all of its bytes are
        // initialised.
        front.extend_from_slice(unsafe {
            std::slice::from_raw_parts((&raw const config).cast::<u8>(), relocations_at)
        });
        front.extend_from_slice(RELOCATIONS);
        front.resize(image_at, 0);
        let file_len = (image_at + IMAGE.len()) as u64;
        let layout = Layout { file_len, total_len, entry: image_at as u64 + ENTRY };
        AgentFile { layout, front, image: IMAGE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_u32(file: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes"))
    }

    #[test]
    fn the_file_says_where_everything_is() {
        // SAFETY: integers, for which zero is valid.
        let config: AgentConfig = unsafe { std::mem::zeroed() };
        let AgentFile { layout, front, image } = AgentFile::new(config);
        let file = [&front, image].concat();
        assert_eq!((file.len() as u64, layout.file_len % PAGE_BYTES), (layout.file_len, 0));
        assert!(layout.file_len <= layout.total_len && layout.entry < layout.file_len);
        let text_at = read_u32(&file, std::mem::offset_of!(AgentConfig, text_at)).into();
        let text_len: u64 = read_u32(&file, std::mem::offset_of!(AgentConfig, text_len)).into();
        assert!((text_at..text_at + text_len).contains(&layout.entry));
        assert_eq!(text_at % PAGE_BYTES, 0);
        let at = read_u32(&file, std::mem::offset_of!(AgentConfig, relocations_at)) as usize;
        let count = read_u32(&file, std::mem::offset_of!(AgentConfig, relocations)) as usize;
        let image_at = read_u32(&file, std::mem::offset_of!(AgentConfig, image_at)) as usize;
        assert!(count > 0 && at + 8 * count <= image_at);
        for n in 0..count {
            let (place, addend) = (read_u32(&file, at + 8 * n), read_u32(&file, at + 8 * n + 4));
            assert!(u64::from(place) + 8 <= layout.file_len - image_at as u64);
            assert!(u64::from(addend) < LEN);
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
