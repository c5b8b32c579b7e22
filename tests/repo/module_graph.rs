//! Uses of one file's items by another file of the same crate.
//!
//! Modules are found by their `mod` items. Paths are resolved by name: from `crate`, `super`,
//! `self`, a child module or an import. A path through a re-export leads to the file that defines
//! the item, and `pub use` alone is no use of it. Code of tests is left out.

use std::collections::{BTreeMap, BTreeSet};

use crate::lexer::{Token, lex};

/// A name that `use` brings in.
struct Import {
    /// `None` for a glob.
    name: Option<String>,
    path: Vec<String>,
}

/// A module: a file, or a part of one in braces.
#[derive(Default)]
struct Module {
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    imports: Vec<Import>,
    /// Names of items defined here.
    items: BTreeSet<String>,
    /// Paths used here, with their lines.
    paths: Vec<(Vec<String>, usize)>,
    /// Index into [`Graph::files`].
    file: usize,
    /// True if it holds more than modules and imports.
    has_code: bool,
}

/// A use of an item that another file defines.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Use {
    pub from: String,
    pub to: String,
    pub line: usize,
    pub path: String,
}

/// The modules of one crate.
pub struct Graph<'a> {
    /// Text by path within the crate's folder.
    sources: &'a BTreeMap<String, String>,
    modules: Vec<Module>,
    files: Vec<String>,
    /// Macros with `#[macro_export]`, which have paths from the root, and their modules.
    macros: BTreeMap<String, usize>,
}

const ROOT: usize = 0;
/// Re-exports that a path may lead through.
const DEPTH: usize = 16;

/// Tokens of one file, and where its modules are looked for.
struct Cursor<'t> {
    tokens: Vec<(Token<'t>, usize)>,
    at: usize,
    /// Folder of child modules.
    folder: String,
    /// Folder of the file itself, where `#[path]` starts.
    own_folder: String,
}

impl<'t> Cursor<'t> {
    fn peek(&self, ahead: usize) -> Option<Token<'t>> {
        self.tokens.get(self.at + ahead).map(|(token, _)| *token)
    }

    fn word(&self, ahead: usize) -> Option<&'t str> {
        match self.peek(ahead) {
            Some(Token::Word(word)) => Some(word),
            _ => None,
        }
    }

    fn is(&self, ahead: usize, punct: char) -> bool {
        self.peek(ahead) == Some(Token::Punct(punct))
    }

    fn is_path_separator(&self, ahead: usize) -> bool {
        self.is(ahead, ':') && self.is(ahead + 1, ':')
    }

    fn is_behind_separator(&self) -> bool {
        let before = |n: usize| self.at.checked_sub(n).map(|at| self.tokens[at].0);
        before(1) == Some(Token::Punct(':')) && before(2) == Some(Token::Punct(':'))
            || before(1) == Some(Token::Punct('.')) && before(2) != Some(Token::Punct('.'))
    }

    /// Passes a group in brackets, whose first one is the current token; its tokens.
    fn group(&mut self) -> Vec<Token<'t>> {
        let (mut depth, start) = (0, self.at);
        while let Some(token) = self.peek(0) {
            self.at += 1;
            match token {
                Token::Punct('[' | '(' | '{') => depth += 1,
                Token::Punct(']' | ')' | '}') => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
        self.tokens[start..self.at].iter().map(|(token, _)| *token).collect()
    }

    /// Passes the item, field or statement at the current token.
    fn skip_item(&mut self) {
        while self.is(0, '#') {
            self.at += 1;
            self.group();
        }
        let mut commas = true;
        while let Some(token) = self.peek(0) {
            match token {
                Token::Punct('{') => {
                    self.group();
                    if !self.is(0, ';') && !self.is(0, ',') && !self.is(0, '.') {
                        return;
                    }
                    continue;
                }
                Token::Punct('(' | '[') => {
                    self.group();
                    continue;
                }
                Token::Punct('}') => return,
                Token::Word("fn" | "impl" | "struct" | "enum" | "trait" | "use" | "type") => {
                    commas = false;
                }
                _ => {}
            }
            self.at += 1;
            if token == Token::Punct(';') || token == Token::Punct(',') && commas {
                return;
            }
        }
    }
}

