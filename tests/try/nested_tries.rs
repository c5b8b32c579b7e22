//! Tries inside tries: each is committed into the one around it, or undone.

use std::fs;

use runahead_tests::End;

use crate::try_directory::{Place, names};

#[test]
fn undo_of_an_inner_try_leaves_the_outer_one() {
    let place = Place::filled("undone-inside");
    let script = "echo outer > a; echo outer > o; mkdir e; touch -d 2002-02-02 a o e; stat -c '%n %i %s %Y %Z %a %h' a o e d1 d0/b > ../s; \
                  \"$TRY\" try -q -- sh -c 'cat a; rm -r d0 e; echo inner > a; chmod 700 o; mv d1 x; mkfifo p; ls'; \
                  stat -c '%n %i %s %Y %Z %a %h' a o e d1 d0/b | cmp - ../s; rm ../s; cat a; ls; \"$TRY\" try undo; \"$TRY\" try list; ls; cat a";
    let outcome = place.around(script);
    let inner = "outer\na\nd2\nl\no\np\nx\n";
    let outer = ["a", "d0", "d1", "d2", "e", "l", "o"].map(|name| format!("{name}\n")).concat();
    assert_eq!(outcome.text(), format!("{inner}outer\n{outer}{outer}outer\n"), "{outcome:?}");
    place.commit();
    assert_eq!(fs::read_to_string(place.work.join("a")).expect("it is there"), "outer\n");
    assert!(place.work.join("d0/b").exists() && !place.work.join("p").exists());
}

#[test]
fn inner_tries_are_decided_from_outside() {
    let place = Place::filled("decided");
    place.around("echo 1 > a; for n in one two; do \"$TRY\" try -q -- sh -c \"cat a; echo $n > a; echo > $n\"; done");
    let [outer, one, two] = &names(&place)[..] else { panic!("three: {:?}", names(&place)) };
    assert!(one.starts_with(&format!("{outer}.")) && two.starts_with(&format!("{outer}.")));
    let json = place.tried(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(
        (&status["try"]["id"], &status["try"]["inside"]),
        (&outer.as_str().into(), &serde_json::Value::Null)
    );
    let inside: Vec<_> = status["tries"].as_array().into_iter().flatten().collect();
    assert_eq!(
        inside.iter().map(|one| one["id"].as_str()).collect::<Vec<_>>(),
        [Some(one.as_str()), Some(two)]
    );
    assert!(inside.iter().all(|one| one["inside"] == outer.as_str()), "{status}");
    let refused = place.tried(&["commit"]);
    assert_eq!(refused.end, End::Exit(1));
    assert!(refused.complaints().contains(two.as_str()), "{refused:?}");
    let diff = place.tried(&["diff", one]).text();
    assert!(diff.contains("\n-1\n+one\n"), "against what is around it: {diff}");
    assert_eq!(place.tried(&["commit", one]).end, End::Exit(0));
    let conflict = place.tried(&["commit", two]);
    assert_eq!(conflict.end, End::Exit(3), "{conflict:?}");
    assert_eq!(place.tried(&["undo", two]).end, End::Exit(0));
    assert_eq!(
        fs::read_to_string(place.work.join("a")).expect("it is there"),
        "one\n",
        "of the lower tree"
    );
    place.commit();
    assert_eq!(fs::read_to_string(place.work.join("a")).expect("it is there"), "one\n");
    assert!(place.work.join("one").exists() && !place.work.join("two").exists());
}

#[test]
fn three_levels_of_tries_commit_in_order() {
    let place = Place::filled("deep");
    let step = |script: &str, inner: &str| {
        format!("{script}; \"$TRY\" try -q -- sh -c '{inner}' && \"$TRY\" try commit; cat a; ls")
    };
    let third = "echo 3 >> a; rm -r d1; cat a d2/*";
    let second = step("echo 2 >> a; mv d0 x", &third.replace('\'', ""));
    // A here-document, since quotes would nest.
    let first = format!(
        "echo 1 >> a; export TRY; cat > ../second <<'END'\n{second}\nEND\n\
                         \"$TRY\" try -q -- sh ../second && \"$TRY\" try commit; cat a; ls; rm ../second"
    );
    let outcome = place.around(&first);
    assert_eq!(outcome.end, End::Exit(0), "{outcome:?}");
    place.commit();
    assert_eq!(
        fs::read_to_string(place.work.join("a")).expect("it is there"),
        "one\n1\n2\n3\n",
        "{outcome:?}"
    );
    assert!(!place.work.join("d1").exists() && place.work.join("x/b").exists());
}

/// Processes without an agent that know the directory of the outer try's changes.
#[test]
fn the_kernel_protects_the_outer_try() {
    let place = Place::filled("fence");
    let work = place.work.to_str().expect("a plain path");
    let state = place.state.to_str().expect("a plain path");
    let change = format!(
        "for f in {state}/*/held/upper{work}/a; do echo x >> $f; rm $f; chmod 700 $f; touch -d 2002-02-02 $f; done"
    );
    let all = place.around(&format!("echo outer > a; RUNAHEAD=0 sh -c '{change}'; cat a"));
    assert!(!all.text().contains("outer"), "this test can fail: {all:?}");
    assert_eq!(place.tried(&["undo"]).end, End::Exit(0));
    let inner = format!(
        "echo outer > a; touch -d 2001-01-01 a; \"$TRY\" try -q -- env RUNAHEAD=0 sh -c '{change}'; cat a; stat -c '%a %Y' a"
    );
    let outcome = place.around(&inner);
    assert_eq!(outcome.text(), "outer\n644 978307200\n", "{outcome:?}");
    assert_eq!(
        outcome.complaints().matches("denied").count()
            + outcome.complaints().matches("not permitted").count(),
        4,
        "{outcome:?}"
    );
}

/// Two sessions cannot trace one process: there is one.
#[test]
fn a_session_inside_a_try_runs_natively() {
    let place = Place::filled("session");
    let outcome = place.around(
        "echo new > a; \"$TRY\" run -- cat a; \"$TRY\" run -- sh -c 'echo more >> a; cat a'",
    );
    assert_eq!(outcome.text(), "new\nnew\nmore\n", "{outcome:?}");
    assert_eq!(fs::read_to_string(place.work.join("a")).expect("it is there"), "one\n");
}
