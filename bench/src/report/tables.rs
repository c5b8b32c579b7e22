//! The tables of a report, for a terminal and for documents.

use runahead_harness::markdown::Table;

use crate::report::json_results::{Report, RowReport, Section};
use crate::report::machine::date;
use crate::report::row_summary::{Ratio, Verdict, bytes_ratio, median_of, processor_ratio};
use crate::report::run_report::Kind;
use crate::rows::cost_limits::{Cost, Unit};

/// Headings of a table.
fn headings(section: Section) -> Vec<&'static str> {
    let headings = match section {
        Section::Cold => {
            "row|plain|runahead|ratio|spread|at least|oracle|oracle's ratio|closeness|replay|bytes|result|measured"
        }
        Section::Ablation => "row|everything on|spread|without|spread|measured",
        Section::Warm => "row|plain|runahead|slower|spread|at most|result|measured",
        Section::Futile | Section::Cost => {
            "row|plain|runahead|ratio|spread|added|asked|result|measured"
        }
        Section::Everyday => {
            "command|plain, s|first run, times faster|second run|processor, s: plain|first|second|\
             bytes over plain: first|second|outputs"
        }
    };
    headings.split('|').collect()
}

/// Returns the tables of a section, with their titles: everyday rows have one for each storage.
pub fn tables(report: &Report, section: Section) -> Vec<(&str, Table)> {
    let mut tables: Vec<(&str, Table)> = Vec::new();
    for row in report.rows.iter().filter(|row| row.section() == section) {
        let title = row.everyday.as_deref().unwrap_or_default();
        if tables.last().is_none_or(|(last, _)| *last != title) {
            tables.push((title, Table::new(headings(section))));
        }
        if let Some((_, table)) = tables.last_mut() {
            table.row(cells(row));
        }
    }
    tables
}

/// Returns a row as a line of its table.
pub fn line(row: &RowReport) -> String {
    Table::new(headings(row.section())).row(cells(row)).last_line()
}

fn cells(row: &RowReport) -> Vec<String> {
    let mut cells = match (&row.cost, row.section()) {
        (Some(cost), _) => cost_cells(row, cost),
        (None, Section::Ablation) => ablation_cells(row),
        (None, Section::Everyday) => return everyday_cells(row),
        (None, _) => time_cells(row),
    };
    let build = row.build.as_ref().map_or(String::new(), |build| format!(" {build}"));
    cells.push(date(row.measured) + &build);
    cells
}

fn time_cells(row: &RowReport) -> Vec<String> {
    let s = &row.summary;
    let cold = row.section() == Section::Cold;
    // Ratios near 1 need their second digit.
    let digits = if cold && row.target >= 2.0 { 1 } else { 2 };
    let ratio = |value| show(value, |v| format!("{v:.digits$}"));
    let seconds = |value| show(value, |v| Unit::Seconds.show(v));
    let mut cells = vec![row.name.clone(), seconds(s.plain), seconds(s.runahead), ratio(s.ratio)];
    cells.extend([spread(s.spread, digits), format!("{}", row.target)]);
    if cold {
        cells.extend([seconds(s.oracle), ratio(s.oracle_ratio)]);
        cells.push(show(s.closeness, |v| format!("{:.0} %", v * 100.0)));
        cells.extend([seconds(s.replay), fixed(bytes_ratio(&row.runs, Kind::Runahead))]);
    }
    cells.push(verdict(s.verdict));
    cells
}

fn cost_cells(row: &RowReport, cost: &Cost) -> Vec<String> {
    let s = &row.summary;
    let value = |value| show(value, |v| cost.unit.show(v));
    vec![
        row.name.clone(),
        value(s.plain),
        value(s.runahead),
        // Limits are as near to 1 as 1.02.
        show(s.ratio, |v| format!("{v:.3}")),
        spread(s.spread, 3),
        show(s.added, |v| cost.difference(v)),
        cost.asked(),
        verdict(s.verdict),
    ]
}

/// Ratios only: the times stand in the row that the ablation is of.
fn ablation_cells(row: &RowReport) -> Vec<String> {
    let s = &row.summary;
    let ratio = |value| show(value, |v| format!("{v:.1}"));
    let last = match s.verdict {
        Verdict::Failed => verdict(s.verdict),
        _ => spread(s.spread, 1),
    };
    let (whole, whole_spread) = (s.whole.map(|w| w.median), s.whole.map(|w| w.spread));
    vec![row.name.clone(), ratio(whole), spread(whole_spread, 1), ratio(s.ratio), last]
}

