//! Programs see no difference: output, results of calls, signals, children, files and exit statuses are
//! those of a native run.

mod close_errors;
mod closed_descriptors;
mod everyday_commands;
mod exec_privileges;
mod file_calls;
mod processes;
mod reported_calls;
mod shell_scripts;
mod signal_forwarding;
mod signals;
mod twins;
