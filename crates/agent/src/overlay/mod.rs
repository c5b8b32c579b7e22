//! The view of a try (`docs/guide/try.md`): the program sees its changes in the file system, and
//! they are kept in a directory of the try.
//!
//! The words are overlayfs's. The *lower tree* is what the try started from and stays unchanged.
//! The *upper tree* holds everything that was written or made. The view is both *merged*. Before a
//! file is changed it is *copied up*. A *whiteout* hides a lower name that was removed.
//!
//! | module | contents |
//! |---|---|
//! | `policy` | the dispatch of calls |
//! | `open_calls`, `stat_calls` | calls that open files, or read metadata |
//! | `namespace_calls`, `attribute_calls` | calls that change names, or metadata |
//! | `readdir`, `exec_calls`, `socket_calls` | listings, programs, named sockets |
//! | `clock_calls`, `thread_names` | reads of the clock's state; names of this process's threads |
//! | `copy_up` | copies into the upper tree before a change |
//! | `recorded_calls`, `read_recorder` | what was read of the lower tree, for the commit |
//! | `whiteouts` | removed lower names; what names led to before their first change |
//! | `link_index` | copies of files that have several names |
//! | `inode_numbers` | inode numbers that stay the same across a copy-up |
//! | `permission_checks`, `attribute_permissions` | what the kernel would allow in the lower tree |
//! | `entry_rights`, `process_credentials`, `kernel_protections` | what it looks at for that |
//! | `mount_checks` | mounts, which no rename and no link leaves |
//! | `path_walk`, `pending_path`, `directory_cache` | resolution of paths |
//! | `entry_lookup`, `view_entry` | lookup of one name; its result |
//! | `layer`, `lower_layer`, `nested_try` | tries inside tries |
//! | `change_filter` | paths at or below which something changed |
//! | `view_path`, `descriptor_paths`, `descriptor_cache` | paths of the view and of descriptors |
//! | `dirent_records` | records of directory entries |
//! | `kernel_calls`, `call_results` | system calls of the agent; answers to the program |
//!
//! A command of a nested try has several layers. Each layer takes as its lower tree what the layer
//! below it shows.
//!
//! Invariant: no call changes a file outside the try's directory. The kernel enforces this too
//! (`supervisor/src/try_sandbox.rs`), also for calls that the agent does not see.

mod attribute_calls;
mod attribute_permissions;
mod call_results;
mod change_filter;
mod clock_calls;
mod copy_up;
mod descriptor_cache;
mod descriptor_paths;
mod directory_cache;
mod dirent_records;
mod entry_lookup;
mod entry_rights;
mod exec_calls;
mod inode_numbers;
mod kernel_calls;
mod kernel_protections;
mod layer;
mod link_index;
mod lower_layer;
mod mount_checks;
mod namespace_calls;
mod nested_try;
mod open_calls;
mod path_walk;
mod pending_path;
mod permission_checks;
mod policy;
mod process_credentials;
mod read_recorder;
mod readdir;
mod recorded_calls;
mod socket_calls;
mod stat_calls;
mod thread_names;
mod view_entry;
mod view_path;
mod whiteouts;

pub use policy::start;
