//! Differences made on purpose: the case runs behind a wrapper that does what a bad interception
//! layer might do.

use super::observed_run::Form;

/// A planted difference.
pub struct Plant {
    /// Name of the case.
    pub case: &'static str,
    /// Form in which it runs.
    pub form: Form,
    /// A shell script, whose arguments are the command.
    pub wrapper: &'static str,
    /// The kind of difference that must be found.
    pub found: &'static str,
}

const fn plant(case: &'static str, wrapper: &'static str, found: &'static str) -> Plant {
    Plant { case, form: Form::Direct, wrapper, found }
}

const fn under_a_shell(case: &'static str, wrapper: &'static str, found: &'static str) -> Plant {
    Plant { case, form: Form::ChildOfAShell, wrapper, found }
}

const TEXT: &str = "forks.unflushed_text_is_written_twice";

/// Planted differences.
pub const PLANTS: &[Plant] = &[
    // What the program finds out about itself.
    plant("image.open_descriptors", "exec 9< /dev/null; exec \"$@\"", "output"),
    plant("image.numbers_of_descriptors", "exec 5< /dev/null; exec \"$@\"", "output"),
    plant("image.status_of_the_process", "exec strace -f -o /dev/null \"$@\"", "output"),
    plant("image.command_line_and_environment", "LEAKED=1 exec \"$@\"", "output"),
    plant("image.limits_and_settings", "ulimit -c 1; exec \"$@\"", "output"),
    plant("image.status_of_the_process", "trap '' USR1; exec \"$@\"", "output"),
    under_a_shell("image.open_descriptors", "exec 9< /dev/null; exec \"$@\"", "output"),
    under_a_shell("image.status_of_the_process", "exec strace -f -o /dev/null \"$@\"", "output"),
    // A child that the program does not know.
    plant(
        "image.no_children_of_ours",
        "cd /; sleep 1 > /dev/null 2>&1 & cd \"$TREE\"; exec \"$@\"",
        "output",
    ),
    // What others see of it.
    plant(TEXT, "\"$@\"; exit 9", "end"),
    plant(TEXT, "\"$@\"; kill -9 $$", "end"),
    plant(TEXT, "exec \"$@\" > /dev/null", "output"),
    plant(TEXT, "echo >&2; exec \"$@\"", "complaints"),
    plant(TEXT, "umask 077; exec \"$@\"", "files"),
    plant(TEXT, "\"$@\"; echo >> \"$W/text\"", "files"),
    plant(TEXT, "\"$@\"; : > \"$W/other\"", "files"),
    plant(TEXT, "\"$@\"; rm \"$W/text\"", "files"),
    plant(TEXT, "\"$@\"; ln \"$W/text\" \"$TREE/planted\"", "files"),
    plant(TEXT, "\"$@\"; touch -d 2001-01-01 \"$W/text\"", "files"),
    plant(TEXT, "\"$@\"; chown 1 \"$W/text\"", "files"),
    plant(TEXT, "(cd /; exec sleep 8) & exec \"$@\"", "end"),
    plant(TEXT, "sleep 20 > /dev/null 2>&1 & exec \"$@\"", "processes"),
];
