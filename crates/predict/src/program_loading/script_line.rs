//! The first line of a script: `#!`, an absolute path, and one argument (execve(2)).

/// Bytes of the line that the kernel looks at.
const LINE_MAX: usize = 256;

/// Interpreter of a script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Script {
    pub interpreter: Vec<u8>,
    /// A program that the interpreter is going to look for on the `PATH`: `env` does.
    pub looks_for: Option<Vec<u8>>,
}

impl Script {
    /// `head` is the start of a file. `None` if that is no script.
    pub fn parse(head: &[u8]) -> Option<Self> {
        let line = head.get(..head.len().min(LINE_MAX))?.strip_prefix(b"#!")?;
        // A line that does not end within the limit is cut there; it is whole only if something
        // follows the interpreter.
        let cut = line.iter().position(|&b| matches!(b, b'\n' | 0));
        let whole = cut.is_some() || head.len() < LINE_MAX;
        let line = &line[..cut.unwrap_or(line.len())];
        let mut words = line.split(|b| matches!(b, b' ' | b'\t')).filter(|word| !word.is_empty());
        let interpreter = words.next().filter(|path| path.starts_with(b"/"))?.to_vec();
        let mut rest = words.peekable();
        if !whole && rest.peek().is_none() {
            return None;
        }
        let is_env = interpreter.rsplit(|&b| b == b'/').next() == Some(b"env");
        // Options and assignments come first: `env -S VAR=1 name`.
        let name = rest.find(|word| !word.starts_with(b"-") && !word.contains(&b'='));
        let looks_for = name.filter(|name| is_env && !name.contains(&b'/')).map(<[u8]>::to_vec);
        Some(Script { interpreter, looks_for })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(head: &str) -> Option<(String, Option<String>)> {
        let text = |bytes| String::from_utf8(bytes).expect("test scripts are text");
        let script = Script::parse(head.as_bytes())?;
        Some((text(script.interpreter), script.looks_for.map(text)))
    }

    #[test]
    fn the_interpreter_is_found_as_the_kernel_finds_it() {
        let sh = Some(("/bin/sh".to_owned(), None));
        for head in ["#!/bin/sh", "#!/bin/sh\n", "#! \t/bin/sh \t-e x\nrest", "#!/bin/sh\0x"] {
            assert_eq!(parse(head), sh, "{head:?}");
        }
        for head in ["", "#", "#!", "#!\n/bin/sh", "#!   ", "#!bin/sh\n", "/bin/sh"] {
            assert_eq!(parse(head), None, "{head:?}");
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_but_not_in_the_path() {
        let long = format!("#!/{}", "x".repeat(300));
        assert_eq!(parse(&long), None);
        assert!(parse(&format!("#!/bin/sh {long}")).is_some());
    }

    #[test]
    fn env_looks_for_a_program() {
        let env = |name: &str| Some(("/usr/bin/env".to_owned(), Some(name.to_owned())));
        assert_eq!(parse("#!/usr/bin/env python3\n"), env("python3"));
        assert_eq!(parse("#!/usr/bin/env -S A=1 node --x\n"), env("node"));
        assert_eq!(parse("#!/usr/bin/env ./here\n"), Some(("/usr/bin/env".into(), None)));
        assert_eq!(parse("#!/usr/bin/envy python3\n"), Some(("/usr/bin/envy".into(), None)));
    }
}
