//! (To come.)
