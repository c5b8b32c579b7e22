//! Rules of prose for comments, names of tests and documents.

use crate::lexer::{Kind, lex};
use crate::ratchet::{self, Rule};
use crate::tracked_files::{Tracked, texts};

/// First words that leave a doc comment without a subject.
const HEADLESS: &[&str] = &[
    "What", "Who", "Whose", "Which", "Where", "Whether", "How", "Of", "By", "With", "That",
    "Those", "As", "The same", "See", "Nobody", "None", "Nothing", "So", "One", "On", "To", "In",
    "For", "All", "Else", "Not",
];

/// Words that stand for an actor without naming it.
const ACTORS: &[&str] =
    &["whoever", "whomever", "somebody", "nobody", "anybody", "everybody", "he", "him", "his"];

/// Whole comments that only refer to another place.
const REFERENCES: &[&str] = &[
    "the same",
    "the same as above",
    "see there",
    "see above",
    "see below",
    "likewise",
    "as above",
];

/// Most columns of a line with a comment.
const COLUMNS: usize = 100;

/// True if `text` starts with `word` as a whole word.
fn starts_with_word(text: &str, word: &str) -> bool {
    let rest = text.strip_prefix(word);
    rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}

pub fn is_headless(text: &str) -> bool {
    HEADLESS.iter().any(|word| starts_with_word(text, word))
}

/// The actors in `text` that are not named.
fn actors(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| ACTORS.iter().any(|actor| word.eq_ignore_ascii_case(actor))).collect()
}

fn is_reference(text: &str) -> bool {
    let whole = text.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    text.contains("See the module's text") || REFERENCES.contains(&whole.as_str())
}

/// True for a comment in parentheses, but not for `(a)` in front of an item.
fn is_parenthesized(text: &str) -> bool {
    text.strip_prefix('(').is_some_and(|rest| rest.find(')').is_none_or(|at| at > 2))
}

/// Faults by rule.
#[derive(Default)]
struct Faults {
    headless: Vec<String>,
    headless_modules: Vec<String>,
    parenthesized: Vec<String>,
    references: Vec<String>,
    wide: Vec<String>,
    actors: Vec<String>,
    actor_names: Vec<String>,
}

impl Faults {
    fn rules(self) -> Vec<Rule> {
        vec![
            Rule::new("prose.headless_docs", self.headless),
            Rule::new("prose.headless_modules", self.headless_modules),
            Rule::new("prose.comments_in_parentheses", self.parenthesized),
            Rule::new("prose.comments_that_refer_elsewhere", self.references),
            Rule::new("prose.comments_over_100_columns", self.wide),
            Rule { aim: 20, ..Rule::new("prose.unnamed_actors", self.actors) },
            Rule::new("prose.unnamed_actors_in_functions", self.actor_names),
        ]
    }

    fn read(&mut self, file: &Tracked) {
        if file.is_rust() || file.is_c() {
            self.read_source(file);
        } else if file.is_markdown() {
            for (n, line) in file.text.lines().enumerate() {
                self.note_actors(&file.path, n + 1, line);
            }
        }
    }

    fn read_source(&mut self, file: &Tracked) {
        let lexed = lex(&file.text, file.is_rust());
        let fault = |line: usize, text: &str| {
            let text: String = text.chars().take(100).collect();
            format!("{}:{line}: {text}", file.path)
        };
        for block in lexed.blocks() {
            let (text, line) = (block.text(), block.line());
            match block.kind {
                Kind::Outer if is_headless(&text) => self.headless.push(fault(line, &text)),
                Kind::Inner if is_headless(&text) => {
                    self.headless_modules.push(fault(line, &text));
                }
                _ => {}
            }
            if is_parenthesized(&text) {
                self.parenthesized.push(fault(line, &text));
            }
            if is_reference(&text) {
                self.references.push(fault(line, &text));
            }
        }
        let lines: Vec<_> = file.text.lines().collect();
        for comment in &lexed.comments {
            self.note_actors(&file.path, comment.line, &comment.text);
            if lines[comment.line - 1].chars().count() > COLUMNS {
                self.wide.push(fault(comment.line, &comment.text));
            }
        }
        for pair in lexed.tokens.windows(2) {
            use crate::lexer::Token::Word;
            if let [(Word("fn"), _), (Word(name), line)] = pair
                && name.split('_').any(|word| ACTORS.contains(&word))
            {
                self.actor_names.push(fault(*line, name));
            }
        }
    }

    fn note_actors(&mut self, path: &str, line: usize, text: &str) {
        for word in actors(text) {
            let text: String = text.trim().chars().take(100).collect();
            self.actors.push(format!("{path}:{line}: {word}: {text}"));
        }
    }
}

#[test]
fn comments_keep_the_rules_of_prose() {
    let mut faults = Faults::default();
    texts().iter().for_each(|file| faults.read(file));
    ratchet::check(&faults.rules());
}

/// Sentences of the paragraphs and items of a document, without code, tables and headings.
fn sentences(text: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    let mut in_code = false;
    for line in text.lines() {
        let line = line.trim();
        in_code ^= line.starts_with("```");
        let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
        let item = ["- ", "* "].iter().find_map(|mark| line.strip_prefix(mark));
        let item = item.or_else(|| number.strip_prefix(". ").filter(|_| number != line));
        if in_code || line.is_empty() || line.starts_with(['|', '#', '`', '<']) && is_markup(line) {
            paragraphs.push(String::new());
        } else if let Some(item) = item {
            paragraphs.push(item.to_owned());
        } else {
            let last = paragraphs.last_mut().expect("one was there from the start");
            last.push(' ');
            last.push_str(line);
        }
    }
    paragraphs.iter().flat_map(|paragraph| split_sentences(&without_links(paragraph))).collect()
}

