//! Policies that only tests install in place of a target's: behind the Cargo feature
//! `fault-injection`, so that the image of an installed `runahead` does not hold them.
//!
//! | module | what it does |
//! |---|---|
//! | [`call_counting`] | counts every call and its result |
//! | [`scripted_policy`] | calls wait, are repeated, and threads stop, as the program asks |

pub mod call_counting;
pub mod scripted_policy;