impl<'a> Graph<'a> {
    /// The modules below `root`, a path in `sources`.
    pub fn new(sources: &'a BTreeMap<String, String>, root: &str) -> Self {
        let mut graph =
            Self { sources, modules: Vec::new(), files: Vec::new(), macros: BTreeMap::new() };
        let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
        graph.read_file(root, folder, None);
        graph
    }

    pub fn files(&self) -> &[String] {
        &self.files
    }

    /// Names of a file's child modules, tests left out; `None` if there is no such file.
    pub fn children(&self, file: &str) -> Option<Vec<&str>> {
        let module = self.modules.iter().position(|m| self.files[m.file] == file)?;
        Some(self.modules[module].children.keys().map(String::as_str).collect())
    }

    /// True if `path`, as `queue/share`, is a module below that of `file`.
    pub fn has_descendant(&self, file: &str, path: &str) -> bool {
        let start = self.modules.iter().position(|m| self.files[m.file] == file);
        let mut names = path.split(['/', ':']).filter(|name| !name.is_empty());
        start.is_some_and(|start| {
            let down = |at: usize, name: &str| self.modules[at].children.get(name).copied();
            names.try_fold(start, down).is_some()
        })
    }

    fn read_file(&mut self, path: &str, folder: &str, parent: Option<usize>) -> usize {
        let text: &'a str = self.sources[path].as_str();
        let own_folder = path.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
        self.files.push(path.to_owned());
        let file = self.files.len() - 1;
        let module = self.add(parent, file);
        let folder = folder.to_owned();
        let mut cursor = Cursor { tokens: lex(text, true).tokens, at: 0, folder, own_folder };
        self.read_module(&mut cursor, module);
        module
    }

    fn add(&mut self, parent: Option<usize>, file: usize) -> usize {
        self.modules.push(Module { parent, file, ..Module::default() });
        self.modules.len() - 1
    }

    /// Reads up to the closing brace of the module, or to the end of the file.
    fn read_module(&mut self, cursor: &mut Cursor<'_>, module: usize) {
        let mut depth = 0;
        let mut path_attribute = None;
        let mut exported = false;
        let mut public = false;
        while let Some((token, line)) = cursor.tokens.get(cursor.at).copied() {
            match token {
                Token::Punct('#')
                    if cursor.is(1, '[') || cursor.is(1, '!') && cursor.is(2, '[') =>
                {
                    cursor.at += if cursor.is(1, '[') { 1 } else { 2 };
                    let attribute = cursor.group();
                    match attribute.get(1) {
                        Some(Token::Word("cfg")) if is_test(&attribute) => cursor.skip_item(),
                        Some(Token::Word("test")) => cursor.skip_item(),
                        Some(Token::Word("path")) => path_attribute = attribute.get(3).copied(),
                        Some(Token::Word("macro_export")) => exported = true,
                        _ => {}
                    }
                }
                Token::Word("mod") if cursor.word(1).is_some() && cursor.is(2, ';') => {
                    let name = cursor.word(1).unwrap_or_default().to_owned();
                    cursor.at += 3;
                    let path = match path_attribute.take() {
                        Some(Token::Literal(path)) => Some(join(&cursor.own_folder, path)),
                        _ => [format!("{name}.rs"), format!("{name}/mod.rs")]
                            .iter()
                            .map(|file| join(&cursor.folder, file))
                            .find(|file| self.sources.contains_key(file)),
                    };
                    if let Some(path) = path.filter(|path| self.sources.contains_key(path)) {
                        let folder = join(&cursor.folder, &name);
                        let child = self.read_file(&path, &folder, Some(module));
                        self.modules[module].children.insert(name, child);
                    }
                }
                Token::Word("mod") if cursor.word(1).is_some() && cursor.is(2, '{') => {
                    let name = cursor.word(1).unwrap_or_default().to_owned();
                    cursor.at += 3;
                    let child = self.add(Some(module), self.modules[module].file);
                    self.modules[module].children.insert(name.clone(), child);
                    let folder = join(&cursor.folder, &name);
                    let outer = std::mem::replace(&mut cursor.folder, folder);
                    self.read_module(cursor, child);
                    cursor.folder = outer;
                    self.modules[module].has_code |= self.modules[child].has_code;
                }
                Token::Word("use") => {
                    cursor.at += 1;
                    let paths = self.modules[module].paths.len();
                    self.read_use(cursor, module, &[], line);
                    if std::mem::take(&mut public) {
                        self.modules[module].paths.truncate(paths);
                    }
                }
                Token::Word("pub") => {
                    cursor.at += 1;
                    if cursor.is(0, '(') {
                        cursor.group();
                    }
                    public = cursor.word(0) == Some("use");
                }
                Token::Punct('}') if depth == 0 => {
                    cursor.at += 1;
                    return;
                }
                Token::Punct('{') => {
                    depth += 1;
                    cursor.at += 1;
                }
                Token::Punct('}') => {
                    depth -= 1;
                    cursor.at += 1;
                }
                Token::Punct(';') => cursor.at += 1,
                Token::Word(word) => {
                    self.modules[module].has_code = true;
                    if word == "macro_rules" && cursor.is(1, '!') {
                        let name = cursor.word(2).unwrap_or_default().to_owned();
                        if std::mem::take(&mut exported) {
                            self.macros.insert(name, module);
                        }
                    }
                    self.read_path(cursor, module, word, line, depth);
                }
                _ => cursor.at += 1,
            }
        }
    }

