//! Tokens and comments of Rust and C source text.

/// Kind of a comment line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `//` or `/* */`.
    Plain,
    /// `///`.
    Outer,
    /// `//!`.
    Inner,
}

/// A line of a comment.
#[derive(Debug)]
pub struct CommentLine {
    pub kind: Kind,
    /// Line number in the file, from 1.
    pub line: usize,
    /// The text without its markers.
    pub text: String,
    /// True if no code precedes the comment on its line.
    pub own_line: bool,
    /// Number of the `/* */` comment that this line is part of; 0 for a `//` comment.
    delimited: usize,
}

/// A token of code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Token<'a> {
    /// An identifier, keyword or number.
    Word(&'a str),
    /// A string or character literal, without its quotes.
    Literal(&'a str),
    /// Any other character.
    Punct(char),
}

/// Code and comments of one file.
pub struct Lexed<'a> {
    /// Tokens with their line numbers.
    pub tokens: Vec<(Token<'a>, usize)>,
    pub comments: Vec<CommentLine>,
}

/// A comment: neighbouring comment lines of one kind.
pub struct Block<'a> {
    pub kind: Kind,
    pub lines: &'a [CommentLine],
}

impl Block<'_> {
    pub fn line(&self) -> usize {
        self.lines[0].line
    }

    /// The lines as one text.
    pub fn text(&self) -> String {
        let lines: Vec<_> = self.lines.iter().map(|line| line.text.trim()).collect();
        lines.join(" ").trim().to_owned()
    }
}

impl Lexed<'_> {
    pub fn blocks(&self) -> Vec<Block<'_>> {
        let mut blocks = Vec::new();
        let mut start = 0;
        for at in 1..=self.comments.len() {
            let joined = at < self.comments.len() && {
                let (last, next) = (&self.comments[at - 1], &self.comments[at]);
                let neighbours = last.own_line && next.own_line && last.line + 1 == next.line;
                last.delimited == next.delimited
                    && (next.delimited > 0 || neighbours && last.kind == next.kind)
            };
            if !joined {
                let lines = &self.comments[start..at];
                blocks.push(Block { kind: lines[0].kind, lines });
                start = at;
            }
        }
        blocks
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: usize,
    /// True if a token precedes on the current line.
    code_on_line: bool,
    /// `/* */` comments so far.
    delimited: usize,
    lexed: Lexed<'a>,
}

