//! Programs that keep the processors busy, while a command is measured.
//!
//! Invariant: they end when the value is dropped, and by themselves soon after any end of this
//! program.

use std::process::{Child, Command, Stdio};

use crate::error::Error;

/// Counts without a system call, and ends within about a tenth of a second after the process `$1`.
const SPIN: &str = "while kill -0 $1 2>/dev/null; do \
                    i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done";

/// Spinning processes, one for each processor that this process may use, with its priority.
pub struct Spinners(Vec<Child>);

impl Spinners {
    /// Starts them.
    pub fn start() -> Result<Self, Error> {
        let mut spinners = Self(Vec::new());
        for _ in 0..std::thread::available_parallelism().map_or(1, Into::into) {
            spinners.0.push(spin_beside(std::process::id())?);
        }
        Ok(spinners)
    }
}

/// Starts one that ends with the process `id`.
fn spin_beside(id: u32) -> Result<Child, Error> {
    let mut spinner = Command::new("sh");
    spinner.args(["-c", SPIN, "spinner", &id.to_string()]);
    spinner.stdin(Stdio::null()).stdout(Stdio::null());
    spinner.spawn().map_err(Error::system("run", "sh"))
}

impl Drop for Spinners {
    fn drop(&mut self) {
        for spinner in &mut self.0 {
            // An error means that it has ended.
            let _ = spinner.kill();
            let _ = spinner.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn they_run_until_they_are_dropped() {
        let mut spinners = Spinners::start().expect("a shell");
        assert!(!spinners.0.is_empty());
        let mut process = |child: &mut Child| {
            assert!(child.try_wait().expect("a child of ours").is_none());
            format!("/proc/{}", child.id())
        };
        let processes: Vec<_> = spinners.0.iter_mut().map(&mut process).collect();
        assert!(processes.iter().all(|process| Path::new(process).exists()));
        drop(spinners);
        assert!(processes.iter().all(|process| !Path::new(process).exists()));
    }

    #[test]
    fn one_ends_with_the_process_that_it_spins_beside() {
        let mut process = Command::new("sleep").arg("100").spawn().expect("sleep");
        let mut spinners = Spinners(vec![spin_beside(process.id()).expect("a shell")]);
        let mut ended = || spinners.0[0].try_wait().expect("a child of ours").is_some();
        std::thread::sleep(Duration::from_millis(50));
        assert!(!ended());
        process.kill().expect("a child of ours");
        process.wait().expect("a child of ours");
        let start = Instant::now();
        while !ended() {
            assert!(start.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
