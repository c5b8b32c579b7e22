//! Prints what a recorded run holds, an access a line:
//! `cargo run -p runahead-history --example show_run -- FILE`.

use std::path::PathBuf;
use std::process::ExitCode;

use runahead_history::run_file;

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("give the name of a recorded run");
        return ExitCode::from(2);
    };
    match run_file::load(&path) {
        Ok(run) => {
            for access in &run.accesses {
                let place = run.path_of(access);
                println!("{:?}\t{}", access.kind, String::from_utf8_lossy(&place.path));
            }
            println!("{} accesses, {} paths", run.accesses.len(), run.paths.len());
            println!("programs started after {:?} accesses", run.programs);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
