//! A run of a command as the report keeps it: its kind, time and costs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The way in which a command was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Without anything in front of it.
    Plain,
    /// Under `runahead run`, with the options of the row.
    Runahead,
    /// Under `runahead run` with everything on, beside a row with something switched off.
    Whole,
    /// Under `runahead run` once more, with what it learned from the run before.
    Again,
    /// Plain, while other threads make all its accesses.
    Oracle,
    /// Under `runahead run --replay` of what it read before.
    Replay,
    /// Under strace.
    Recording,
}

impl Kind {
    /// Its name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Runahead => "runahead",
            Self::Whole => "whole",
            Self::Again => "again",
            Self::Oracle => "oracle",
            Self::Replay => "replay",
            Self::Recording => "recording",
        }
    }
}

/// A run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunReport {
    pub kind: Kind,
    /// Number of its pair (or of the oracle's run), from 1.
    pub pair: usize,
    /// Elapsed time.
    pub seconds: f64,
    /// The value that is judged, if not the elapsed time, in the unit of the row's cost.
    #[serde(default)]
    pub figure: Option<f64>,
    /// Processor time in seconds, of the command and all of runahead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<f64>,
    /// Other things measured, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub more: BTreeMap<String, f64>,
    /// Exit status or signal.
    pub exit: String,
    /// Requests that the storage served meanwhile.
    pub requests: u64,
    /// Bytes that it returned.
    pub read_bytes: u64,
    /// Requests that it had at the same time, at most.
    pub max_in_service: u64,
    /// True if another process dropped the machine's caches meanwhile, each time that the run was
    /// tried.
    pub disturbed: bool,
}

impl RunReport {
    /// The value that counts.
    pub fn value(&self) -> f64 {
        self.figure.unwrap_or(self.seconds)
    }

    /// A run without anything special, for tests.
    #[cfg(test)]
    pub fn test(kind: Kind, pair: usize, seconds: f64) -> Self {
        Self {
            kind,
            pair,
            seconds,
            figure: None,
            processor: None,
            more: BTreeMap::new(),
            exit: "exit 0".to_owned(),
            requests: 0,
            read_bytes: 0,
            max_in_service: 0,
            disturbed: false,
        }
    }
}
