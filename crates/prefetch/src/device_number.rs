//! Devices.

/// Major and minor number of what a file is on.
pub(crate) type DeviceNumber = (u32, u32);

/// Device of a path, if it is known.
pub(crate) type Home = Option<DeviceNumber>;

/// Stand-in for the device that memory is swapped out to: no device has this number.
pub(crate) const MEMORY: DeviceNumber = (u32::MAX, u32::MAX);
