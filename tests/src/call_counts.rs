//! Counts of each system call: by strace, and by a policy to which every call is reported.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use runahead_abi::agent_config::CALLS_COUNTED as NUMBERS;

use crate::names_of_calls;

/// Calls whose number differs from run to run: who waits for whom, and is how often woken.
const VARIES: [&str; 8] = [
    "futex",
    "wait4",
    "rt_sigreturn",
    "restart_syscall",
    "sched_yield",
    "clock_nanosleep",
    "poll",
    "ppoll",
];

/// Calls that do not return.
const NEVER_RETURN: [&str; 4] = ["exit", "exit_group", "execve", "rt_sigreturn"];

/// Counts of one call by the policy: asked, returned, returned with an error.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Count {
    /// Asked.
    pub made: u64,
    /// Returned.
    pub returned: u64,
    /// Returned with an error.
    pub failed: u64,
}

/// Everything that the policy counted: calls by name, losses of sight, threads that came and went,
/// and signals whose handler was started. Its text is one line for each.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct PolicyCounts {
    /// Counts by name of the call.
    pub calls: BTreeMap<String, Count>,
    /// Times that sight was lost.
    pub lost: u64,
    /// Threads that came, and that went.
    pub threads: [u64; 2],
    /// Signals for which a handler was started.
    pub signals: u64,
}

impl PolicyCounts {
    /// The tables as they lie in memory (`agent/src/fault_injection/call_counting.rs`).
    ///
    /// # Panics
    /// They are of another size.
    #[must_use]
    pub fn of_memory(bytes: &[u8]) -> Self {
        let words: Vec<u64> =
            bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let &[lost, began, ended, signals] = &words[3 * NUMBERS..] else {
            panic!("three tables and four words")
        };
        let of = |n| Count {
            made: words[n],
            returned: words[NUMBERS + n],
            failed: words[2 * NUMBERS + n],
        };
        let names = names_of_calls();
        let name = |n| names.get(&(n as i64)).cloned().unwrap_or_else(|| format!("call{n}"));
        let calls = (0..NUMBERS).map(|n| (name(n), of(n)));
        let calls = calls.filter(|(_, count)| *count != Count::default()).collect();
        PolicyCounts { calls, lost, threads: [began, ended], signals }
    }

    /// Reads the text of [`fmt::Display`].
    ///
    /// # Panics
    /// It is something else.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let mut logged = PolicyCounts::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| words[at].parse().expect("a number");
            match words[..] {
                ["lost", _] => logged.lost = number(1),
                ["threads", _, _] => logged.threads = [number(1), number(2)],
                ["signals", _] => logged.signals = number(1),
                [name, _, _, _] => {
                    let count = Count { made: number(1), returned: number(2), failed: number(3) };
                    logged.calls.insert(name.to_owned(), count);
                }
                _ => panic!("not a count: {line}"),
            }
        }
        logged
    }

    /// Counts by strace: calls made, and failed. The policy is asked again for a call in front of
    /// which a signal came, so that only returned calls are compared.
    #[must_use]
    pub fn of(&self, name: &str) -> [u64; 2] {
        let count = self.calls.get(name).copied().unwrap_or_default();
        [if NEVER_RETURN.contains(&name) { count.made } else { count.returned }, count.failed]
    }

    /// Calls that were made and have not returned.
    #[must_use]
    pub fn unreturned(&self) -> Vec<String> {
        let returns = |(name, _): &(&String, &Count)| !NEVER_RETURN.contains(&name.as_str());
        let open = self.calls.iter().filter(returns).filter(|(_, of)| of.made != of.returned);
        let text = |(name, of): (&String, &Count)| {
            format!("{name}: {} made, {} returned", of.made, of.returned)
        };
        open.map(text).collect()
    }

    /// Calls that were made, in all.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.calls.values().map(|count| count.made).sum()
    }
}

impl fmt::Display for PolicyCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, Count { made, returned, failed }) in &self.calls {
            writeln!(f, "{name} {made} {returned} {failed}")?;
        }
        let [began, ended] = self.threads;
        writeln!(f, "lost {}\nthreads {began} {ended}\nsignals {}", self.lost, self.signals)
    }
}

/// Calls and errors by name, as strace counts them.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct StraceCounts(BTreeMap<String, [u64; 2]>);

impl StraceCounts {
    /// Command in front of another, and of a file: strace writes its summary there.
    pub const COMMAND: [&str; 7] = ["strace", "-f", "-c", "-q", "-U", "calls,errors,name", "-o"];

    /// The summary.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let row = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| words.get(at)?.parse::<u64>().ok();
            match words[..] {
                [_, name] if name != "total" => Some((name.to_owned(), [number(0)?, 0])),
                [_, _, name] if name != "total" => {
                    Some((name.to_owned(), [number(0)?, number(1)?]))
                }
                _ => None,
            }
        };
        StraceCounts(text.lines().filter_map(row).collect())
    }

    /// Counts of calls made, and failed, from the first exec on, when the agent is in the program.
    #[must_use]
    pub fn of(&self, name: &str) -> [u64; 2] {
        let [calls, errors] = self.0.get(name).copied().unwrap_or_default();
        [calls.saturating_sub(u64::from(name == "execve")), errors]
    }
}

