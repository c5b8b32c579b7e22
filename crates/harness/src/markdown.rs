//! Markdown and text tables, at most [`WIDTH`] columns a line.

use std::fmt::Write as _;

/// Columns of a line in a document.
pub const WIDTH: usize = 160;

/// Headings, and rows with as many cells.
#[derive(Debug, Clone)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new<H: Into<String>>(headings: impl IntoIterator<Item = H>) -> Self {
        Self { rows: vec![headings.into_iter().map(Into::into).collect()] }
    }

    /// Adds a row.
    pub fn row<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) -> &mut Self {
        self.rows.push(cells.into_iter().map(Into::into).collect());
        self
    }

    /// Returns the last row as a line.
    pub fn last_line(&self) -> String {
        line(self.rows.last().map_or(&[][..], Vec::as_slice))
    }

    /// Renders it for a document.
    pub fn markdown(&self) -> String {
        let mut text = line(&self.rows[0]) + "\n|";
        text += &"---|".repeat(self.rows[0].len());
        self.rows[1..].iter().for_each(|row| _ = write!(text, "\n{}", line(row)));
        text + "\n"
    }

    /// Renders it for a terminal, in aligned columns.
    pub fn aligned(&self) -> String {
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max();
        let widths: Vec<_> = (0..self.rows[0].len()).map(|n| width(n).unwrap_or(0)).collect();
        let mut text = String::new();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
        }
        text
    }
}

fn line(cells: &[String]) -> String {
    format!("| {} |", cells.join(" | "))
}

/// Breaks `text` between words so that no line has more than [`WIDTH`] columns; lines after the
/// first begin with `indent`. Code between backticks is broken, too, where it has to be: each line
/// then closes and opens its own.
pub fn wrapped(text: &str, indent: &str) -> String {
    let mut lines = vec![String::new()];
    let mut in_code = false;
    for word in text.split(' ') {
        let last = lines.len() - 1;
        // One column stays free for a closing backtick.
        let full = lines[last].chars().count() + 1 + word.chars().count() >= WIDTH;
        if full && !lines[last].trim().is_empty() {
            if in_code {
                lines[last].push('`');
            }
            lines.push(format!("{indent}{}{word}", if in_code { "`" } else { "" }));
        } else {
            if !lines[last].is_empty() {
                lines[last].push(' ');
            }
            lines[last].push_str(word);
        }
        in_code ^= word.matches('`').count() % 2 == 1;
    }
    lines.join("\n")
}

/// Renders a number with a comma at every third digit.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let (head, tail) = digits.split_at(digits.len() % 3);
    let groups = tail.as_bytes().chunks(3).map(String::from_utf8_lossy);
    let head = (!head.is_empty()).then(|| head.into());
    head.into_iter().chain(groups).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_markdown_or_aligned() {
        let mut table = Table::new(["row", "s"]);
        table.row(["a", "10"]).row(["long", "9"]);
        assert_eq!(table.markdown(), "| row | s |\n|---|---|\n| a | 10 |\n| long | 9 |\n");
        assert_eq!(table.aligned(), "row   s\na     10\nlong  9\n");
        assert_eq!(table.last_line(), "| long | 9 |");
    }

    #[test]
    fn lines_are_at_most_so_wide_and_code_stays_code() {
        let text = format!("- `{}`, {}", "word ".repeat(60).trim(), "more ".repeat(60).trim());
        let wrapped = wrapped(&text, "  ");
        assert!(wrapped.lines().all(|line| line.chars().count() <= WIDTH), "{wrapped}");
        assert!(wrapped.lines().all(|line| line.matches('`').count() % 2 == 0), "{wrapped}");
        assert!(wrapped.lines().skip(1).all(|line| line.starts_with("  ")), "{wrapped}");
        let words = |text: &str| {
            text.replace('`', "").split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(words(&wrapped), words(&text));
        assert_eq!(super::wrapped("short", "  "), "short");
    }

    #[test]
    fn numbers_are_grouped() {
        let all = [(0, "0"), (12, "12"), (999, "999"), (1000, "1,000"), (580_632, "580,632")];
        all.iter().for_each(|(number, text)| assert_eq!(grouped(*number), *text));
        assert_eq!(grouped(12_345_678), "12,345,678");
    }
}