    /// Reads a path in code, or notes the name of an item.
    fn read_path(
        &mut self,
        cursor: &mut Cursor<'_>,
        module: usize,
        word: &str,
        line: usize,
        depth: usize,
    ) {
        let defines = ["fn", "struct", "enum", "trait", "type", "const", "static", "union"];
        if depth == 0 && defines.contains(&word) {
            let named = if cursor.word(1) == Some("mut") { 2 } else { 1 };
            if let Some(name) = cursor.word(named) {
                self.modules[module].items.insert(name.to_owned());
            }
        }
        let starts = !cursor.is_behind_separator();
        let mut path = vec![word.to_owned()];
        cursor.at += 1;
        while cursor.is_path_separator(0) {
            match cursor.word(2) {
                Some(next) => path.push(next.to_owned()),
                None => break,
            }
            cursor.at += 3;
        }
        if starts {
            self.modules[module].paths.push((path, line));
        }
    }

    /// Reads a tree of imports behind `prefix`, up to what ends it.
    fn read_use(&mut self, cursor: &mut Cursor<'_>, module: usize, prefix: &[String], line: usize) {
        let mut path = prefix.to_vec();
        loop {
            if cursor.is_path_separator(0) {
                cursor.at += 2;
            } else if cursor.is(0, '{') {
                cursor.at += 1;
                while !cursor.is(0, '}') && cursor.peek(0).is_some() {
                    self.read_use(cursor, module, &path, line);
                    if cursor.is(0, ',') {
                        cursor.at += 1;
                    }
                }
                cursor.at += 1;
                return;
            } else if cursor.is(0, '*') {
                cursor.at += 1;
                self.modules[module].imports.push(Import { name: None, path });
                return;
            } else if cursor.word(0) == Some("as") {
                let name = cursor.word(1).map(str::to_owned);
                cursor.at += 2;
                self.import(module, name.unwrap_or_default(), path, line);
                return;
            } else if let Some(word) = cursor.word(0) {
                cursor.at += 1;
                if word != "self" || path.is_empty() {
                    path.push(word.to_owned());
                }
                let goes_on = cursor.is_path_separator(0) || cursor.word(0) == Some("as");
                if !goes_on {
                    let name = path.last().cloned().unwrap_or_default();
                    self.import(module, name, path, line);
                    return;
                }
            } else {
                return;
            }
        }
    }

    fn import(&mut self, module: usize, name: String, path: Vec<String>, line: usize) {
        self.modules[module].paths.push((path.clone(), line));
        self.modules[module].imports.push(Import { name: Some(name), path });
    }

    /// The module where `path` leads, used in `module`.
    fn resolve(&self, module: usize, path: &[String], depth: usize) -> Option<usize> {
        if depth == 0 {
            return None;
        }
        let (mut at, mut rest) = (module, path);
        match path.first()?.as_str() {
            "crate" => {
                at = ROOT;
                rest = &path[1..];
                if let [name] = rest
                    && let Some(home) = self.macros.get(name)
                {
                    return Some(*home);
                }
            }
            "self" => rest = &path[1..],
            "super" => {}
            _ => return self.look_up(module, path, depth, true),
        }
        while let [word, more @ ..] = rest
            && word == "super"
        {
            at = self.modules[at].parent?;
            rest = more;
        }
        self.descend(at, rest, depth)
    }

