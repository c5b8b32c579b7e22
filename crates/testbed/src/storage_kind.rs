//! The kinds of storage.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A kind of storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A block device with ext4.
    Disk,
    /// A directory passed through.
    Share,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disk => "disk",
            Self::Share => "share",
        })
    }
}
