//! Names of what the tracker keeps account of. All but [`SpecId`] are given by the host.

use std::fmt;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident $short:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($short, "{}"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self, f)
            }
        }
    )*};
}

ids! {
    /// A process. The number may be given to another one once the tracker has said
    /// [`MayGo`](crate::Action::MayGo) or [`Destroy`](crate::Action::Destroy).
    ProcessId "p";
    /// Something that processes communicate by: a pipe, a file, a directory, a socket, a signal.
    ObjectId "o";
    /// A state of a process to which it can be taken back.
    CheckpointId "c";
    /// What undoes one change of one thing.
    UndoId "u";
    /// Output that is not to be seen before it is certain.
    HeldId "h";
}

/// A prediction that somebody will commit or fail. Numbers rise in the order of creation, and are
/// not used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpecId(pub(crate) u64);

impl fmt::Debug for SpecId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0)
    }
}

impl fmt::Display for SpecId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Whatever can have speculative state.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Thing {
    /// A process: its memory and registers, that it exists, and how it exited.
    Process(ProcessId),
    /// Anything else.
    Object(ObjectId),
}

impl From<ProcessId> for Thing {
    fn from(process: ProcessId) -> Self {
        Thing::Process(process)
    }
}

impl From<ObjectId> for Thing {
    fn from(object: ObjectId) -> Self {
        Thing::Object(object)
    }
}
