//! Output of `runahead try`: names and contents, for people and for programs.

use runahead_tests::End;

use crate::try_directory::Place;

#[test]
fn diff_prints_no_binary_contents() {
    let place = Place::filled("binary");
    place.shell(r"printf 'x\377\n' > latin; printf 'x\033[2Jy\n' > a");
    let diff = place.tried(&["diff"]).stdout;
    let text = String::from_utf8(diff).expect("text");
    assert!(!text.contains('\x1b'), "{text:?}");
    assert!(text.contains("latin: nothing -> binary file of 3 bytes\n"), "{text}");
    assert!(text.contains("/a: text -> binary file of 7 bytes\n"), "{text}");
    place.tried(&["undo"]);
}

#[test]
fn names_of_any_bytes_are_printed() {
    let place = Place::filled("any-bytes");
    place.shell(r#"echo 1 > "$(printf 'q\377')"; echo 2 > "$(printf 'n\nA b')""#);
    for words in [["status", "--json"], ["diff", "--json"]] {
        let outcome = place.tried(&words);
        assert_eq!(outcome.end, End::Exit(0), "{outcome:?}");
        let json: serde_json::Value = serde_json::from_slice(&outcome.stdout).expect("JSON");
        let changes = &json[if words[0] == "status" { "changes" } else { "files" }];
        assert!(changes[0]["path"].as_str().expect("a path").ends_with("/n\nA b"), "{json}");
        assert!(changes[0].get("path_bytes").is_none(), "only where it is needed: {json}");
        let bytes = changes[1]["path_bytes"].as_array().expect("bytes");
        assert_eq!(bytes.last(), Some(&255.into()), "{json}");
    }
    let status = place.tried(&["status"]).text();
    assert!(status.contains(r#"/n\nA b""#) && status.contains(r#"/q\377""#), "{status}");
    assert_eq!(status.lines().count(), 3, "{status}");
    place.tried(&["undo"]);
}

#[test]
fn changes_of_the_check_are_counted() {
    let place = Place::filled("check-writes");
    let words = ["--commit-if", "touch by-check", "--", "touch", "by-command"];
    let outcome = place.tried(&words);
    assert!(outcome.complaints().contains("committed: 2 added"), "{outcome:?}");
}
