//! The view of a try (`docs/guide/try.md`): what the program changes in the file system is held apart, and it sees it as if it were not.
//!
//! | part | what it does |
//! |---|---|
//! | `policy` | which call goes where |
//! | `opens`, `looks`, `names`, `attributes`, `listing`, `execs`, `sockets` | the calls, by what they do with a name |
//! | `copies` | what comes into the upper tree before it is changed |
//! | `gone` | what is not there any more, and what names led to when they were first changed |
//! | `inodes` | numbers of files |
//! | `rights` | who may change what |
//! | `view` | where a name leads |
//! | `inner` | tries inside this one |
//! | `below`, `layer` | what is below a layer of the view; the layers |
//! | `known`, `rest` | what is known of directories; what is left of a path |
//! | `changed` | which paths have anything changed |
//! | `name`, `entries`, `descriptors`, `kernel`, `calls` | a path of the view; entries of directories; descriptors' names; system calls; answers |
//!
//! In a command of a try inside a try there is more than one layer: each asks that below it for what it takes as the real tree.
//!
//! Invariant: no call is made that changes a file outside of the directory that is held apart. The kernel sees to that
//! (`supervisor/src/try_sandbox.rs`), also where a call gets past us.

mod attribute_calls;
mod call_results;
mod change_filter;
mod copy_up;
mod descriptor_paths;
mod directory_cache;
mod dirent_records;
mod exec_calls;
mod inode_numbers;
mod kernel_calls;
mod layer;
mod lower_layer;
mod namespace_calls;
mod nested_try;
mod open_calls;
mod path_walk;
mod pending_path;
mod permission_checks;
mod policy;
mod readdir;
mod socket_calls;
mod stat_calls;
mod view_path;
mod whiteouts;

pub use policy::start;
