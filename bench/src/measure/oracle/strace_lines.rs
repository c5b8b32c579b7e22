//! Lines of strace's output, as calls.
//!
//! Invariant: with `-xx` every string and path is written as `\xHH` only, so that brackets, quotes
//! and commas in a line are always strace's own. A line that is not understood yields nothing:
//! the oracle then knows less, and is never wrong.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// A completed system call.
#[derive(Debug, PartialEq, Eq)]
pub struct Call {
    pub process: u32,
    pub name: String,
    pub args: Vec<String>,
    /// The text after the equals sign.
    pub result: String,
}

/// Puts together lines of several processes.
#[derive(Debug, Default)]
pub struct Parser {
    /// Calls that another process's line interrupted.
    unfinished: HashMap<u32, String>,
}

impl Parser {
    /// The call that this line completes.
    pub fn line(&mut self, line: &str) -> Option<Call> {
        let (process, text) = line.trim_start().split_once(' ')?;
        let process = process.parse().ok()?;
        let text = text.trim_start();
        if let Some(start) = text.strip_suffix("<unfinished ...>") {
            self.unfinished.insert(process, start.trim_end().to_owned());
            return None;
        }
        if let Some(rest) = text.strip_prefix("<... ") {
            let (_, rest) = rest.split_once(" resumed>")?;
            let whole = self.unfinished.remove(&process)? + rest;
            return parse(process, &whole);
        }
        parse(process, text)
    }
}

fn parse(process: u32, text: &str) -> Option<Call> {
    let (call, result) = text.rsplit_once(" = ")?;
    let (name, args) = call.trim_end().strip_suffix(')')?.split_once('(')?;
    let args = split_arguments(args);
    Some(Call { process, name: name.to_owned(), args, result: result.to_owned() })
}

/// Splits at commas outside of brackets.
fn split_arguments(text: &str) -> Vec<String> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0i32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..at].trim().to_owned());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim().to_owned());
    parts
}

/// `3<\x2f\x61>` as 3 and `/a`; `AT_FDCWD<...>` has no number.
pub fn descriptor(text: &str) -> Option<(Option<u32>, PathBuf)> {
    let (number, rest) = text.split_once('<')?;
    let (path, _) = rest.split_once('>')?;
    Some((number.parse().ok(), unhex(path)?))
}

/// `"\x2f\x61"`, whole and not cut short.
pub fn string(text: &str) -> Option<PathBuf> {
    unhex(text.strip_prefix('"')?.strip_suffix('"')?)
}

/// A result or argument, decimal or hexadecimal; none if it is an error.
pub fn number(text: &str) -> Option<u64> {
    let text = text.split([' ', '<', ']']).next()?.trim_start_matches('[');
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn unhex(text: &str) -> Option<PathBuf> {
    let mut bytes = Vec::with_capacity(text.len() / 4);
    let mut rest = text;
    while !rest.is_empty() {
        bytes.push(u8::from_str_radix(rest.strip_prefix("\\x")?.get(..2)?, 16).ok()?);
        rest = &rest[4..];
    }
    Some(OsString::from_vec(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_plain_line() {
        let line = r#"77 newfstatat(4<\x2f\x61>, "\x62", {st_mode=S_IFREG|0644, st_size=3, ...}, 0)   = 0"#;
        let call = Parser::default().line(line).unwrap();
        assert_eq!((call.name.as_str(), call.args.len()), ("newfstatat", 4));
        assert_eq!(descriptor(&call.args[0]), Some((Some(4), "/a".into())));
        assert_eq!(string(&call.args[1]).as_deref(), Some(Path::new("b")));
        assert_eq!(number(&call.result), Some(0));
    }

    #[test]
    fn interleaved_processes() {
        let mut parser = Parser::default();
        assert_eq!(parser.line(r"7 read(3<\x2f\x61>, <unfinished ...>"), None);
        assert_eq!(parser.line(r"8 close(3<\x2f\x62>) = 0").unwrap().process, 8);
        let call = parser.line(r#"7 <... read resumed>""..., 4096) = 12"#).unwrap();
        assert_eq!((call.args.len(), number(&call.result)), (3, Some(12)));
    }

    #[test]
    fn results_and_noise() {
        assert_eq!(number("-1 ENOENT (No such file or directory)"), None);
        assert_eq!(number(r"3<\x2f\x61>"), Some(3));
        assert_eq!(number("0x7f00"), Some(0x7f00));
        assert_eq!(number("[4096] => [8192]"), Some(4096));
        assert_eq!(Parser::default().line("7 +++ exited with 0 +++"), None);
        assert_eq!(Parser::default().line(""), None);
        assert_eq!(string(r#""\x2"#), None);
        assert_eq!(string(r#""\x2f\x6"..."#), None);
        assert_eq!(descriptor(r"AT_FDCWD<\x2f>"), Some((None, "/".into())));
    }
}