fn everyday_cells(row: &RowReport) -> Vec<String> {
    let s = &row.summary;
    let first = s.ratio.zip(s.spread).map(|(median, spread)| Ratio { median, spread });
    let pairs = row.runs.iter().filter(|run| run.kind == Kind::Plain).count();
    let faster = |ratio: Option<Ratio>| match ratio {
        Some(Ratio { median, spread: (least, most) }) if pairs > 1 => {
            format!("{median:.2} ({least:.2} to {most:.2})")
        }
        ratio => fixed(ratio.map(|ratio| ratio.median)),
    };
    let used = |kind| fixed(median_of(&row.runs, kind, |run| run.processor));
    let bytes = |kind| fixed(bytes_ratio(&row.runs, kind));
    let outputs = match s.verdict {
        Verdict::Failed => "**FAILED**",
        _ => "same",
    };
    vec![
        everyday_name(row).to_owned(),
        fixed(s.plain),
        faster(first),
        faster(s.again),
        used(Kind::Plain),
        used(Kind::Runahead),
        used(Kind::Again),
        bytes(Kind::Runahead),
        bytes(Kind::Again),
        outputs.to_owned(),
    ]
}

/// The command of `everyday-STORAGE-COMMAND`.
fn everyday_name(row: &RowReport) -> &str {
    row.name.splitn(3, '-').last().unwrap_or(&row.name)
}

/// Returns what is typical and what is worst in an everyday table.
pub fn everyday_summary(report: &Report, title: &str) -> String {
    let rows: Vec<_> =
        report.rows.iter().filter(|row| row.everyday.as_deref() == Some(title)).collect();
    let of = |value: &dyn Fn(&RowReport) -> Option<f64>| {
        let ratio = Ratio::of(&rows.iter().filter_map(|row| value(row)).collect::<Vec<_>>());
        let part = |part: fn(Ratio) -> f64| fixed(ratio.map(part));
        (part(|r| r.median), part(|r| r.spread.0), part(|r| r.spread.1))
    };
    let (first, again) = (of(&|row| row.summary.ratio), of(&|row| Some(row.summary.again?.median)));
    let processor =
        [Kind::Runahead, Kind::Again].map(|kind| of(&|row| processor_ratio(&row.runs, kind)));
    let bytes = [Kind::Runahead, Kind::Again].map(|kind| of(&|row| bytes_ratio(&row.runs, kind)));
    format!(
        "First run: median {}, slowest {}. Second run: median {}, slowest {}.\n\
         Processor time over plain: first run median {}, worst {}; second run median {}, worst {}.\n\
         Bytes over plain: first run median {}, second run median {}.\n",
        first.0,
        first.1,
        again.0,
        again.1,
        processor[0].0,
        processor[0].2,
        processor[1].0,
        processor[1].2,
        bytes[0].0,
        bytes[1].0,
    )
}

fn fixed(value: Option<f64>) -> String {
    show(value, |value| format!("{value:.2}"))
}

fn spread(spread: Option<(f64, f64)>, digits: usize) -> String {
    show(spread, |(a, b)| format!("{a:.digits$} to {b:.digits$}"))
}

fn verdict(verdict: Verdict) -> String {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Miss => "**MISS**",
        Verdict::Failed => "**FAILED**",
        Verdict::Open => "-",
    }
    .to_owned()
}

fn show<T>(value: Option<T>, format: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), format)
}

