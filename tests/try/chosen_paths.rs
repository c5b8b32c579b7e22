//! Commits and undoes of chosen changes.
