//! What the runs of a command took, and the table of a storage.
//!
//! Invariant: how many times faster a run is, is said of runs of one round, which met the same state of the machine.

use std::fmt::Write as _;

use crate::report::summary::{Ratio, median};

/// How a command is run. A round has one run of each, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Plain,
    /// Under runahead, which knows nothing of it.
    First,
    /// Under runahead once more.
    Again,
}

impl Way {
    pub const ALL: [Self; 3] = [Self::Plain, Self::First, Self::Again];
}

/// What one run took.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Measurement {
    /// In seconds.
    pub elapsed: f64,
    /// Processor time in seconds, of the command and all that is ours.
    pub processor: f64,
    /// Read from the storage; `None` where all is in memory.
    pub bytes: Option<f64>,
}

/// One command on one storage.
pub struct Row {
    pub name: &'static str,
    /// In each, the runs in the order of [`Way::ALL`].
    pub rounds: Vec<[Measurement; 3]>,
    /// Whether all runs ended and printed alike.
    pub same: bool,
}

impl Row {
    /// Of each field by itself.
    fn median(&self, way: Way) -> Measurement {
        let runs = || self.rounds.iter().map(|round| round[way as usize]);
        Measurement {
            elapsed: median(runs().map(|run| run.elapsed)).unwrap_or(0.0),
            processor: median(runs().map(|run| run.processor)).unwrap_or(0.0),
            bytes: median(runs().filter_map(|run| run.bytes)),
        }
    }

    /// How many times faster than plain.
    fn faster(&self, way: Way) -> Option<Ratio> {
        let ratio = |round: &[Measurement; 3]| {
            round[Way::Plain as usize].elapsed / round[way as usize].elapsed.max(1e-3)
        };
        Ratio::of(&self.rounds.iter().map(ratio).collect::<Vec<_>>())
    }

    /// Processor time over plain. It is counted in hundredths of a second: of a command that takes less than
    /// one, a ratio would mean nothing.
    fn processor(&self, way: Way) -> Option<f64> {
        let plain = self.median(Way::Plain).processor;
        (plain >= 0.01).then(|| self.median(way).processor / plain)
    }

    /// Bytes read from the storage over plain.
    fn bytes(&self, way: Way) -> Option<f64> {
        let plain = self.median(Way::Plain).bytes.filter(|bytes| *bytes > 0.0)?;
        Some(self.median(way).bytes? / plain)
    }
}

const HEADINGS: [&str; 10] = [
    "command",
    "plain, s",
    "first run, times faster",
    "second run",
    "processor, s: plain",
    "first",
    "second",
    "bytes over plain: first",
    "second",
    "outputs",
];

/// A row of the table.
pub fn line(row: &Row) -> String {
    let faster = |way| match row.faster(way) {
        Some(Ratio { median, spread: (least, most) }) if row.rounds.len() > 1 => {
            format!("{median:.2} ({least:.2} to {most:.2})")
        }
        ratio => show(ratio.map(|ratio| ratio.median)),
    };
    let mut cells = vec![row.name.to_owned(), format!("{:.2}", row.median(Way::Plain).elapsed)];
    cells.extend([Way::First, Way::Again].map(faster));
    cells.extend(Way::ALL.map(|way| format!("{:.2}", row.median(way).processor)));
    cells.extend([Way::First, Way::Again].map(|way| show(row.bytes(way))));
    cells.push(if row.same { "same" } else { "DIFFERENT" }.to_owned());
    format!("| {} |", cells.join(" | "))
}

/// The table of a storage, and what is typical and what is worst.
pub fn table(title: &str, rows: &[Row]) -> String {
    let mut text = format!("### {title}\n\n| {} |\n", HEADINGS.join(" | "));
    let _ = writeln!(text, "|{}", "---|".repeat(HEADINGS.len()));
    rows.iter().for_each(|row| _ = writeln!(text, "{}", line(row)));
    let summary = |of: &dyn Fn(&Row) -> Option<f64>| Summary::of(rows.iter().filter_map(of));
    let faster = |way| summary(&|row| Some(row.faster(way)?.median));
    let processor = |way| summary(&|row| row.processor(way));
    let bytes = |way| summary(&|row| row.bytes(way));
    let (first, again) = (faster(Way::First), faster(Way::Again));
    let _ = writeln!(
        text,
        "\nFirst run: median {}, slowest {}. Second run: median {}, slowest {}.",
        show(first.median),
        show(first.least),
        show(again.median),
        show(again.least),
    );
    let (first, again) = (processor(Way::First), processor(Way::Again));
    let _ = writeln!(
        text,
        "Processor time over plain: first run median {}, worst {}; second run median {}, worst {}.",
        show(first.median),
        show(first.most),
        show(again.median),
        show(again.most),
    );
    let _ = writeln!(
        text,
        "Bytes over plain: first run median {}, second run median {}.\n",
        show(bytes(Way::First).median),
        show(bytes(Way::Again).median),
    );
    text
}

