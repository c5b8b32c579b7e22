//! A shell in the namespaces of a unit, to look at a difference by hand.

use std::process::{Command, Stdio};

use runahead_harness::{note, quoted};

use crate::error::Error;
use crate::machine_requirements::{require, scratch};
use crate::options::Shell;
use crate::slow_disk::SlowDisk;
use crate::subject_copy::Copy;
use crate::suites::all_suites::named;
use crate::suites::suite_definition;
use crate::unit_run::runahead_prefix;
use crate::{mount_namespace, suite_cache, unit_namespaces};

/// Opens the shell. False if it failed.
pub fn shell(options: &Shell) -> Result<bool, Error> {
    require()?;
    mount_namespace::enter()?;
    let suite = named(std::slice::from_ref(&options.suite))?[0];
    let ready = suite_cache::ready(suite)?;
    if !ready.units.contains(&options.unit) {
        return Err(Error::NoUnit { suite: suite.name, unit: options.unit.clone() });
    }
    let scratch = scratch()?;
    let runahead = Copy::of_runahead(&options.subject, scratch.path())?;
    let disk = SlowDisk::up(&scratch.path().join("disk"), &ready, options.latency)?;
    disk.fresh()?;
    let unit = (suite.command)(&options.unit, &ready.version, &ready.tree);
    let line = quoted(&unit.argv);
    let ahead = quoted(&runahead_prefix(&runahead.path));
    note!("natively:       {line}\nunder runahead: {ahead} {line}");
    let script = options.command.as_deref().unwrap_or("exec sh -i");
    let mut env = unit.env.clone();
    env.extend([
        ("UNIT", line),
        ("RUNAHEAD_BIN", runahead.path.display().to_string()),
        ("PS1", format!("{} $ ", suite.name)),
    ]);
    let argv = ["sh", "-c", script].map(str::to_owned).to_vec();
    let command = suite_definition::Command { argv, env, ..unit };
    // A terminal's shell has to stay in the session of its terminal.
    let argv = unit_namespaces::argv(disk.dir(), &command, &[]);
    let argv: Vec<_> = argv.into_iter().skip_while(|word| word != "unshare").collect();
    let mut child = Command::new(&argv[0]);
    let status = child.args(&argv[1..]).stdin(Stdio::inherit()).status();
    let status = status.map_err(Error::system("run", &argv[0]))?;
    disk.down()?;
    Ok(status.success())
}