/// True for a line that starts a table, a heading, a fence or HTML.
fn is_markup(line: &str) -> bool {
    line.starts_with("```") || !line.starts_with('`')
}

/// `text` with `[words](target)` replaced by `words`.
fn without_links(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("](") {
        out.push_str(before);
        out.push(']');
        rest = behind.split_once(')').map_or("", |(_, rest)| rest);
    }
    out + rest
}

fn split_sentences(paragraph: &str) -> Vec<String> {
    let mut sentences = vec![String::new()];
    for word in paragraph.split_whitespace() {
        let last = sentences.last_mut().expect("never empty");
        let ended = last.ends_with(['.', '!', '?', ':', ';']);
        if ended && word.starts_with(|c: char| c.is_uppercase() || "`*(\"".contains(c)) {
            sentences.push(word.to_owned());
        } else {
            last.push(' ');
            last.push_str(word);
        }
    }
    sentences
}

/// The set of documents that a file belongs to.
fn document_set(path: &str) -> Option<String> {
    let folder = path.rsplit_once('/').map_or("top", |(folder, _)| folder);
    path.ends_with(".md").then(|| folder.replace('/', "_"))
}

/// Longest sentences, with their files, and the rules for the median and the 90th percentile.
fn sentence_rules(set: &str, files: &[&Tracked]) -> Vec<Rule> {
    let mut lengths = Vec::new();
    for file in files {
        for sentence in sentences(&file.text) {
            let words = sentence.split_whitespace().count();
            if words > 2 {
                lengths.push((words, format!("{}: {words} words: {}", file.path, sentence.trim())));
            }
        }
    }
    lengths.sort();
    let percentile = |of: usize| lengths.get(lengths.len() * of / 100).map_or(0, |l| l.0);
    let rule = |name: &str, count: usize, aim: usize| {
        let long = lengths.iter().rev().take_while(|l| l.0 > aim).map(|l| l.1.clone());
        Rule { name: format!("sentences.{set}.{name}"), aim, count, faults: long.collect() }
    };
    vec![rule("median", percentile(50), 17), rule("p90", percentile(90), 30)]
}

#[test]
fn sentences_in_documents_are_short() {
    let files = texts();
    let mut sets = std::collections::BTreeMap::<String, Vec<&Tracked>>::new();
    for file in &files {
        if let Some(set) = document_set(&file.path) {
            sets.entry(set).or_default().push(file);
        }
    }
    let rules = sets.iter().flat_map(|(set, files)| sentence_rules(set, files));
    ratchet::check(&rules.collect::<Vec<_>>());
}

#[test]
fn planted_faults_in_comments_are_found() {
    let wide = "x".repeat(100);
    let source = format!(
        "//! What this is.\n\n/// Whether it is so.\nfn by_nobody() {{}}\n// (As an aside.)\n\
         let x = 1; // (a) is an item\n/// See the module's text.\nfn f() {{}}\n// {wide}\n\
         fn g() {{}} // The same.\n/// Onto the point, he said.\n// The help and this.\n"
    );
    let mut faults = Faults::default();
    faults.read(&Tracked::new("a.rs", &source));
    faults.read(&Tracked::new("b.c", "/* (Aside\n * of whoever.) */\nint x; /* likewise */\n"));
    faults.read(&Tracked::new("c.md", "It is\nHis.\n"));
    assert_eq!(faults.headless_modules, ["a.rs:1: What this is."]);
    assert_eq!(faults.headless, ["a.rs:3: Whether it is so.", "a.rs:7: See the module's text."]);
    assert_eq!(faults.actor_names, ["a.rs:4: by_nobody"]);
    assert_eq!(faults.parenthesized, ["a.rs:5: (As an aside.)", "b.c:1: (Aside of whoever.)"]);
    let references = ["a.rs:7: See the module's text.", "a.rs:10: The same.", "b.c:3: likewise"];
    assert_eq!(faults.references, references);
    assert_eq!(faults.wide, [format!("a.rs:9: {wide}")]);
    let actors = [
        "a.rs:11: he: Onto the point, he said.",
        "b.c:2: whoever: of whoever.)",
        "c.md:2: His: His.",
    ];
    assert_eq!(faults.actors, actors);
}

#[test]
fn planted_long_sentences_are_found() {
    let words = |n: usize| vec!["word"; n].join(" ");
    let text = format!(
        "# {0}\n\n| {0} |\n\nOne {1}. Two {2}\nand so on.\n\n- Three {1}\n- Four [{1}]({0})\n\n\
         ```\n{0}\n```\n",
        words(50),
        words(17),
        words(60),
    );
    let lengths: Vec<_> = sentences(&text).iter().map(|s| s.split_whitespace().count()).collect();
    let lengths: Vec<_> = lengths.into_iter().filter(|n| *n > 0).collect();
    assert_eq!(lengths, [18, 64, 18, 18]);
    let file = Tracked::new("docs/a.md", &text);
    let rules = sentence_rules("docs", &[&file]);
    assert_eq!(rules.iter().map(|rule| rule.count).collect::<Vec<_>>(), [18, 64]);
    assert_eq!(rules[1].faults.len(), 1);
    assert_eq!(document_set("docs/design/a.md").as_deref(), Some("docs_design"));
}
