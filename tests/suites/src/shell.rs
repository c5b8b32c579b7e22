//! A shell where a unit would run, to look at a difference by hand.

use std::process::{Command, Stdio};

use runahead_harness::note;

use crate::disk::SlowDisk;
use crate::error::Error;
use crate::half::front;
use crate::options;
use crate::subject::Runahead;
use crate::{inside, namespace, prepare, run, select, suites, system};

/// Opens the shell. Whether it ended well.
///
/// # Errors
/// There is no such unit, or nothing could be brought up.
pub fn shell(options: &options::Shell) -> Result<bool, Error> {
    system::require()?;
    namespace::enter()?;
    let suite = select::suites(std::slice::from_ref(&options.suite))?[0];
    let ready = prepare::ready(suite)?;
    if !ready.units.contains(&options.unit) {
        return Err(Error::NoUnit { suite: suite.name, unit: options.unit.clone() });
    }
    let scratch = run::scratch()?;
    let runahead = Runahead::copy(&options.subject, scratch.path())?;
    let disk = SlowDisk::up(&scratch.path().join("disk"), &ready, options.latency)?;
    disk.fresh()?;
    let unit = (suite.command)(&options.unit, &ready.version, &ready.tree);
    let line = inside::quoted(&unit.argv);
    let ahead = inside::quoted(&front(&runahead.path));
    note!("natively:       {line}\nunder runahead: {ahead} {line}");
    let script = options.command.as_deref().unwrap_or("exec sh -i");
    let mut env = unit.env.clone();
    env.extend([
        ("UNIT", line),
        ("RUNAHEAD_BIN", system::text(&runahead.path)),
        ("PS1", format!("{} $ ", suite.name)),
    ]);
    let argv = ["sh", "-c", script].map(str::to_owned).to_vec();
    let command = suites::Command { argv, env, ..unit };
    // A terminal's shell has to stay in the session of its terminal.
    let argv = inside::argv(disk.dir(), &command, &[]);
    let argv: Vec<_> = argv.into_iter().skip_while(|word| word != "unshare").collect();
    let mut child = Command::new(&argv[0]);
    let status = child.args(&argv[1..]).stdin(Stdio::inherit()).status();
    let status = status.map_err(Error::system("run", &argv[0]))?;
    disk.down()?;
    Ok(status.success())
}
