//! Records of what was read of the lower tree ([`runahead_abi::overlay::ReadRecords`]).
//!
//! Only the top layer records: those below it are mapped read-only. A commit of a nested try looks
//! at all that it has read, so the outer try records that then.

use runahead_abi::overlay::{Origin, ReadKind, ReadRecord, ReadRecords, flag};

use super::change_filter;
use super::kernel_calls::Stat;
use super::layer::Layer;
use super::view_path::ViewPath;
use super::whiteouts;

/// True if reads of the layer are recorded.
pub(super) fn is_on(layer: Layer) -> bool {
    let is_planted = cfg!(feature = "fault-injection") && layer.flags() & flag::PLANT_READS != 0;
    layer == Layer::top() && !is_planted
}

fn records(layer: Layer) -> &'static ReadRecords {
    &change_filter::filter(layer).reads
}

/// True if the name has a record of this kind.
pub(super) fn has(name: &ViewPath, kind: ReadKind) -> bool {
    records(name.layer()).has(kind, name.hash())
}

/// Records a read of an entry of the lower tree.
pub(super) fn record(name: &ViewPath, kind: ReadKind, origin: Origin) {
    if !is_in_store(name.as_bytes()) {
        let record = ReadRecord { kind, origin, path: name.as_bytes() };
        records(name.layer()).add(name.hash(), &record);
    }
}

/// Records that a symbolic link of the lower tree was read.
pub(super) fn record_link(name: &ViewPath, stat: &Stat) {
    record(name, ReadKind::Link, stat.origin());
}

/// Records that the lower tree was asked for a name and has none. What the try has removed was not
/// asked for.
pub(super) fn record_absence(name: &ViewPath) {
    if !whiteouts::is_whiteout(name) {
        record(name, ReadKind::Absence, Origin::ABSENT);
    }
}

/// True for the directory where tries are kept, and everything below it: `runahead` itself changes
/// that.
fn is_in_store(path: &[u8]) -> bool {
    let parent =
        |path: &'static [u8]| &path[..path.iter().rposition(|byte| *byte == b'/').unwrap_or(0)];
    let store = parent(parent(Layer::LOWEST.directory()));
    let rest = path.strip_prefix(store).filter(|_| !store.is_empty());
    matches!(rest, Some([] | [b'/', ..]))
}
