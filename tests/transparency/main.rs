//! Programs see no difference: output, results, signals, children, files and exit statuses are
//! native.

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