    /// The module whose item `path` names, from `at`.
    fn descend(&self, at: usize, path: &[String], depth: usize) -> Option<usize> {
        let Some(name) = path.first() else { return Some(at) };
        let module = &self.modules[at];
        if !module.items.contains(name) {
            return self.look_up(at, path, depth, false);
        }
        Some(at)
    }

    /// Finds the first name of `path` among children and imports of `at`.
    ///
    /// Only a path that is written in `at` itself (`own`) may name what `at` defines.
    fn look_up(&self, at: usize, path: &[String], depth: usize, own: bool) -> Option<usize> {
        let (name, rest) = path.split_first()?;
        let module = &self.modules[at];
        // A single word in code may be a variable of that name.
        let is_variable = own && rest.is_empty();
        if let Some(child) = module.children.get(name).filter(|_| !is_variable) {
            return self.descend(*child, rest, depth);
        }
        if module.items.contains(name) {
            return Some(at);
        }
        let mut leads_out = false;
        let named = module.imports.iter().filter(|import| import.name.as_ref() == Some(name));
        for import in named {
            leads_out = true;
            // An import of its own name (`use libc;`) leads out of the crate.
            if import.path.first() == Some(name) && import.path.len() == 1 {
                continue;
            }
            let full: Vec<_> = import.path.iter().chain(rest).cloned().collect();
            if let Some(found) = self.resolve(at, &full, depth - 1) {
                return Some(found);
            }
        }
        for import in module.imports.iter().filter(|import| import.name.is_none()) {
            let Some(home) = self.resolve(at, &import.path, depth - 1) else { continue };
            if home != at
                && (self.modules[home].items.contains(name)
                    || self.modules[home].children.contains_key(name)
                    || self.modules[home].imports.iter().any(|i| i.name.as_ref() == Some(name)))
            {
                let full: Vec<_> = [name.clone()].into_iter().chain(rest.to_vec()).collect();
                return self.descend(home, &full, depth - 1);
            }
        }
        (!own && !leads_out).then_some(at)
    }

    /// Every use of one file's items by another; none by a transparent file.
    pub fn uses(&self) -> Vec<Use> {
        let mut uses = BTreeSet::new();
        let mut has_code = vec![false; self.files.len()];
        for module in &self.modules {
            has_code[module.file] |= module.has_code;
        }
        for (n, module) in self.modules.iter().enumerate().filter(|(_, m)| has_code[m.file]) {
            for (path, line) in &module.paths {
                let Some(target) = self.resolve(n, path, DEPTH) else { continue };
                let to = self.modules[target].file;
                if to != module.file {
                    uses.insert(Use {
                        from: self.files[module.file].clone(),
                        to: self.files[to].clone(),
                        line: *line,
                        path: path.join("::"),
                    });
                }
            }
        }
        uses.into_iter().collect()
    }
}

/// True for `cfg(test)` and `cfg(all(test, ...))`.
fn is_test(attribute: &[Token<'_>]) -> bool {
    let words: Vec<_> = attribute
        .iter()
        .filter_map(|token| match token {
            Token::Word(word) => Some(*word),
            _ => None,
        })
        .collect();
    matches!(words.as_slice(), ["cfg", "test"] | ["cfg", "all", "test", ..])
}

fn join(folder: &str, file: &str) -> String {
    if folder.is_empty() { file.to_owned() } else { format!("{folder}/{file}") }
}

/// The circles among files: sets in which each leads to each other.
pub fn circles(uses: &[Use]) -> Vec<BTreeSet<&str>> {
    let mut next = BTreeMap::<&str, BTreeSet<&str>>::new();
    for edge in uses {
        next.entry(&edge.from).or_default().insert(&edge.to);
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        next.keys().map(|from| (*from, reach(&next, from))).collect();
    let mut circles = Vec::new();
    let mut done = BTreeSet::<&str>::new();
    for (from, to) in &reached {
        if to.contains(from) && !done.contains(from) {
            let both = |other: &&str| to.contains(other) && reached[other].contains(from);
            let circle: BTreeSet<&str> = reached.keys().copied().filter(both).collect();
            done.extend(&circle);
            circles.push(circle);
        }
    }
    circles
}

/// Files that `from` leads to.
fn reach<'a>(next: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &str) -> BTreeSet<&'a str> {
    let (mut seen, mut todo) = (BTreeSet::new(), vec![from]);
    while let Some(at) = todo.pop() {
        for to in next.get(at).into_iter().flatten() {
            if seen.insert(*to) {
                todo.push(to);
            }
        }
    }
    seen
}
