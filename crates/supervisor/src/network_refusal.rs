//! Refusal of networks: sockets of other families fail, and netlink changes nothing.
//!
//! Names of hosts and interfaces are resolved through netlink, which stays in the machine. It
//! changes addresses and routes only for a process with `CAP_NET_ADMIN`, which is given up.

use nix::libc;
use rustix::thread::{
    CapabilitySet, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities,
};
use seccompiler::{
    BackendError, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition, SeccompRule,
};

const ADMINISTRATION: CapabilitySet = CapabilitySet::NET_ADMIN;

/// True if the command of this process can be kept from the capability: also from getting it at an
/// exec, as root does.
fn can_give_up() -> bool {
    let is_bounded = capability_is_in_bounding_set(ADMINISTRATION) == Ok(false);
    let has =
        |sets: rustix::thread::CapabilitySets| sets.effective.contains(CapabilitySet::SETPCAP);
    !rustix::process::geteuid().is_root() || is_bounded || capabilities(None).is_ok_and(has)
}

/// Gives up the administration of networks, for this thread and its descendants. Called between
/// fork and exec, so it allocates nothing.
pub(crate) fn give_up_administration() -> rustix::io::Result<()> {
    if !can_give_up() {
        // The filter refuses netlink.
        return Ok(());
    }
    // Fails for an ordinary user, whose programs get no capabilities at an exec.
    let _ = remove_capability_from_bounding_set(ADMINISTRATION);
    let mut sets = capabilities(None)?;
    sets.effective.remove(ADMINISTRATION);
    sets.permitted.remove(ADMINISTRATION);
    sets.inheritable.remove(ADMINISTRATION);
    set_capabilities(None, sets)
}

/// Makes the rules for the sockets that are refused.
pub(crate) fn refused_sockets() -> Result<Vec<SeccompRule>, BackendError> {
    let argument =
        |index: u8, op: Op, value: i32| SeccompCondition::new(index, Len::Dword, op, value as u64);
    let mut others = vec![argument(0, Op::Ne, libc::AF_UNIX)?];
    let mut rules = Vec::new();
    if can_give_up() {
        others.push(argument(0, Op::Ne, libc::AF_NETLINK)?);
        if rustix::process::geteuid().is_root() {
            // Other protocols of netlink ask for other capabilities.
            let of_netlink = argument(0, Op::Eq, libc::AF_NETLINK)?;
            let not_routes = argument(2, Op::Ne, libc::NETLINK_ROUTE)?;
            rules.push(SeccompRule::new(vec![of_netlink, not_routes])?);
        }
    }
    rules.push(SeccompRule::new(others)?);
    Ok(rules)
}
