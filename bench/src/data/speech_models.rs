//! A speech recognizer's models, and a recording.
//!
//! pocketsphinx maps its acoustic model, and so reads it on demand. It reads the language model and
//! the dictionary whole, before it begins.

use std::path::Path;

use crate::data::job::{Job, JobPlaces};
use crate::data::row_datasets::{Dataset, DatasetBuild, copy};
use crate::error::Error;

const MODEL: &str = "/usr/share/pocketsphinx/model/en-us";
/// Four words of a man: the recording that the recognizer's own tests begin with.
const RECORDING: &str = "/usr/share/pocketsphinx/test/data/goforward.raw";

pub static SPEECH: Dataset = Dataset {
    dir: "speech",
    mib: 512,
    quick_mib: 256,
    needs: &[
        ("pocketsphinx_continuous", "pocketsphinx"),
        ("/usr/share/pocketsphinx/model/en-us/en-us.lm.bin", "pocketsphinx-en-us"),
        (RECORDING, "pocketsphinx-testdata"),
    ],
    make,
};

fn make(making: &DatasetBuild<'_>) -> Result<(), Error> {
    copy(Path::new(MODEL), &making.dir.join("model"))?;
    copy(Path::new(RECORDING), &making.dir.join("recording.raw"))
}

/// Recognizes the recording.
pub fn recognize(ground: &JobPlaces<'_>) -> Result<Job, Error> {
    Ok(Job::new("pocketsphinx_continuous", "pocketsphinx", ground.dir)
        .args(["-hmm", "model/en-us", "-lm", "model/en-us.lm.bin"])
        .args(["-dict", "model/cmudict-en-us.dict", "-infile", "recording.raw"])
        // One pass, and the other settings that its documentation has for small devices.
        .args(["-fwdflat", "no", "-bestpath", "no", "-ds", "2", "-topn", "2"])
        .args(["-maxwpf", "5", "-maxhmmpf", "3000", "-pl_window", "10"])
        // Its log has times in it.
        .args(["-logfn", "/dev/null"]))
}
