//! Rules of this repository that no compiler checks.
//!
//! `cargo test -p runahead-tests --test repo` fails with each fault's file and line. A rule that is
//! not kept everywhere yet has a number in `ratchet.txt`, which may fall and never rises.
//! `RUNAHEAD_RATCHET=write` lowers it; `RUNAHEAD_RATCHET=list` prints all faults (`--nocapture`).
//!
//! | module | rules |
//! |---|---|
//! | `prose` | comments, names of tests, length of sentences in documents |
//! | `file_names` | names of source files: two words, or a word of `words.txt` |
//! | `arrows` | dependencies of crates, of parts of a crate, and of its files |
//! | `module_tables` | tables of modules and crates |
//! | `markdown` | width of lines, links, paths |
//! | `source_files` | length and heads of files; no mention of a workplace |
//! | `ratchet` | numbers that may only fall |
//! | `lexer`, `module_graph`, `tracked_files` | tokens, uses of modules, files |

mod arrows;
mod file_names;
mod lexer;
mod markdown;
mod module_graph;
mod module_tables;
mod prose;
mod ratchet;
mod source_files;
mod tracked_files;
