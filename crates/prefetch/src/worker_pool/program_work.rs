//! A worker's part in bringing programs in.

use runahead_predict::{FileLead, Files, Report, StepFailure, Task};

use super::pool::Pool;
use crate::io::{Devices, Node, Reader, trouble};
use crate::request_queue::{Class, Step};

/// Opens and reads files as everything else does.
struct Disk<'a> {
    reader: &'a mut Reader,
    devices: &'a Devices,
}

impl Files<Node> for Disk<'_> {
    fn open(&mut self, path: &[u8]) -> Result<Option<(Node, u64)>, StepFailure> {
        match self.reader.look(path, true).map_err(trouble)? {
            // What has no size is no program, and may have readers whom each byte is taken from.
            (node, Class::File { size }) if size > 0 => Ok(Some((node, size))),
            _ => Ok(None),
        }
    }

    fn bytes(&mut self, file: &Node, offset: u64, length: u64) -> Result<Vec<u8>, StepFailure> {
        let range = offset..offset.saturating_add(length);
        self.reader.bytes(file, &range, self.devices).map_err(trouble)
    }

    fn real_path(&mut self, file: &Node) -> Option<Vec<u8>> {
        self.reader.real_path(file)
    }
}

/// Bytes that a step read which no hint named.
pub(super) fn unhinted(step: &Step<Node>, result: &Result<Report<Node>, StepFailure>) -> u64 {
    match (step, result) {
        (Step::Program { own: true, .. }, _) => 0,
        (_, Ok(Report::Found(Some(located)))) => located.bytes,
        (_, Ok(Report::Loaded(bytes))) => *bytes,
        _ => 0,
    }
}

impl Pool {
    /// Does something for a program.
    pub(super) fn work_on(
        &self,
        task: &Task<Node>,
        reader: &mut Reader,
    ) -> Result<Report<Node>, StepFailure> {
        let mut disk = Disk { reader, devices: &self.devices };
        match task {
            Task::Find { lead } => self.find(lead, &mut disk),
            Task::Needs { found } => {
                let now = self.origin.elapsed();
                Ok(Report::Leads(self.inspector.needs(&mut disk, found, now)))
            }
            // By now it may be known what it comes from.
            Task::Load { file, .. } if self.is_in_vain(file) => Ok(Report::Loaded(0)),
            Task::Load { file, range, .. } => {
                let read = disk.reader.read(file, range, &self.devices, None);
                read.map(Report::Loaded).map_err(trouble)
            }
        }
    }

    /// True if reading `file` ahead gains nothing: its requests are quick, or served one at a time.
    fn is_in_vain(&self, file: &Node) -> bool {
        let Some(device) = file.place().home else { return false };
        let sched = &self.lock().sched;
        sched.is_quick(device) || sched.is_sole_on(device)
    }

    fn find(&self, lead: &FileLead, disk: &mut Disk<'_>) -> Result<Report<Node>, StepFailure> {
        self.inspector.find(disk, lead).map(Report::Found)
    }
}

#[cfg(test)]
#[path = "program_work_tests.rs"]
mod tests;
