//! Real programs at their own work: browsers, in their sandboxes and without, and servers as their
//! own users. The same from a cold disk with and without runahead, to the last pixel.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use runahead_tests::{
    End, Fixture, Outcome, Run, available, fixture, installed, number, root, runahead, scratch,
};
use serde_json::Value;

/// Words that execute a browser as a user without rights, as sandboxes expect.
const AS_USER: [&str; 5] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"];
const IMAGES: u32 = 40;

/// A page of many parts; as images serve those of a pattern, which differ.
fn write_page(dir: &Path) {
    let page = dir.join("page");
    if page.exists() {
        return;
    }
    fs::create_dir(&page).expect("the disk is ours");
    let write =
        |name: &str, bytes: &[u8]| fs::write(page.join(name), bytes).expect("there is room");
    let mut html = String::from("<!doctype html><meta charset=utf-8><p id=t>A page.</p>");
    for n in 0..IMAGES {
        let circles: String = (0..60)
            .map(|m| format!("<circle cx='{}' cy='{}' r='{}'/>", m * n % 64, m * 7 % 64, n % 5 + 1))
            .collect();
        let start = "<svg xmlns='http://www.w3.org/2000/svg' width='64' height='64'>";
        write(&format!("{n}.svg"), format!("{start}{circles}</svg>").as_bytes());
        html += &format!("<img class=c{} src={n}.svg>", n % 5);
    }
    for n in 0..5 {
        write(
            &format!("{n}.css"),
            format!(".c{n} {{ border: {}px solid #{n}8c }}", n + 1).as_bytes(),
        );
        write(&format!("{n}.js"), format!("document.all.t.textContent += ' {n}'").as_bytes());
        html += &format!("<link rel=stylesheet href={n}.css><script src={n}.js></script>");
    }
    write("index.html", html.as_bytes());
    for part in fs::read_dir(&page).expect("it is there") {
        let mode = fs::Permissions::from_mode(0o644);
        fs::set_permissions(part.expect("it can be listed").path(), mode).expect("it is ours");
    }
}

/// Behind `runahead run` for whatever user, who writes what it did into the work directory.
struct Front {
    options: [String; 3],
    stats: PathBuf,
}

impl Front {
    fn new(fixture: &Fixture) -> Self {
        let program = scratch().join("runahead");
        fs::copy(runahead(), &program).expect("it can be read");
        let stats = fixture.work().join("stats.json");
        let option = format!("--stats=json:{}", stats.display());
        Front { options: [program.display().to_string(), "run".into(), option], stats }
    }

    /// Says what was done; something was.
    fn stats(&self, name: &str) {
        let stats = fs::read(&self.stats).expect("statistics were written");
        let stats: Value = serde_json::from_slice(&stats).expect("they are JSON");
        assert!(number(&stats, "processes_stalled") > 0, "{name}: nothing was done: {stats:#}");
        eprintln!("{name}: {}", told(&stats));
    }
}

/// Runs from cold caches, in a work directory that every user may write.
fn cold(fixture: &Fixture, run: &Run) -> Outcome {
    fixture.reset();
    for (dir, mode) in [(scratch(), 0o755), (fixture.work(), 0o777), (fixture.dir(), 0o755)] {
        fs::set_permissions(dir, fs::Permissions::from_mode(mode)).expect("it is ours");
    }
    run.run()
}

/// Both ways, with what a browser has drawn. (What it says are processes' numbers and times.)
fn draws(name: &str, program: &str, user: &[&str], options: &[&str]) {
    let (Some(()), Some(fixture)) = (available(root()), available(fixture())) else { return };
    let (Some(()), Some(())) = (available(installed(program)), available(installed("setpriv")))
    else {
        return;
    };
    fixture.change(write_page);
    let (work, page) = (fixture.work().display(), fixture.dir().join("page/index.html"));
    let place = |option: &&str| {
        option
            .replace("WORK", &work.to_string())
            .replace("PAGE", &format!("file://{}", page.display()))
    };
    let options: Vec<String> = options.iter().map(place).collect();
    let draw = |front: &[&str]| {
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let argv = [user, front, &[program], &options].concat();
        let outcome = cold(&fixture, &fixture.run(&argv).env("HOME", work.to_string()));
        assert_eq!(outcome.end, End::Exit(0), "{name}, {front:?}: {outcome:?}");
        let drawn = fs::read(fixture.work().join("drawn.png"));
        drawn.unwrap_or_else(|_| panic!("{name}, {front:?}: no picture: {outcome:?}"))
    };
    let plain = draw(&[]);
    let front = Front::new(&fixture);
    let [program, verb, stats] = &front.options;
    let ahead = draw(&[program, verb, stats, "--"]);
    assert!(ahead == plain, "{name}: another picture");
    front.stats(name);
}