/// Of the rows that have a value.
#[derive(Default)]
struct Summary {
    median: Option<f64>,
    least: Option<f64>,
    most: Option<f64>,
}

impl Summary {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.collect();
        let Some(Ratio { median, spread: (least, most) }) = Ratio::of(&values) else {
            return Self::default();
        };
        Self { median: Some(median), least: Some(least), most: Some(most) }
    }
}

fn show(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(elapsed: f64, processor: f64, bytes: Option<f64>) -> Measurement {
        Measurement { elapsed, processor, bytes }
    }

    fn row(name: &'static str, rounds: &[[Measurement; 3]]) -> Row {
        Row { name, rounds: rounds.to_vec(), same: true }
    }

    #[test]
    fn a_table_says_what_is_typical_and_what_is_worst() {
        let row = |name, first: f64, processor: f64| {
            let plain = run(10.0, 1.0, Some(1000.0));
            let round = [plain, run(first, processor, Some(1100.0)), run(1.0, 1.1, Some(990.0))];
            Row { same: first < 9.0, ..row(name, &[round]) }
        };
        let rows = [row("a", 5.0, 1.5), row("b", 2.0, 1.2), row("c", 12.5, 2.0)];
        let text = table("slow: 5 ms", &rows);
        for wanted in [
            "### slow: 5 ms\n\n| command | plain, s |",
            "\n|---|---|---|---|---|---|---|---|---|---|\n",
            "\n| a | 10.00 | 2.00 | 10.00 | 1.00 | 1.50 | 1.10 | 1.10 | 0.99 | same |\n",
            "| DIFFERENT |",
            "\nFirst run: median 2.00, slowest 0.80. Second run: median 10.00, slowest 10.00.\n",
            "\nProcessor time over plain: first run median 1.50, worst 2.00; second run median 1.10, worst 1.10.\n",
            "\nBytes over plain: first run median 1.10, second run median 0.99.\n",
        ] {
            assert!(text.contains(wanted), "{wanted} in {text}");
        }
    }

    #[test]
    fn of_several_rounds_each_field_has_its_median_and_the_times_their_spread() {
        let round = |plain, first, bytes| {
            [run(plain, 1.0, Some(bytes)), run(first, 2.0, Some(300.0)), run(1.0, 1.0, Some(100.0))]
        };
        let rounds = [round(10.0, 5.0, 100.0), round(12.0, 3.0, 200.0), round(9.0, 9.0, 150.0)];
        let row = row("a", &rounds);
        assert_eq!(row.median(Way::Plain), run(10.0, 1.0, Some(150.0)));
        assert_eq!(
            line(&row),
            "| a | 10.00 | 2.00 (1.00 to 4.00) | 10.00 (9.00 to 12.00) | 1.00 | 2.00 | 1.00 | 2.00 | 0.67 | same |"
        );
    }

    #[test]
    fn in_memory_there_are_no_bytes_and_little_processor_time_has_no_ratio() {
        let row = row("a", &[[run(0.01, 0.0, None), run(0.02, 0.01, None), run(0.02, 0.01, None)]]);
        assert_eq!(line(&row), "| a | 0.01 | 0.50 | 0.50 | 0.00 | 0.01 | 0.01 | - | - | same |");
        let text = table("memory: everything in memory", &[row]);
        assert!(text.contains("plain: first run median -, worst -;"), "{text}");
        assert!(text.contains("Bytes over plain: first run median -, second"), "{text}");
        // Nor is anything said of nothing.
        assert!(table("none", &[]).contains("First run: median -, slowest -."));
    }
}
