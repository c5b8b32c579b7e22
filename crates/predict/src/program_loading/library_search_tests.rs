//! The order in which directories are searched.

use super::*;

fn texts(paths: &[Vec<u8>]) -> Vec<&str> {
    paths.iter().map(|path| std::str::from_utf8(path).expect("test paths are text")).collect()
}

fn needs(rpath: Option<&str>, runpath: Option<&str>) -> Needs {
    let list = |text: Option<&str>| text.map(|text| text.as_bytes().to_vec());
    Needs { names: vec![b"libx.so".to_vec()], rpath: list(rpath), runpath: list(runpath) }
}

fn origin(inherited: &[&str]) -> Origin {
    let inherited = inherited.iter().map(|path| path.as_bytes().to_vec()).collect::<Vec<_>>();
    Origin { directory: b"/opt/bin".to_vec(), inherited: inherited.into(), musl: None }
}

/// Returns the paths tried for `libx.so` before the default directories, and the inherited ones.
fn search(needs: &Needs, origin: &Origin) -> (Vec<String>, Vec<String>) {
    let search = Search::new(b"/env:relative:/env2", b"/bin");
    let (libraries, next) = search.libraries(needs, origin, &LdCache::default(), b"");
    let places = texts(&libraries[0].1).iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
    let last = if origin.musl.is_some() { 3 } else { loader_arch::DIRECTORIES.len() };
    let own = places[..places.len() - last].to_vec();
    (own, texts(&next.inherited).iter().map(|path| (*path).to_owned()).collect())
}

#[test]
fn an_rpath_goes_before_the_environment_and_is_handed_on() {
    let (places, next) = search(&needs(Some("/a:$ORIGIN/../lib"), None), &origin(&["/up"]));
    let expect = ["/a", "/opt/bin/../lib", "/up", "/env", "/env2"];
    assert_eq!(places, expect.map(|directory| format!("{directory}/libx.so")));
    assert_eq!(next, ["/a", "/opt/bin/../lib", "/up"]);
}

#[test]
fn a_runpath_goes_behind_the_environment_and_is_not_handed_on() {
    let (places, next) = search(&needs(Some("/ignored"), Some("${ORIGIN}")), &origin(&["/up"]));
    assert_eq!(places, ["/env/libx.so", "/env2/libx.so", "/opt/bin/libx.so"]);
    assert_eq!(next, ["/up"]);
}

#[test]
fn musl_makes_no_difference_between_the_two() {
    let musl = Origin { musl: Some(b"/"[..].into()), ..origin(&["/up"]) };
    let expect = ["/env/libx.so", "/env2/libx.so", "/a/libx.so", "/up/libx.so"];
    assert_eq!(search(&needs(Some("/a"), None), &musl).0, expect);
    assert_eq!(search(&needs(None, Some("/a")), &musl).0, expect);
    let search = Search::default();
    let mut needs = needs(None, None);
    needs.names.extend([b"libc.musl-x86_64.so.1".to_vec(), b"libpthread.so".to_vec()]);
    let (libraries, _) = search.libraries(&needs, &musl, &LdCache::default(), b"/m1\n/m2:/m3");
    assert_eq!(libraries.len(), 1, "musl's linker is its C library");
    assert_eq!(
        texts(&libraries[0].1),
        ["/up/libx.so", "/m1/libx.so", "/m2/libx.so", "/m3/libx.so"]
    );
}

#[test]
fn the_roots_of_musl_are_told_from_other_linkers() {
    assert_eq!(musl_root(b"/lib/ld-musl-x86_64.so.1"), Some(&b"/"[..]));
    assert_eq!(musl_root(b"/opt/m/lib/ld-musl-x86_64.so.1"), Some(&b"/opt/m/"[..]));
    assert_eq!(musl_root(b"/lib64/ld-linux-x86-64.so.2"), None);
    assert_eq!(musl_root(b"ld-musl-x86_64.so.1"), None);
}

#[test]
fn what_tokens_stand_for() {
    let all = |list: &str| expand(list.as_bytes(), b"/o");
    assert_eq!(texts(&all("$ORIGIN:${ORIGIN}/x:$ORIGINAL")), ["/o", "/o/x", "/oAL"]);
    assert_eq!(texts(&all("/p/$LIB")), ["/p/lib/x86_64-linux-gnu", "/p/lib64"]);
    assert_eq!(texts(&all("/$PLATFORM")), ["/haswell", "/x86_64"]);
    assert!(all("relative:$LIB::").is_empty());
}

#[test]
fn absurd_lists_are_cut() {
    let long = "$LIB/$ORIGIN/$PLATFORM/".repeat(2000);
    assert!(expand(long.as_bytes(), &[b'x'; 4000]).is_empty());
    let many = "/a:".repeat(100_000);
    let (places, next) = search(&needs(Some(&many), None), &origin(&[]));
    assert!(places.len() <= CANDIDATES_MAX && next.len() <= DIRECTORIES_MAX);
}

#[test]
fn a_name_with_a_slash_is_a_path() {
    let search = Search::new(b"", b"/bin:/usr/bin");
    let names = vec![b"/opt/liby.so".to_vec(), b"./liby.so".to_vec()];
    let needs = Needs { names, ..Needs::default() };
    let (libraries, _) = search.libraries(&needs, &origin(&[]), &LdCache::default(), b"");
    assert_eq!(texts(&libraries[0].1), ["/opt/liby.so"]);
    assert!(libraries[1].1.is_empty());
    assert_eq!(texts(&search.programs(b"sh")), ["/bin/sh", "/usr/bin/sh"]);
}
