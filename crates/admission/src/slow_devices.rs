//! Tells agents which devices programs have waited for of late (`estimators/src/slow_devices.rs`),
//! and which programs need not be followed while no program waits
//! (`estimators/src/follow_filter.rs`).

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use runahead_abi::Control;
use runahead_estimators::follow_filter::ProgramKey;
use runahead_estimators::{Micros, SlowDevices, TickRate, Ticks};

use crate::process::shared_memory::AgentFileFront;
use crate::process::tsc_clock::ticks;

/// Longest wait that is believed: programs may report anything.
const LONGEST: Duration = Duration::from_secs(1);

/// Waits of a session's programs, by device.
pub struct DeviceWaits {
    front: AgentFileFront,
    rate: TickRate,
}

impl DeviceWaits {
    /// Creates the table for the agent's file, whose front is `front`.
    pub fn new(front: AgentFileFront, rate: TickRate) -> Self {
        DeviceWaits { front, rate }
    }

    /// Has programs expect to wait from their start.
    pub fn expect(&self) {
        self.devices().expect();
    }

    /// Stores the PID of the I/O process, which waits for storage: shadows are to watch over it,
    /// too.
    pub fn set_io_process(&self, pid: u32) {
        self.front.io_process_pid().store(pid.into(), Relaxed);
    }

    /// Rate of the time-stamp counter.
    pub fn tick_rate(&self) -> TickRate {
        self.rate
    }

    fn devices(&self) -> &SlowDevices {
        self.front.slow_devices()
    }

    /// The prefetcher has waited.
    pub fn waited(&self, device: u64, time: Duration) {
        self.note(device, self.ticks_in(time));
    }

    /// Takes the wait that a process has reported since the last call, if any.
    pub fn take_reported(&self, control: &Control) {
        if control.waited_ticks.load(Relaxed) == 0 {
            return;
        }
        let time = Ticks(control.waited_ticks.swap(0, Relaxed));
        self.note(control.waited_device.load(Relaxed), time);
    }

    /// Returns the time that a process has waited for storage since it joined, foreseen or not,
    /// whatever it reports.
    pub fn time_waited(&self, control: &Control) -> Duration {
        let waits = [&control.stall_ticks_foreseen, &control.stall_ticks_unforeseen];
        let ticks = waits.iter().fold(0u64, |sum, ticks| sum.saturating_add(ticks.load(Relaxed)));
        Duration::from_micros(Ticks(ticks).to_micros(self.rate).0)
    }

    /// Time-stamp up to which some device is slow; 0: no program has waited.
    pub fn latest(&self) -> Ticks {
        self.devices().latest()
    }

    /// Enters `program` as one whose starts are not followed for `time`.
    pub fn skip_program(&self, program: ProgramKey, time: Duration) {
        self.front.follow_filter().add(program, ticks() + self.ticks_in(time));
    }

    /// True if starts of `program` are not followed now.
    pub fn is_skipped(&self, program: ProgramKey) -> bool {
        self.front.follow_filter().has(program, ticks())
    }

    fn ticks_in(&self, time: Duration) -> Ticks {
        Micros(time.as_micros() as u64).to_ticks(self.rate)
    }

    fn note(&self, device: u64, time: Ticks) {
        self.devices().waited(device, ticks(), time.min(self.ticks_in(LONGEST)));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::ptr::null_mut;

    use runahead_abi::AgentConfig;
    use rustix::io::Errno;
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

    use super::*;
    use crate::process::shared_memory;

    /// Reads the table as an agent does: through a private mapping that was made before.
    #[test]
    fn programs_see_what_is_slow_and_cannot_change_it() {
        let file = shared_memory::agent_file().expect("memory for a file");
        let front = shared_memory::fill(&file, &[0; 2 * AgentConfig::CHANGES_IN], &[1, 2, 3]);
        let waits = DeviceWaits::new(front.expect("room in it"), TickRate::new(1000));
        let length = AgentConfig::CHANGES_IN;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let map = |flags| {
            // SAFETY: a mapping where the kernel likes, which this test alone knows.
            unsafe { mmap(null_mut(), length, rights, flags, &file, 0) }
        };
        let mapped = map(MapFlags::PRIVATE).expect("programs map it");
        // SAFETY: that mapping, which stays until the end of the test.
        let seen = unsafe { AgentConfig::slow_devices(mapped.cast()) };
        assert_eq!(seen.latest(), Ticks(0));
        waits.waited(7, Duration::from_millis(5));
        assert!(seen.is_slow(7, ticks()) && !seen.is_slow(8, ticks()));
        assert!(!seen.is_slow(7, ticks() + Ticks(5_000_000 * 64)));

        assert_eq!(map(MapFlags::SHARED).err(), Some(Errno::PERM));
        let file = std::fs::File::from(file);
        assert_eq!(
            file.write_at(b"x", 0).map_err(|e| e.raw_os_error()),
            Err(Some(Errno::PERM.raw_os_error()))
        );
        assert!(file.set_len(0).is_err());
        // SAFETY: nothing refers to it any more.
        unsafe { munmap(mapped, length) }.expect("it is mapped");
    }

    #[test]
    fn what_a_program_tells_is_bounded() {
        let file = shared_memory::agent_file().expect("memory for a file");
        let front =
            shared_memory::fill(&file, &[0; AgentConfig::CHANGES_IN], &[]).expect("room in it");
        let waits = DeviceWaits::new(front, TickRate::ONE);
        let (shared, _file) = shared_memory::Mapping::new().expect("memory to share");
        shared.control.waited_device.store(9, Relaxed);
        shared.control.waited_ticks.store(u64::MAX, Relaxed);
        waits.take_reported(&shared.control);
        let devices = waits.devices();
        assert!(devices.is_slow(9, ticks()));
        assert!(!devices.is_slow(9, ticks() + waits.ticks_in(64 * LONGEST)));
        assert_eq!(shared.control.waited_ticks.load(Relaxed), 0, "it is heard once");
        // Nor does it matter whether the clock is known.
        [&shared.control.stall_ticks_foreseen, &shared.control.stall_ticks_unforeseen]
            .iter()
            .for_each(|ticks| ticks.store(u64::MAX, Relaxed));
        let waits = DeviceWaits { rate: TickRate::new(0), ..waits };
        assert_eq!(waits.time_waited(&shared.control), Duration::from_micros(u64::MAX));
    }
}
