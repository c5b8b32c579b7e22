//! Disclosures that the program makes when it runs in a shadow: they become hints like the shadow's
//! others, and stray with it. A cancellation cancels what was disclosed in this run.

use runahead_abi::hint_record::{DISCLOSURE, LENGTH_UNKNOWN};
use runahead_abi::{HintKind, HintState, PATH_MAX};
use runahead_client::disclosure::protocol::{CANCEL_ALL, DISCLOSE_FD, DISCLOSE_PATH};
use runahead_estimators::Identity;
use runahead_estimators::access_identity::CHUNK_BYTES;

use super::runner::{CallAnswer, Runner};
use super::shadow_descriptors::Backing;
use crate::hint_sender::Hint;
use crate::path_text;
use crate::plane::Call;
use crate::sys::{self, AT_FDCWD, Fd, PAGE};

/// Most bytes hinted for one disclosure, as for one read.
const DISCLOSURE_BYTES_MAX: u64 = 64 << 20;

impl Runner {
    /// Answers as the target would, as far as that can be known here.
    pub(super) fn disclose(&mut self, call: &Call) -> CallAnswer {
        let [_, what, subject, offset, length, _] = call.args;
        // No file has data beyond this offset.
        let is_sound = offset <= i64::MAX as u64 - 2 * DISCLOSURE_BYTES_MAX;
        let taken = match what {
            DISCLOSE_FD => is_sound && self.disclose_fd(subject as u32 as Fd, offset, length),
            DISCLOSE_PATH => is_sound && self.disclose_path(subject, offset, length),
            CANCEL_ALL => {
                let (kind, object, path) = (HintKind::Cancel, Identity::ROOT, b"/");
                self.send_hint(&Hint::whole(kind, object, 0, path));
                true
            }
            _ => false,
        };
        Ok(if taken { 0 } else { sys::fail(sys::EBADF) })
    }

    fn disclose_fd(&mut self, fd: Fd, offset: u64, length: u64) -> bool {
        let Some(&mut d) = self.descriptors.get(fd) else { return false };
        let size = match d.backing {
            Backing::File(_) => d.size,
            // The size of a cold file is a guess.
            Backing::ColdFile => u64::MAX,
            _ => return false,
        };
        if offset >= size {
            return false;
        }
        let length = if length == 0 { DISCLOSURE_BYTES_MAX } else { length };
        if let Some(path) = self.directory_path(fd) {
            self.hint_disclosed(d.identity, path, offset, Some(length.min(size - offset)), false);
        }
        true
    }

    fn disclose_path(&mut self, at: u64, offset: u64, length: u64) -> bool {
        let Ok(name) = self.name(AT_FDCWD, at) else { return false };
        let mut text = [0u8; PATH_MAX + 1];
        let Some(len) = self.absolute_path(&name, &mut text).filter(|&len| len <= PATH_MAX) else {
            return false;
        };
        if path_text::is_made_up(&text[..len]) {
            return false;
        }
        let length = (length > 0).then_some(length);
        self.hint_disclosed(name.identity, &text[..len], offset, length, true);
        true
    }

    /// Hints exactly these bytes, in whole pages, unless the log has all of them as read.
    fn hint_disclosed(
        &mut self,
        object: Identity,
        path: &[u8],
        offset: u64,
        length: Option<u64>,
        by_name: bool,
    ) {
        let start = offset / PAGE * PAGE;
        let end = match length {
            Some(length) => (offset + length.min(DISCLOSURE_BYTES_MAX)).next_multiple_of(PAGE),
            None => (start + 1).next_multiple_of(CHUNK_BYTES),
        };
        let mut wanted = by_name && self.log_hint(object);
        for piece in object.pieces(start, end - start) {
            self.log_hint(piece);
            wanted |= self.session.shared().log.state(piece) == HintState::Hinted;
        }
        if wanted {
            let flags = DISCLOSURE | if length.is_none() { LENGTH_UNKNOWN } else { 0 };
            let (kind, length) = (HintKind::Data, end - start);
            self.send_hint(&Hint { kind, object, offset: start, length, flags, path });
        }
    }
}
