//! Bytes in shared memory that others may write meanwhile: in words, each of which is read and
//! written at once.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Writes `bytes` to the front of `words`, the last word filled with zeros; what has no room is
/// left out.
pub(crate) fn store(words: &[AtomicU64], bytes: &[u8]) {
    for (word, bytes) in words.iter().zip(bytes.chunks(8)) {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        word.store(u64::from_le_bytes(whole), Relaxed);
    }
}

/// Copies the bytes from `from` to `len` of `words`; how many.
pub(crate) fn copy(words: &[AtomicU64], len: usize, from: usize, to: &mut [u8]) -> usize {
    let len = len.min(size_of_val(words));
    let count = len.saturating_sub(from).min(to.len());
    // Of the first word and the last a part may be wanted.
    let words = words[from.min(len) / 8..].iter();
    let mut words = words.map(|word| word.load(Relaxed).to_le_bytes());
    let to_next_word = from.wrapping_neg() % 8;
    let (head, rest) = to[..count].split_at_mut(to_next_word.min(count));
    if !head.is_empty()
        && let Some(first) = words.next()
    {
        head.copy_from_slice(&first[from % 8..][..head.len()]);
    }
    let (whole, tail) = rest.as_chunks_mut::<8>();
    for (bytes, word) in whole.iter_mut().zip(&mut words) {
        *bytes = word;
    }
    if let Some(last) = words.next() {
        tail.copy_from_slice(&last[..tail.len()]);
    }
    count
}