/// Splits `text`, which is Rust if `rust` and else C.
pub fn lex(text: &str, rust: bool) -> Lexed<'_> {
    let lexed = Lexed { tokens: Vec::new(), comments: Vec::new() };
    let mut lexer = Lexer { text, at: 0, line: 1, code_on_line: false, delimited: 0, lexed };
    while lexer.step(rust) {}
    lexer.lexed
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Moves by `bytes` and counts the lines in them.
    fn advance(&mut self, bytes: usize) -> &'a str {
        let passed = &self.text[self.at..self.at + bytes];
        self.line += passed.matches('\n').count();
        self.at += bytes;
        passed
    }

    fn push(&mut self, token: Token<'a>, line: usize) {
        self.code_on_line = true;
        self.lexed.tokens.push((token, line));
    }

    fn step(&mut self, rust: bool) -> bool {
        let (rest, line) = (self.rest(), self.line);
        let Some(first) = rest.chars().next() else { return false };
        if first == '\n' {
            self.code_on_line = false;
            self.advance(1);
        } else if first.is_whitespace() {
            self.advance(first.len_utf8());
        } else if rest.starts_with("//") {
            let text = self.advance(rest.find('\n').unwrap_or(rest.len()));
            let (kind, marker) = match text {
                _ if text.starts_with("////") => (Kind::Plain, 4),
                _ if rust && text.starts_with("///") => (Kind::Outer, 3),
                _ if rust && text.starts_with("//!") => (Kind::Inner, 3),
                _ => (Kind::Plain, 2),
            };
            self.comment(kind, line, &text[marker..], 0);
        } else if rest.starts_with("/*") {
            let end = rest.find("*/").map_or(rest.len(), |at| at + 2);
            let text = self.advance(end).trim_start_matches('/').trim_end_matches("*/");
            self.delimited += 1;
            for (n, part) in text.split('\n').enumerate() {
                let part = part.trim_start().trim_start_matches('*');
                self.comment(Kind::Plain, line + n, part, self.delimited);
                self.code_on_line = false;
            }
        } else if first.is_alphanumeric() || first == '_' {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            if rust && matches!(&rest[..end], "r" | "br" | "cr") && self.raw_string(end) {
                return true;
            }
            let word = self.advance(end);
            self.push(Token::Word(word), line);
        } else if first == '"' || first == '\'' && (!rust || is_character(rest)) {
            let end = literal_end(rest, first);
            let literal = self.advance(end);
            let inner = literal.get(1..end - 1).unwrap_or_default();
            self.push(Token::Literal(inner), line);
        } else {
            self.advance(first.len_utf8());
            self.push(Token::Punct(first), line);
        }
        true
    }

    fn comment(&mut self, kind: Kind, line: usize, text: &str, delimited: usize) {
        let own_line = !self.code_on_line;
        let text = text.trim().to_owned();
        self.lexed.comments.push(CommentLine { kind, line, text, own_line, delimited });
    }

    /// Takes a raw string whose prefix has `prefix` bytes; false if there is none.
    fn raw_string(&mut self, prefix: usize) -> bool {
        let (rest, line) = (self.rest(), self.line);
        let hashes = rest[prefix..].chars().take_while(|c| *c == '#').count();
        let start = prefix + hashes + 1;
        if !rest[prefix + hashes..].starts_with('"') {
            return false;
        }
        let close = format!("\"{}", "#".repeat(hashes));
        let length = rest[start..].find(&close).unwrap_or(rest.len() - start);
        let end = (start + length + close.len()).min(rest.len());
        self.advance(end);
        self.push(Token::Literal(&rest[start..start + length]), line);
        true
    }
}

/// True if the quote at the front of `rest` begins a character, not a lifetime.
fn is_character(rest: &str) -> bool {
    let mut chars = rest.chars().skip(1);
    match (chars.next(), chars.next()) {
        (Some('\\'), _) => true,
        (_, second) => second == Some('\''),
    }
}

/// Length of the literal at the front of `rest`, with both quotes.
fn literal_end(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if !escaped && c == quote {
            return at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    rest.len()
}

#[test]
fn comments_in_strings_are_not_comments() {
    let text = "let a = \"// b\"; // c\nlet d = r#\"/* \" */\"#; /* e\n f */\n'\\'' 'x x' 'g: {";
    let lexed = lex(text, true);
    let comments: Vec<_> = lexed.comments.iter().map(|c| (c.line, c.text.as_str())).collect();
    assert_eq!(comments, [(1, "c"), (2, "e"), (3, "f")]);
    assert!(lexed.tokens.contains(&(Token::Literal("/* \" */"), 2)));
    assert!(lexed.tokens.contains(&(Token::Literal("\\'"), 4)));
    assert!(lexed.tokens.ends_with(&[
        (Token::Word("g"), 4),
        (Token::Punct(':'), 4),
        (Token::Punct('{'), 4)
    ]));
}

#[test]
fn neighbouring_lines_of_one_kind_are_one_comment() {
    let lexed = lex("//! a\n/// b\n/// c\n\n/// d\nx(); // e\n// f\n/* g\n * h */\n", true);
    let blocks: Vec<_> = lexed.blocks().iter().map(|b| (b.line(), b.text())).collect();
    let expected = [(1, "a"), (2, "b c"), (5, "d"), (6, "e"), (7, "f"), (8, "g h")];
    assert_eq!(blocks, expected.map(|(line, text)| (line, text.to_owned())));
}
