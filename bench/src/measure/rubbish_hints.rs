//! Shadows with a planted fault, which hint only rubbish, have to be stopped within a second.
//!
//! Invariant: a run whose shadows were not stopped, or whose statistics do not say so, has no
//! result.

use std::ffi::OsString;
use std::path::PathBuf;

use serde_json::Value;

use crate::data::dependent_reads::PLANT_RUBBISH;
use crate::error::Failure;

/// True if these options of `runahead run` plant the fault.
pub fn is_planted(options: &[OsString]) -> bool {
    options.iter().any(|option| option == PLANT_RUBBISH[0])
}

/// Returns the build of runahead that can plant the fault, which an installed one cannot: beside
/// this program.
///
/// # Errors
/// There is none.
pub fn faulty_runahead() -> Result<PathBuf, Failure> {
    let beside = std::env::current_exe().unwrap_or_default().with_file_name("runahead-faulty");
    match beside.is_file() {
        true => Ok(beside),
        false => Err(Failure::NotStopped(format!("{}: not built (make tools)", beside.display()))),
    }
}

/// Seconds in which shadows have to be stopped.
const LIMIT: f64 = 1.0;

/// Returns the seconds from the first hint to the stop, from runahead's own statistics.
pub fn stopped(stats: Option<&Value>) -> Result<f64, Failure> {
    let refused = |why: String| Failure::NotStopped(why);
    let Some(stats) = stats else {
        return Err(refused(format!("no statistics of {}", PLANT_RUBBISH.join(" "))));
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
