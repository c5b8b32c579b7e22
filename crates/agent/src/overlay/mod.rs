//! The view of a try (`docs/try.md`): what the program changes in the file system is held apart, and it sees it as if it were not.
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
//! (`supervisor/src/confine.rs`), also where a call gets past us.

mod attributes;
mod below;
mod calls;
mod changed;
mod copies;
mod descriptors;
mod entries;
mod execs;
mod gone;
mod inner;
mod inodes;
mod kernel;
mod known;
mod layer;
mod listing;
mod looks;
mod name;
mod names;
mod opens;
mod policy;
mod rest;
mod rights;
mod sockets;
mod view;

pub use policy::start;
