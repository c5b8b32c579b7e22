//! Selection of a try: by its name, or by the working directory.

use std::path::Path;

use crate::printed_name::printed_name;
use crate::store::{Store, Try};
use crate::{Error, Result};

/// Limit of tries elsewhere that an error lists.
const LISTED_MAX: usize = 10;

impl Store {
    /// Finds a try by its name or a prefix of it, with or without the outer try's name.
    pub fn find(&self, id: &str) -> Result<Try> {
        let mut all = self.list();
        if let Some(exact) = all.iter().find(|tried| tried.meta.id == id) {
            return Ok(exact.clone());
        }
        all.retain(|tried| {
            let own = tried.meta.id.rsplit('.').next().unwrap_or_default();
            tried.meta.id.starts_with(id) || own.starts_with(id)
        });
        match all.len() {
            1 if !id.is_empty() => Ok(all.remove(0)),
            0 => Err(Error::Unknown(id.to_owned())),
            _ => Err(Error::Ambiguous(id.to_owned())),
        }
    }

    /// Finds the newest try, not nested, that was begun in `directory` or in a directory above it.
    pub fn find_in(&self, directory: &Path) -> Result<Try> {
        let mut names = self.names();
        names.sort_unstable();
        let newest_first = names.iter().rev();
        let mut tries = newest_first.filter_map(|name| Try::load(self.directory().join(name)).ok());
        let mut elsewhere = Vec::new();
        let found = tries.find(|tried| {
            let is_here = directory.starts_with(tried.meta.directory_path());
            if !is_here && !tried.meta.unchanged {
                let begun_in = tried.meta.directory_path();
                elsewhere.push(format!("{} (in {})", tried.meta.id, printed_name(&begun_in)));
            }
            is_here
        });
        found.ok_or_else(|| match elsewhere.len() {
            0 => Error::NoTries,
            all => {
                elsewhere.truncate(LISTED_MAX);
                if all > LISTED_MAX {
                    elsewhere.push(format!("and {} more", all - LISTED_MAX));
                }
                Error::NoneHere { directory: directory.to_owned(), elsewhere: elsewhere.join(", ") }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn only_tries_of_the_directory_or_above_are_found() {
        let path = tempfile::tempdir().expect("a directory");
        let store = Store::new(Some(path.path())).expect("given");
        let make = |directory: &[u8]| {
            let directory = Path::new(OsStr::from_bytes(directory));
            store.create(vec!["x".into()], directory).expect("new").0.meta.id
        };
        let found = |directory: &[u8]| {
            store.find_in(Path::new(OsStr::from_bytes(directory))).map(|tried| tried.meta.id)
        };
        let (a, q, ab) = (make(b"/a"), make(b"/q\xff"), make(b"/a/b"));
        assert_eq!(found(b"/a/b/c").expect("below two"), ab);
        assert_eq!(found(b"/a/bc").expect("below one"), a);
        assert_eq!(found(b"/q\xff").expect("not UTF-8"), q);
        let Err(Error::NoneHere { elsewhere, .. }) = found(b"/q\xfe") else { panic!("one") };
        assert_eq!(elsewhere, format!("{ab} (in /a/b), {q} (in \"/q\\377\"), {a} (in /a)"));
        (0..10).for_each(|_| _ = make(b"/c"));
        let Err(Error::NoneHere { elsewhere, .. }) = found(b"/") else { panic!("one") };
        assert!(elsewhere.ends_with(", and 3 more"), "{elsewhere}");
    }
}
