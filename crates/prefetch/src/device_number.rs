//! Devices.

/// Major and minor number of what a file is on.
pub(crate) type DeviceNumber = (u32, u32);

/// What something is on, if that is known.
pub(crate) type Home = Option<DeviceNumber>;

/// What stands for the device that memory is swapped out to: none has this number.
pub(crate) const MEMORY: DeviceNumber = (u32::MAX, u32::MAX);
