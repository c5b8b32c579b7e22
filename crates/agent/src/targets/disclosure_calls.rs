//! Disclosures by the program itself; `runahead_client::disclosure` defines the calls and results.
//!
//! A disclosure becomes a hint in the target's own ring, for a run that never strays: the
//! prefetcher keeps it until the program cancels it. A cancellation is a record in the same ring.
//! It arrives after all that it concerns, and before later disclosures.
//!
//! Unlike the hints of shadows, these cover exactly the bytes that they name. The log knows whole
//! chunks only, so it cannot tell which of the bytes are new. Residency can, and the most recent
//! disclosures are remembered.
//!
//! Invariant: nothing of the program's changes, and nothing waits for storage. The kernel reads the
//! path, whatever its address.

use core::sync::atomic::Ordering::Relaxed;

use linux_raw_sys::general as k;
use runahead_abi::hint_record::{DISCLOSED, DISCLOSURE, Header, LENGTH_UNKNOWN};
use runahead_abi::{HintKind, PATH_MAX, Shared};
use runahead_client::disclosure::protocol::{CANCEL_ALL, DISCLOSE_FD, DISCLOSE_PATH, MAGIC};
use runahead_estimators::Identity;
use runahead_estimators::access_identity::CHUNK_BYTES;

use super::call_outcome::Outcome;
use super::disclosure_state::Disclosure;
use super::target_state::Target;
use crate::descriptor_names::{NAMES, TRACKED_DESCRIPTORS};
use crate::hint_sender::{self, Hint};
use crate::path_text::{self, PathBuf};
use crate::plane::{self, Call, signal_block};
use crate::session::Session;
use crate::sys::{self, AT_FDCWD, Fd, PAGE, nr};

/// Most bytes considered of one disclosure.
const DISCLOSURE_BYTES_MAX: u64 = 1 << 30;
/// Largest range whose residency is checked: the check takes time too.
const RESIDENCY_BYTES_MAX: u64 = 8 << 20;
/// Most hints that may be queued in the prefetcher, which refuses a process's hints at some 50,000.
const QUEUED_MAX: u32 = 1 << 15;
/// Attempts to get the ring while it is held or full; attempts that only yield; and the pause
/// between later ones in microseconds: 5 ms in all.
const RING_TRIES: u32 = 116;
const RING_YIELDS: u32 = 16;
const RING_PAUSE_US: u64 = 50;

impl Target {
    /// fadvise64(2): handles disclosures, and leaves real advice to the kernel.
    pub(super) fn disclose(&self, session: &'static Session, call: &Call) -> Outcome {
        if call.fd(0) != MAGIC {
            return Outcome::Native;
        }
        let [_, what, subject, offset, length, _] = call.args;
        let taken = match what {
            DISCLOSE_FD => self.disclose_fd(session, subject as u32 as Fd, offset, length),
            DISCLOSE_PATH => self.disclose_path(session, subject, offset, length),
            CANCEL_ALL => self.cancel_disclosures(session),
            // The kernel refuses an unknown command.
            _ => return Outcome::Native,
        };
        Outcome::Answer(if taken { 0 } else { sys::fail(sys::EBADF) })
    }

    fn disclose_fd(&self, session: &'static Session, fd: Fd, offset: u64, length: u64) -> bool {
        let Some(size) = regular_size(fd) else { return false };
        let length =
            if length == 0 { DISCLOSURE_BYTES_MAX } else { length.min(DISCLOSURE_BYTES_MAX) };
        let end = offset.saturating_add(length).min(size);
        if offset >= end {
            return false;
        }
        let (start, end) = (offset / PAGE * PAGE, end.next_multiple_of(PAGE).min(size));
        if end - start <= RESIDENCY_BYTES_MAX && sys::is_cached(fd, start, end - start) == Ok(true)
        {
            return true;
        }
        let mut text = [0u8; PATH_MAX + 1];
        let Some(len) = path_text::directory(fd, &mut text) else { return false };
        let object = NAMES.identity(fd);
        let path = &text[..len];
        self.send_disclosure(
            session,
            &Disclosure { object, path, by_name: false, start, end: Some(end) },
        )
    }

