//! A speech recognizer's models, and a recording.
//!
//! pocketsphinx maps its acoustic model, and so reads it on demand; the language model and the
//! dictionary it reads whole, before it begins.

use std::path::Path;

use crate::data::datasets::{Need, copy};
use crate::data::job::Job;
use crate::error::Error;

const MODEL: &str = "/usr/share/pocketsphinx/model/en-us";
/// Of a man who says four words: the recording that the recognizer's own tests begin with.
const RECORDING: &str = "/usr/share/pocketsphinx/test/data/goforward.raw";

pub const NEEDS: [Need; 3] = [
    ("pocketsphinx_continuous", "pocketsphinx"),
    ("/usr/share/pocketsphinx/model/en-us/en-us.lm.bin", "pocketsphinx-en-us"),
    (RECORDING, "pocketsphinx-testdata"),
];

pub fn make(dir: &Path) -> Result<(), Error> {
    copy(Path::new(MODEL), &dir.join("model"))?;
    copy(Path::new(RECORDING), &dir.join("recording.raw"))
}

pub fn job(dir: &Path) -> Job {
    Job::new("pocketsphinx_continuous", "pocketsphinx", dir)
        .args(["-hmm", "model/en-us", "-lm", "model/en-us.lm.bin"])
        .args(["-dict", "model/cmudict-en-us.dict", "-infile", "recording.raw"])
        // One pass, and the other settings that its documentation has for small devices.
        .args(["-fwdflat", "no", "-bestpath", "no", "-ds", "2", "-topn", "2"])
        .args(["-maxwpf", "5", "-maxhmmpf", "3000", "-pl_window", "10"])
        // Its log has times in it.
        .args(["-logfn", "/dev/null"])
}
