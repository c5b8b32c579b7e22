//! Processes that end before their shadows are made, and such without standard descriptors.

use runahead_tests::{End, available, fixture, number, runahead, scratch, with_stats};

/// A shadow that is being made when its program ends is no longer needed.
#[test]
fn a_process_that_ends_before_its_shadow_is_no_loss() {
    let Some(fixture) = available(fixture()) else { return };
    let script = "for k in 0 1 2; do for i in 0 1 2 3 4 5 6 7 8 9; do for j in 0 1 2; do \
                  cat many/$j$i many/$k$i > /dev/null & done; done; wait; done";
    for _ in 0..3 {
        let run = fixture.run(&["sh", "-c", script]);
        let (outcome, stats) = with_stats(&run, &[], |run| fixture.cold(run));
        assert_eq!(outcome.end, End::Exit(0), "{outcome:?}");
        let lost = stats["lost"].to_string();
        assert!(!lost.contains("could not be confined"), "{lost}");
        assert!(!lost.contains("no thread was left"), "{lost}");
    }
}

/// Our descriptors take the free numbers 0 to 2, and leave them with the program.
#[test]
fn a_process_without_standard_descriptors_has_shadows() {
    let Some(fixture) = available(fixture()) else { return };
    let file = scratch().join("closed.json");
    for closed in ["<&-", "<&- 2>&-", "<&- >&- 2>&-"] {
        let ahead = format!(
            "exec {} run --no-learn --require --stats=json:{} -- cp many/00 many/01 many/02 many/03 many/04 $W {closed}",
            runahead().display(),
            file.display()
        );
        let outcome = fixture.cold(&fixture.run(&["sh", "-c", &ahead]));
        assert_eq!(outcome.end, End::Exit(0), "{closed}: {outcome:?}");
        let text = std::fs::read(&file).expect("statistics were written");
        let stats: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        assert!(number(&stats, "syncs/count") > 0, "{closed}: {stats:#}");
        assert_eq!(stats["lost"], serde_json::json!({}), "{closed}: {stats:#}");
    }
}