/// Renders everything for a terminal.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    for section in Section::ALL {
        for (title, table) in tables(report, section) {
            out += &format!("{title}\n{}", table.aligned());
        }
    }
    for row in &report.rows {
        if let Some(failure) = &row.failure {
            out += &format!("{}: {failure}\n", row.name);
        }
    }
    out
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::data::copy_tree::TreeCensus;
    use crate::report::json_results::{Settings, Tree};
    use crate::report::row_summary::{RowMeasure, Summary};
    use crate::report::run_report::RunReport;
    use crate::rows::row_definition::Cache;

    /// A row of these runs, judged by a target of 15.
    pub fn row(name: &str, runs: Vec<RunReport>, failure: Option<&str>) -> RowReport {
        RowReport {
            name: name.into(),
            about: "reads".into(),
            command: "tar cf ARCHIVE tree".into(),
            program: "tar 1".into(),
            storage: "disk".into(),
            content: None,
            starts: None,
            cost: None,
            without: None,
            everyday: None,
            cache: Cache::Cold,
            target: 15.0,
            measured: 0,
            build: None,
            summary: Summary::of(&runs, RowMeasure::Ratio(Cache::Cold, 15.0), failure.is_some()),
            runs,
            oracle: None,
            runahead_stats: None,
            failure: failure.map(str::to_owned),
        }
    }

    /// A report of these rows.
    pub fn report(rows: Vec<RowReport>) -> Report {
        let settings = Settings { pairs: 1, warm_pairs: 1, oracle_runs: 0, quick: false };
        let tree = Tree { what: "a tree".into(), census: TreeCensus::default() };
        Report { rows, ..Report::new(settings, tree, Some("runahead 0".into())) }
    }

    /// Seconds, processor time and bytes of the three runs of a round.
    type Round = [(f64, f64, u64); 3];

    /// A row of everyday commands, with the outputs of its runs the same or not.
    pub fn everyday(command: &str, rounds: &[Round], same: bool) -> RowReport {
        let kinds = [Kind::Plain, Kind::Runahead, Kind::Again];
        let run = |pair, kind, (seconds, processor, read_bytes)| RunReport {
            processor: Some(processor),
            read_bytes,
            ..RunReport::test(kind, pair, seconds)
        };
        let round = |(n, round): (usize, &Round)| {
            kinds.into_iter().zip(*round).map(move |(kind, figures)| run(n + 1, kind, figures))
        };
        let runs: Vec<_> = rounds.iter().enumerate().flat_map(round).collect();
        let summary = Summary::of(&runs, RowMeasure::Nothing, !same);
        let everyday = Some("slow: 5 ms".to_owned());
        let name = format!("everyday-slow-{command}");
        RowReport { everyday, summary, ..row(&name, runs, None) }
    }

    #[test]
    fn an_everyday_table_says_what_is_typical_and_what_is_worst() {
        let of = |name, first, processor| {
            let round = [(10.0, 1.0, 1000), (first, processor, 1100), (1.0, 1.1, 990)];
            everyday(name, &[round], first < 9.0)
        };
        let report = report(vec![of("a", 5.0, 1.5), of("b-c", 2.0, 1.2), of("d", 12.5, 2.0)]);
        let [(title, table)] = &tables(&report, Section::Everyday)[..] else { panic!("one table") };
        let text = table.markdown() + &everyday_summary(&report, title);
        for wanted in [
            "| command | plain, s |",
            "\n|---|---|---|---|---|---|---|---|---|---|\n",
            "\n| a | 10.00 | 2.00 | 10.00 | 1.00 | 1.50 | 1.10 | 1.10 | 0.99 | same |\n",
            "\n| b-c | ",
            "| **FAILED** |",
            "\nFirst run: median 2.00, slowest 0.80. Second run: median 10.00, slowest 10.00.\n",
            "\nProcessor time over plain: first run median 1.50, worst 2.00; second run median 1.10, worst 1.10.\n",
            "\nBytes over plain: first run median 1.10, second run median 0.99.\n",
        ] {
            assert!(text.contains(wanted), "{wanted} in {text}");
        }
    }

    #[test]
    fn of_several_rounds_each_field_has_its_median_and_the_times_their_spread() {
        let round = |plain, first, bytes| [(plain, 1.0, bytes), (first, 2.0, 300), (1.0, 1.0, 100)];
        let rounds = [round(10.0, 5.0, 100), round(12.0, 3.0, 200), round(9.0, 9.0, 150)];
        assert_eq!(
            line(&everyday("a", &rounds, true)),
            "| a | 10.00 | 2.00 (1.00 to 4.00) | 10.00 (9.00 to 12.00) | 1.00 | 2.00 | 1.00 | 2.00 | 0.67 | same |"
        );
    }

    #[test]
    fn in_memory_there_are_no_bytes_and_little_processor_time_has_no_ratio() {
        let row = everyday("a", &[[(0.01, 0.0, 0), (0.02, 0.01, 0), (0.02, 0.01, 0)]], true);
        assert_eq!(line(&row), "| a | 0.01 | 0.50 | 0.50 | 0.00 | 0.01 | 0.01 | - | - | same |");
        let text = everyday_summary(&report(vec![row]), "slow: 5 ms");
        assert!(text.contains("plain: first run median -, worst -;"), "{text}");
        assert!(text.contains("Bytes over plain: first run median -, second"), "{text}");
        let none = everyday_summary(&report(vec![]), "slow: 5 ms");
        assert!(none.contains("First run: median -, slowest -."), "{none}");
    }

    #[test]
    fn a_table_for_a_terminal_has_all_rows_and_failures() {
        let runs = || vec![RunReport::test(Kind::Plain, 1, 2.0)];
        let rows = vec![row("tar", runs(), None), row("du", runs(), Some("outputs DIFFER"))];
        let text = text(&report(rows));
        assert!(text.contains("\ntar  2.00 s  -"), "{text}");
        assert!(text.ends_with("du: outputs DIFFER\n"), "{text}");
    }
}
