//! `runahead try`: a command does what it does natively, and changes nothing until it is
//! committed.

mod body_place;
mod chosen_paths;
mod commit_and_undo;
mod committed_metadata;
mod confinement;
mod full_disks;
mod hard_links;
mod interrupted_commits;
mod kernel_permissions;
mod left_processes;
mod nested_tries;
mod outside_effects;
mod own_paths;
mod printed_changes;
mod random_bodies;
mod random_choices;
mod same_results;
mod stale_reads;
mod stopped_commits;
mod swapped_directories;
mod try_directory;
mod which_try;