/// Renders the statistics in a line.
fn told(stats: &Value) -> String {
    let count = |name| number(stats, name);
    let (programs, stalled) = (count("programs"), count("processes_stalled"));
    let (shadows, hints) = (count("syncs/count"), count("hints_used"));
    format!("{programs} programs, {stalled} stalled; {shadows} shadows, {hints} hints used")
}

const CHROMIUM: [&str; 12] = [
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=800,600",
    "--user-data-dir=WORK/profile",
    "--screenshot=WORK/drawn.png",
    "PAGE",
];

#[test]
fn chromium_in_its_sandbox_draws_the_same() {
    draws("Chromium", "chromium", &AS_USER, &CHROMIUM);
}

#[test]
fn chromium_without_its_sandbox_draws_the_same() {
    let options = [&["--no-sandbox"], &CHROMIUM[..]].concat();
    draws("Chromium, as root", "chromium", &[], &options);
}

#[test]
fn firefox_draws_the_same() {
    let options = ["--headless", "--window-size=800,600", "--screenshot", "WORK/drawn.png", "PAGE"];
    draws("Firefox", "firefox-esr", &AS_USER, &options);
}

/// Both ways: a server that a script starts behind `$FRONT`, asks, and ends.
fn serves(name: &str, script: &str, program: Result<(), String>) {
    let (Some(()), Some(())) = (available(root()), available(program)) else { return };
    let Some(fixture) = available(fixture()) else { return };
    let data = fixture.dir().to_owned();
    let run = |front: &str, argument: &str| {
        let argv = ["sh", "-c", script, name, argument];
        fixture.run(&argv).env("DATA", &data).env("FRONT", front)
    };
    let has_state = script.contains("prepare");
    let copy = |from: &str, to: &str| {
        let copied = Command::new("cp").arg("-a").args([data.join(from), data.join(to)]).status();
        assert!(copied.is_ok_and(|status| status.success()), "{from} to {to}");
    };
    fixture.change(|dir| {
        write_page(dir);
        if has_state {
            let made = cold(&fixture, &run("", "prepare"));
            assert_eq!(made.end, End::Exit(0), "{name} cannot be prepared: {made:?}");
            copy(name, "kept");
        }
    });
    let plain = cold(&fixture, &run("", ""));
    assert_eq!(plain.end, End::Exit(0), "{name}, natively: {plain:?}");
    // Both begin with the same state.
    fixture.change(|dir| {
        if has_state {
            fs::remove_dir_all(dir.join(name)).expect("it is ours");
            fs::rename(dir.join("kept"), dir.join(name)).expect("it is ours");
        }
    });
    let front = Front::new(&fixture);
    let ahead = cold(&fixture, &run(&format!("{} --", front.options.join(" ")), ""));
    assert_eq!(ahead, plain, "{name}");
    front.stats(name);
    if has_state {
        fixture.change(|dir| fs::remove_dir_all(dir.join(name)).expect("it is ours"));
    }
}

#[test]
fn nginx_serves_the_same() {
    serves("nginx", include_str!("programs/nginx.sh"), installed("nginx"));
}

#[test]
fn postgresql_answers_the_same() {
    let found =
        fs::read_dir("/usr/lib/postgresql").map(|_| ()).map_err(|e| format!("postgresql: {e}"));
    serves("postgres", include_str!("programs/postgres.sh"), found);
}

#[test]
fn mariadb_answers_the_same() {
    serves("mariadb", include_str!("programs/mariadb.sh"), installed("mariadbd"));
}
