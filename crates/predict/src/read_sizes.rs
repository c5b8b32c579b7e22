//! Bounds on how much of a file is read.

use runahead_estimators::access_identity::CHUNK_BYTES;

/// Largest file, in bytes, that is read to its end when the length of a read was unknown: a program
/// that reads a small file without asking for its size mostly reads all of it.
pub const EXTEND_MAX_BYTES: u64 = 1 << 20;

/// Largest range of one hint, in bytes; the rest of the range is ignored.
pub const HINT_MAX_BYTES: u64 = 1 << 30;

/// Bytes that one worker reads at a time at most; larger ranges are read by several. Pieces end at
/// multiples of it, or of a chunk where a transfer takes long: they share no chunk of the hint log.
pub const PIECE_BYTES: u64 = 4 * CHUNK_BYTES;
