//! Records of getdents64(2).

/// Offsets in bytes of the position, the length and the name in a record (`struct linux_dirent64`).
const POSITION_AT: usize = 8;
const LENGTH_AT: usize = 16;
const NAME_AT: usize = 19;

/// Splits off the first record: its name, and the records behind it.
pub(super) fn split_first(entries: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = record_length(entries)?;
    let (entry, behind) = entries.split_at_checked(length)?;
    let name = entry.get(NAME_AT..)?;
    let end = name.iter().position(|byte| *byte == 0)?;
    Some((&name[..end], behind))
}

/// Length in bytes of the first record.
pub(super) fn record_length(entries: &[u8]) -> Option<usize> {
    let bytes = entries.get(LENGTH_AT..LENGTH_AT + 2)?;
    Some(usize::from(u16::from_ne_bytes([bytes[0], bytes[1]])))
}

/// Position behind the last record, for lseek(2).
pub(super) fn last_position(entries: &[u8]) -> Option<i64> {
    let (mut rest, mut last) = (entries, None);
    while let Some((_, behind)) = split_first(rest) {
        last = rest.get(POSITION_AT..POSITION_AT + 8)?.try_into().ok().map(i64::from_ne_bytes);
        rest = behind;
    }
    last
}
