//! The build of runahead that plants a fault: shadows that hint only rubbish.

use std::ffi::OsString;
use std::path::PathBuf;

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
        false => Err(Failure::NotBuilt(beside)),
    }
}
