//! Shadows have no effect, and other users gain nothing through runahead.

mod destructive_reads;
mod fault_injection;
mod leak_suite;
mod session_access;
mod shadow_effects;