    fn disclose_path(&self, session: &'static Session, at: u64, offset: u64, length: u64) -> bool {
        let mut given = [0u8; PATH_MAX];
        let Ok(len @ 1..) = sys::copy_string(at, &mut given) else { return false };
        let given = &given[..len];
        let mut text = [0u8; PATH_MAX + 1];
        let Some(len) = absolute(given, &mut text) else { return false };
        // No file has data beyond this offset.
        if offset > i64::MAX as u64 - 2 * DISCLOSURE_BYTES_MAX {
            return false;
        }
        let start = offset / PAGE * PAGE;
        let end = (1..=DISCLOSURE_BYTES_MAX)
            .contains(&length)
            .then(|| (offset + length).next_multiple_of(PAGE));
        let object = self.path_identity(session, AT_FDCWD, given);
        let path = &text[..len];
        self.send_disclosure(session, &Disclosure { object, path, by_name: true, start, end })
    }

    /// Sends a hint and enters it into the log. Returns false if that is impossible now.
    fn send_disclosure(&self, session: &'static Session, wanted: &Disclosure<'_>) -> bool {
        if path_text::is_made_up(wanted.path) || !self.ensure_joined(session) {
            return false;
        }
        let shared = session.shared();
        let control = &shared.control;
        if control.queued.load(Relaxed) > QUEUED_MAX
            || control.bytes_ahead.load(Relaxed) > control.bytes_budget.load(Relaxed)
        {
            return false;
        }
        // Ends call sampling, so that uses of the disclosed data are counted.
        self.leave_sampling();
        self.stall_probing.note_use();
        self.with_ring_room(shared, wanted.path.len(), || self.push_disclosure(shared, wanted))
    }

    /// Pushes the hint. The caller holds the ring, which has room.
    fn push_disclosure(&self, shared: &Shared, wanted: &Disclosure<'_>) {
        let run = self.disclosures.run.load(Relaxed);
        let end = wanted.end.unwrap_or((wanted.start + 1).next_multiple_of(CHUNK_BYTES));
        let length = end - wanted.start;
        let pieces = wanted.object.pieces(wanted.start, length);
        let mut news = 0;
        for piece in pieces.chain(wanted.by_name.then_some(wanted.object.into())) {
            news += u64::from(shared.log.disclose(piece, run));
        }
        if self.disclosures.is_repeated(wanted) && news == 0 {
            return;
        }
        shared.control.hints_issued.fetch_add(news, Relaxed);
        // Disclosures are expected to be used in this order, one access each.
        let accesses = shared.control.accesses.load(Relaxed);
        let position = self.disclosures.position.load(Relaxed).max(accesses) + 1;
        self.disclosures.position.store(position, Relaxed);
        let flags = DISCLOSURE | if wanted.end.is_none() { LENGTH_UNKNOWN } else { 0 };
        let (object, offset, path) = (wanted.object, wanted.start, wanted.path);
        let hint = Hint { kind: HintKind::Data, object, offset, length, flags, path };
        hint_sender::send(shared, run, position, &hint);
    }

    fn cancel_disclosures(&self, session: &'static Session) -> bool {
        if !session.is_joined() {
            // Nothing was disclosed. It would be accepted unless joining was refused.
            return !self.join_attempt.is_made();
        }
        let shared = session.shared();
        let path = b"/";
        self.with_ring_room(shared, path.len(), || {
            let run = self.disclosures.run.load(Relaxed);
            let object = Identity::ROOT;
            let kind = HintKind::Cancel;
            hint_sender::send(shared, run, 0, &Hint::whole(kind, object, 0, path));
            self.disclosures.reset(run.checked_add(1).unwrap_or(DISCLOSED));
        })
    }

    /// Joins the session at the first disclosure. Returns true if the process is known to the
    /// supervisor.
    fn ensure_joined(&self, session: &'static Session) -> bool {
        self.join(session);
        // Another thread may be joining right now.
        session.is_joined() || plane::has_threads() && self.retry(|| session.is_joined())
    }

    /// Does `work` while holding the ring, with room for a record with a path of `path` bytes.
    ///
    /// A ring has one writer, which holds it for a microsecond at a time; the supervisor empties it
    /// every 150 µs or so. Returns false if the ring is not available.
    fn with_ring_room(&self, shared: &Shared, path: usize, work: impl Fn()) -> bool {
        let len = size_of::<Header>() + path;
        let ring = shared.ring(0);
        // A signal handler that jumps out of here would keep the ring locked for ever.
        let mask = signal_block::begin();
        let done = self.retry(|| {
            let had = self.ring_lock.try_with(|()| {
                let has_room = ring.has_room(len);
                if has_room {
                    work();
                }
                has_room
            });
            had == Some(true)
        });
        signal_block::end(mask);
        done
    }

