//! Limits that the kernel sets a FUSE connection.

use fuser::KernelConfig;

/// Asks the kernel, on every connection, for as many requests at once as the model serves.
pub(super) fn lift_kernel_limits(config: &mut KernelConfig) {
    // The only error is a value of zero.
    let _ = config.set_max_background(u16::MAX);
    let _ = config.set_congestion_threshold(u16::MAX);
}
