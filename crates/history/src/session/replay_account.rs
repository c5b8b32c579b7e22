//! Results of recording and replay, for the statistics.

use std::fmt;

use serde::Serialize;

/// Results of recording and replaying. `None`: not requested, or not possible.
#[derive(Debug, Clone, Default, Serialize)]
pub struct HistoryStats {
    /// Recording of this run.
    pub recorded: Option<Recorded>,
    /// Replay of an earlier run.
    pub replayed: Option<Replayed>,
    /// Messages for the user.
    #[serde(skip)]
    pub complaints: Vec<String>,
}

/// Results of recording.
#[derive(Debug, Clone, Serialize)]
pub struct Recorded {
    /// Accesses in the record.
    pub accesses: u64,
    /// Accesses that are missing in the record.
    pub lost: u64,
}

/// Results of a replay.
#[derive(Debug, Clone, Serialize)]
pub struct Replayed {
    /// Accesses in the record.
    pub accesses: u64,
    /// Accesses that were requested.
    pub asked: u64,
    /// Requested accesses that the command was then seen to make.
    pub used: u64,
    /// Accesses of the command that were in the record.
    pub matched: u64,
    /// Files that have changed; their data was not read.
    pub files_changed: u64,
    /// Number of accesses after which the command was found to differ from the recorded one, if it
    /// was.
    pub given_up_at: Option<u64>,
}

impl fmt::Display for HistoryStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Replayed { accesses, asked, used, files_changed, given_up_at, .. }) =
            &self.replayed
        {
            write!(f, "  replayed  {asked:>8}   of {accesses}, {used} used")?;
            if *files_changed > 0 {
                write!(f, "; {files_changed} files have changed")?;
            }
            if let Some(at) = given_up_at {
                write!(f, "; given up after {at} accesses")?;
            }
            writeln!(f)?;
        }
        if let Some(Recorded { accesses, lost }) = &self.recorded {
            writeln!(f, "  recorded  {accesses:>8}   {lost} lost")?;
        }
        Ok(())
    }
}
