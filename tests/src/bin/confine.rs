//! Runs a command with something taken away: `confine [OPTION...] -- COMMAND [ARGS...]`.
//!
//! * `--deny=FACILITY:ERRNO` has the kernel refuse the calls of a facility, as the seccomp profile
//!   of a container would: ERRNO is `EPERM` or `ENOSYS`, FACILITY one of [`FACILITIES`].
//! * `--limit=RESOURCE:SOFT:HARD` sets a limit of getrlimit(2), by its name without `RLIMIT_`.
//! * `--cgroup=DIRECTORY` moves it into a control group.
//! * `--user=NUMBER` makes it one of that user and group, without any other groups and rights.
//! * `--check=FACILITY` only says, by its exit status, whether a call of it is refused (0) or not.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use runahead_tests::kernel_facilities::{self, Denied};
use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let mut filters = Vec::new();
    let (mut user, mut asked) = (None, None);
    for arg in args.by_ref() {
        let arg = arg.into_string().expect("options are plain text");
        match arg.split_once('=') {
            Some(("--deny", what)) => filters.push(filter(what)),
            Some(("--limit", what)) => limit(what),
            Some(("--cgroup", dir)) => {
                let file = format!("{dir}/cgroup.procs");
                std::fs::write(&file, "0").unwrap_or_else(|e| panic!("{file}: {e}"));
            }
            Some(("--user", number)) => user = Some(number.parse().expect("a number")),
            Some(("--check", facility)) => asked = Some(facility.to_owned()),
            None if arg == "--" => break,
            _ => panic!("not an option: {arg}"),
        }
    }
    if let Some(user) = user {
        become_user(user);
    }
    for filter in filters {
        seccompiler::apply_filter(&filter).expect("root installs filters");
    }
    if let Some(facility) = asked {
        return check(&facility);
    }
    let program = args.next().expect("a command");
    let error = Command::new(&program).args(args).exec();
    eprintln!("{}: {error}", program.display());
    ExitCode::from(127)
}

fn check(facility: &str) -> ExitCode {
    let denied = kernel_facilities::find(facility).expect("a facility").is_denied();
    ExitCode::from(u8::from(!denied))
}

/// Refuses a facility, and allows everything else.
fn filter(what: &str) -> seccompiler::BpfProgram {
    let (name, errno) = what.split_once(':').expect("FACILITY:ERRNO");
    let errno = match errno {
        "EPERM" => libc::EPERM,
        "ENOSYS" => libc::ENOSYS,
        other => panic!("not an errno of containers: {other}"),
    };
    let facility = kernel_facilities::find(name).unwrap_or_else(|| panic!("no facility {name}"));
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for denied in facility.calls {
        match *denied {
            Denied::Call(nr) => _ = rules.insert(nr, Vec::new()),
            Denied::With(nr, argument) => {
                let equal =
                    SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, argument);
                let rule = SeccompRule::new(vec![equal.expect("a condition")]).expect("a rule");
                rules.entry(nr).or_default().push(rule);
            }
        }
    }
    let denied = SeccompAction::Errno(errno as u32);
    SeccompFilter::new(rules, SeccompAction::Allow, denied, TargetArch::x86_64)
        .expect("a filter")
        .try_into()
        .expect("a program")
}

fn limit(what: &str) {
    let parts: Vec<&str> = what.split(':').collect();
    let [name, soft, hard] = parts[..] else { panic!("RESOURCE:SOFT:HARD, not {what}") };
    let resource = match name {
        "NOFILE" => libc::RLIMIT_NOFILE,
        "FSIZE" => libc::RLIMIT_FSIZE,
        "NPROC" => libc::RLIMIT_NPROC,
        "AS" => libc::RLIMIT_AS,
        "DATA" => libc::RLIMIT_DATA,
        "STACK" => libc::RLIMIT_STACK,
        "MEMLOCK" => libc::RLIMIT_MEMLOCK,
        "SIGPENDING" => libc::RLIMIT_SIGPENDING,
        other => panic!("no limit {other}"),
    };
    let number = |text: &str| match text {
        "max" => libc::RLIM_INFINITY,
        number => number.parse().expect("a number"),
    };
    let limit = libc::rlimit { rlim_cur: number(soft), rlim_max: number(hard) };
    // SAFETY: a structure that lives.
    let set = unsafe { libc::setrlimit(resource, &limit) };
    assert_eq!(set, 0, "limit {what}: {}", std::io::Error::last_os_error());
}

fn become_user(user: u32) {
    // SAFETY: numbers, and a list without members.
    let changed = unsafe {
        libc::setgroups(0, std::ptr::null()) == 0
            && libc::setresgid(user, user, user) == 0
            && libc::setresuid(user, user, user) == 0
    };
    assert!(changed, "cannot become user {user}: {}", std::io::Error::last_os_error());
}