    /// Retries `attempt` for at most 5 ms. After a failure it does not pause again until an attempt
    /// succeeds: a supervisor that does not respond is waited for once.
    fn retry(&self, mut attempt: impl FnMut() -> bool) -> bool {
        let is_patient = &self.disclosures.may_pause;
        let tries = if is_patient.load(Relaxed) { RING_TRIES } else { RING_YIELDS };
        for n in 0..tries {
            if attempt() {
                if tries < RING_TRIES {
                    is_patient.store(true, Relaxed);
                }
                return true;
            }
            if n < RING_YIELDS {
                // SAFETY: sched_yield(2) takes no arguments.
                let _ = unsafe { sys::raw(nr::SCHED_YIELD, [0; 6]) };
            } else {
                sys::sleep_us(RING_PAUSE_US);
            }
        }
        is_patient.store(false, Relaxed);
        false
    }
}

/// Size of the file behind `fd`, if it is a regular file whose reads the kernel caches.
fn regular_size(fd: Fd) -> Option<u64> {
    // Higher descriptors have no known names.
    (0..TRACKED_DESCRIPTORS as Fd).contains(&fd).then_some(())?;
    let stat = sys::statx_fd(fd, k::STATX_TYPE | k::STATX_SIZE).ok()?;
    let is_regular = u32::from(stat.stx_mode) & k::S_IFMT == k::S_IFREG;
    let flags = sys::status_flags(fd).ok()? as u32;
    (is_regular && flags & k::O_DIRECT == 0).then_some(stat.stx_size)
}

/// Writes the absolute form of the program's path to `out`. Returns its length.
fn absolute(given: &[u8], out: &mut PathBuf) -> Option<usize> {
    let base = if given.first() == Some(&b'/') { 0 } else { path_text::directory(AT_FDCWD, out)? };
    path_text::append(out, base, given).filter(|&len| len <= PATH_MAX)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::sys::Errno;

    #[test]
    fn a_path_is_read_by_the_kernel_and_no_further_than_its_end() {
        let mut to = [0u8; PATH_MAX];
        let pages = sys::map_anywhere(2 * PAGE as usize).expect("memory");
        // SAFETY: just mapped, with no other user.
        unsafe { sys::unmap(pages + PAGE, PAGE) }.expect("ours");
        // SAFETY: the first page is still there.
        unsafe { core::slice::from_raw_parts_mut(pages as *mut u8, PAGE as usize) }.fill(b'x');
        assert_eq!(sys::copy_string(pages, &mut to), Err(Errno(sys::ENAMETOOLONG)));
        assert_eq!(sys::copy_string(pages + 1, &mut to), Err(Errno(sys::EFAULT)));
        // SAFETY: the last byte of that page.
        unsafe { *((pages + PAGE - 1) as *mut u8) = 0 };
        assert_eq!(sys::copy_string(pages + PAGE - 5, &mut to), Ok(4));
        assert_eq!(&to[..4], b"xxxx");
        for bad in [0, 1, u64::MAX, pages + PAGE, 0xffff_8000_0000_0000] {
            assert_eq!(sys::copy_string(bad, &mut to), Err(Errno(sys::EFAULT)));
        }
    }

    #[test]
    fn relative_paths_start_at_the_working_directory() {
        let mut out = [0u8; PATH_MAX + 1];
        assert_eq!(absolute(b"/a/b", &mut out), Some(4));
        let here = std::env::current_dir().expect("there is one").join("a");
        let len = absolute(b"a", &mut out).expect("it fits");
        assert_eq!(&out[..len], here.as_os_str().as_encoded_bytes());
        assert_eq!(absolute(&[b'y'; PATH_MAX - 1], &mut out), None);
    }

    #[test]
    fn a_supervisor_that_does_not_come_is_waited_for_once() {
        let target = &super::super::target_state::TARGET;
        let tries = |answer_at: Option<u32>| {
            let mut tries = 0;
            target.retry(|| {
                tries += 1;
                Some(tries) == answer_at
            });
            tries
        };
        assert_eq!(tries(None), RING_TRIES);
        assert_eq!(tries(None), RING_YIELDS, "and then not again");
        assert_eq!(tries(Some(1)), 1);
        assert_eq!(tries(Some(20)), 20, "until it has come");
    }
}
