//! `--stats`: as text and as JSON, to a file and to a descriptor.

use runahead_tests::{End, Run, runahead, scratch};

use crate::ours;

#[test]
fn statistics_go_to_stderr() {
    let outcome = ours(&["run", "--stats", "--", "echo", "output"]);
    assert_eq!(outcome.text(), "output\n");
    for word in ["elapsed", "stalls", "syncs", "hints", "prefetch"] {
        assert!(outcome.complaints().contains(word), "no {word}: {outcome:?}");
    }
}

#[test]
fn statistics_go_to_a_file_as_json() {
    let file = scratch().join("report.json");
    let option = format!("--stats=json:{}", file.display());
    let outcome = ours(&["run", &option, "--", "sh", "-c", "exit 9"]);
    assert_eq!((outcome.end, outcome.stderr.len()), (End::Exit(9), 0), "{outcome:?}");
    let json = std::fs::read(&file).expect("the report");
    let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    for key in [
        "version",
        "elapsed_seconds",
        "native",
        "stalls_foreseen",
        "stalls_unforeseen",
        "syncs",
        "hints_issued",
        "hints_used",
        "hints_wasted",
        "bytes_prefetched",
        "shadow_cpu_seconds",
    ] {
        assert!(json.get(key).is_some(), "no {key} in {json:#}");
    }
    assert_eq!(json["native"], serde_json::Value::Null);
}

/// The descriptor is the command's; no other process holds it open while the command runs.
#[test]
fn statistics_go_to_a_descriptor() {
    let inside = "echo output; exec true";
    for name in ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        let text = ours(&["run", &format!("--stats={name}"), "--", "sh", "-c", inside]);
        assert_eq!((text.end, text.stderr.len()), (End::Exit(0), 0), "{name}: {text:?}");
        assert!(text.text().starts_with("output\nrunahead: "), "{name}: {text:?}");
        let json = ours(&["run", &format!("--stats=json:{name}"), "--", "sh", "-c", inside]);
        let report =
            json.text().strip_prefix("output\n").map(serde_json::from_str::<serde_json::Value>);
        assert!(matches!(report, Some(Ok(_))), "{name}: {json:?}");
    }
    let program = runahead().display().to_string();
    let script = format!("'{program}' run --stats=json:/dev/fd/7 -- echo output 7>&1 >&2");
    let outcome = Run::new(["sh", "-c", &script]).run();
    assert_eq!(outcome.complaints(), "output\n", "{outcome:?}");
    assert!(serde_json::from_str::<serde_json::Value>(&outcome.text()).is_ok(), "{outcome:?}");
    let outcome = ours(&["run", "--stats=json:/dev/fd/99", "--", "sh", "-c", "exit 9"]);
    assert_eq!(outcome.end, End::Exit(9));
    assert_eq!(outcome.complaints().lines().count(), 1, "{outcome:?}");
}

#[test]
fn statistics_that_cannot_be_written_leave_the_status_alone() {
    let outcome = ours(&["run", "--stats=json:/no/such/directory/x", "--", "sh", "-c", "exit 9"]);
    assert_eq!(outcome.end, End::Exit(9));
    assert_eq!(outcome.complaints().lines().count(), 1, "{outcome:?}");
}
