//! A fault that runahead is asked to have, by an option of its own for tests and measurements: shadows that
//! hint nothing but rubbish, which have to be stopped within a second.
//!
//! Invariant: what was not stopped, or by a runahead that cannot say so, is no result.

use std::ffi::OsString;

use serde_json::Value;

use crate::error::Failure;

/// What `runahead run` is told. The rubbish is of a file [`FILE`] in the working directory.
pub const RUBBISH: [&str; 2] = ["--plant", "rubbish"];
/// Whether a command with these `options` is to be stopped.
pub fn is_planted(options: &[OsString]) -> bool {
    options.iter().any(|option| option == RUBBISH[0])
}

/// A file that the command itself does not read.
pub const FILE: &str = "rubbish";

/// Seconds.
const LIMIT: f64 = 1.0;

/// Seconds from the first hint to the stop, from runahead's own statistics.
///
/// # Errors
/// [`Failure::NotStopped`].
pub fn stopped(stats: Option<&Value>) -> Result<f64, Failure> {
    let refused = |why: String| Failure::NotStopped(why);
    let Some(stats) = stats else {
        return Err(refused(format!("no statistics; it may not know {}", RUBBISH.join(" "))));
    };
    let stops = stats["stopped"]
        .as_object()
        .map_or(0, |stops| stops.values().filter_map(Value::as_u64).sum());
    let seconds = stats["memory"]["slowest_stop_seconds"].as_f64().filter(|_| stops > 0);
    match seconds {
        None => Err(refused("its statistics have no stop".into())),
        Some(seconds) if seconds > LIMIT => {
            Err(refused(format!("it took {seconds:.2} s, and {LIMIT} s is asked")))
        }
        Some(seconds) => Ok(seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_a_stop_in_time_is_one() {
        let of = |stops: u64, seconds: f64| {
            let stats =
                json!({"stopped": {"useless": stops}, "memory": {"slowest_stop_seconds": seconds}});
            stopped(Some(&stats)).map_err(|failure| failure.to_string())
        };
        assert_eq!(of(2, 0.4), Ok(0.4));
        assert!(of(2, 1.2).unwrap_err().contains("1.20 s"));
        assert!(of(0, 0.0).unwrap_err().contains("no stop"));
        let without = stopped(Some(&json!({"hints": {}}))).unwrap_err();
        assert!(without.to_string().contains("no stop"));
        assert!(stopped(None).unwrap_err().to_string().contains("--plant rubbish"));
    }
}