/// Calls of which strace counts each, and whose number does not hang on who waits for whom.
fn counted<'a>(traced: &'a [StraceCounts], logged: &'a [PolicyCounts]) -> BTreeSet<&'a str> {
    let traced = traced.iter().flat_map(|traced| traced.0.keys());
    let names = traced.chain(logged.iter().flat_map(|logged| logged.calls.keys()));
    // What ends a thread strace does not count.
    let is_counted = |name: &&str| !name.starts_with("exit") && !VARIES.contains(name);
    names.map(String::as_str).filter(is_counted).collect()
}

/// Differences of the two counts.
#[must_use]
pub fn differences(traced: &StraceCounts, logged: &PolicyCounts) -> Vec<String> {
    let (all, both) = (std::slice::from_ref(traced), std::slice::from_ref(logged));
    let differ = |name: &&str| traced.of(name) != logged.of(name);
    let text = |name: &str| {
        let ([made, failed], [calls, errors]) = (logged.of(name), traced.of(name));
        format!("{name}: {made} made, {failed} failed; {calls} and {errors} traced")
    };
    counted(all, both).into_iter().filter(differ).map(text).collect()
}

/// Programs that read their own mappings (`/proc/self/maps`, as libsigsegv in `grep`) try again
/// with more memory if there are too many, and our mappings are among them: one call more. Fewer
/// calls are a loss all the same.
const READS_MAPS_AGAIN: [&str; 2] = ["lseek", "munmap"];

/// Differences of the run under the policy from every traced run, for programs whose runs vary.
/// The speed of one process decides whether it looks at a file again, and which reader of a pipe
/// gets what.
#[must_use]
pub fn discrepancies(traced: &[StraceCounts], logged: &[PolicyCounts]) -> Vec<String> {
    let mut wrong = Vec::new();
    for name in counted(traced, logged) {
        for (at, what) in ["calls", "errors"].into_iter().enumerate() {
            let seen: Vec<u64> = traced.iter().map(|traced| traced.of(name)[at]).collect();
            let (least, most) = (seen.iter().min().copied(), seen.iter().max().copied());
            let (Some(least), Some(most)) = (least, most) else { continue };
            let part = if ["read", "write"].contains(&name) { 2 } else { 25 };
            let room = (2 * (most - least)).max(most / part).max(8);
            let more = if READS_MAPS_AGAIN.contains(&name) { most } else { room };
            let near = least.saturating_sub(room)..=most + more;
            let told: Vec<u64> = logged.iter().map(|logged| logged.of(name)[at]).collect();
            if !told.iter().any(|told| near.contains(told)) {
                wrong.push(format!("{name}: {what} {told:?}, traced {seen:?}"));
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(read: [u64; 3], close: [u64; 3]) -> PolicyCounts {
        let count = |[made, returned, failed]: [u64; 3]| Count { made, returned, failed };
        let calls = [("read", read), ("close", close)].map(|(n, of)| (n.to_owned(), count(of)));
        PolicyCounts { calls: calls.into(), ..PolicyCounts::default() }
    }

    const SUMMARY: &str = "    calls    errors syscall\n--------- --------- -------\n        5         1 read\n        2           \
                           close\n--------- --------- -------\n        7         1 total\n";

    /// Plants one call more than traced, and one error less.
    #[test]
    fn a_count_that_is_wrong_is_found() {
        let plain = StraceCounts::read(SUMMARY);
        let of = |read, close| differences(&plain, &logged(read, close)).len();
        assert_eq!(of([5, 5, 1], [2, 2, 0]), 0);
        // One call more; one that did not return; an error that was none; calls that were not
        // counted.
        assert_eq!(of([6, 6, 1], [2, 2, 0]), 1);
        assert_eq!(of([5, 4, 1], [2, 2, 0]), 1);
        assert_eq!(of([5, 5, 0], [2, 2, 0]), 1);
        assert_eq!(of([5, 5, 1], [0, 0, 0]), 1);
        // One that was asked of twice is one.
        assert_eq!(of([6, 5, 1], [2, 2, 0]), 0);
        assert!(!logged([5, 4, 1], [2, 2, 0]).unreturned().is_empty());
    }

    #[test]
    fn of_many_runs_what_is_always_far_off_is_found() {
        let traced: Vec<StraceCounts> =
            [100, 104].map(|n| StraceCounts::read(&format!("{n} close\n"))).into();
        let of = |n| logged([0; 3], [n, n, 0]);
        assert!(discrepancies(&traced, &[of(100), of(50)]).is_empty(), "one run is enough");
        assert!(discrepancies(&traced, &[of(110)]).is_empty());
        assert_eq!(discrepancies(&traced, &[of(80), of(85)]).len(), 1);
        assert_eq!(discrepancies(&traced, &[of(130)]).len(), 1);
        let errors = PolicyCounts::read("close 100 100 20\nlost 0\n");
        assert_eq!(discrepancies(&traced, &[errors]).len(), 1);
    }

    #[test]
    fn text_is_read_back() {
        let mut one = logged([5, 4, 1], [2, 2, 0]);
        (one.lost, one.threads, one.signals) = (3, [4, 5], 6);
        assert_eq!(PolicyCounts::read(&one.to_string()), one);
    }
}
