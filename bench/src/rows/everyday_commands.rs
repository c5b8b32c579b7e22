//! Everyday rows: commands that people wait for, with real packages.
//!
//! A whole Debian system lies on the storage (`scripts/everyday-root` makes it, with the files of
//! `scripts/everyday-data.py` in `/data`); on the network share, as much of it as the image of a
//! container has, with commands of its own.

use std::ffi::OsString;
use std::path::Path;

use crate::data::job::{ChangedRoot, Job, JobPlaces};
use crate::error::Error;
use crate::rows::row_definition::{Content, Row};
use crate::rows::storage_kinds::{EVERYDAY, Medium, Place};

/// Directory inside the system for runahead, its statistics and its records. [`JobPlaces::out`] is
/// mounted there.
pub const OURS: &str = "opt/runahead";

/// Returns the everyday rows, in the order of the tables.
pub fn everyday() -> Vec<Row> {
    let commands = |place: &Place| match place.medium {
        Medium::Share => IMAGE_COMMANDS,
        Medium::Disk | Medium::Memory => COMMANDS,
    };
    let row = |place: &'static Place, (name, line): &(&'static str, &'static str)| {
        let (name, line) = (*name, *line);
        Row::new(
            format!("{}-{name}", place.name),
            place,
            Content::System,
            move |ground| job(name, line, ground),
            "a command in a Debian system",
        )
    };
    EVERYDAY
        .iter()
        .flat_map(|place| {
            commands(place).iter().map(|command| row(place, command)).collect::<Vec<_>>()
        })
        .collect()
}

/// `sh -c LINE` in the system at the root of the storage.
fn job(name: &str, line: &'static str, ground: &JobPlaces<'_>) -> Result<Job, Error> {
    let (inside, outside) = (Path::new("/").join(OURS), ground.out.to_owned());
    let state = outside.join("state").join(name);
    let env = [
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
        ("HOME", "/root".to_owned()),
        ("LC_ALL", "C.UTF-8".to_owned()),
        ("PYTHONDONTWRITEBYTECODE", "1".to_owned()),
        ("XDG_STATE_HOME", format!("/{OURS}/state/{name}")),
    ];
    let around: Vec<OsString> = vec!["chroot".into(), ground.root.into()];
    // Times and warnings on standard error are not compared.
    let script = format!("exec 2>/dev/null; {line}");
    Ok(Job {
        around,
        env: env.map(|(name, value)| (name, value.into())).into(),
        inside: Some(ChangedRoot { outside, inside, state }),
        ..Job::new("/bin/sh", "dash", Path::new("/")).args(["-c", &script])
    })
}

/// Names and command lines.
const COMMANDS: &[(&str, &str)] = &[
    ("pandas", "python3 -c 'import pandas'"),
    ("sklearn", "python3 -c 'import sklearn.ensemble'"),
    ("node-modules", "node -e 'require(\"/data/mods/p000\")'"),
    (
        "webpack",
        "echo 'console.log(1)' > /tmp/e.js; cd /tmp; webpack --mode development -o /tmp/out /tmp/e.js > /tmp/log; ls /tmp/out",
    ),
    ("checkstyle", "checkstyle -c /sun_checks.xml /data/J.java | tail -3"),
    ("javac", "javac -d /tmp /data/J.java && java -cp /tmp J"),
    ("rails", "ruby -e 'require \"rails/all\"; puts Rails.version'"),
    ("ggplot2", "Rscript -e 'library(ggplot2); cat(1)'"),
    ("pdflatex", "cd /tmp && pdflatex -interaction=batchmode /data/d.tex > log; ls d.pdf"),
    (
        "go-build",
        "cd /data/go && GOFLAGS=-mod=mod GOCACHE=/tmp/gc HOME=/tmp go build -o /tmp/x . && rm -r /tmp/gc; ls /tmp/x",
    ),
    ("g++", "g++ -c -o /tmp/b.o /data/b.cpp && ls /tmp/b.o"),
    (
        "duckdb",
        "PYTHONPATH=/opt/py python3 -c 'import duckdb; duckdb.sql(\"set enable_progress_bar = false\"); print(sorted(duckdb.sql(\"select k, count(*) from \\\"/data/pq/*.parquet\\\" group by k\").fetchall())[:3])'",
    ),
    (
        "pyarrow",
        "PYTHONPATH=/opt/py python3 -c 'import pyarrow.dataset as d; print(d.dataset(\"/data/pq\").to_table(columns=[\"v\"]).num_rows)'",
    ),
    (
        "lmdb",
        "python3 -c 'import lmdb; t = lmdb.open(\"/data/lm\", readonly=True, lock=False).begin(); print(sum(len(t.get(b\"%012d\" % (n * 530573 % 1000003)) or b\"\") for n in range(3000)))'",
    ),
    (
        "memmap",
        "python3 -c 'import numpy as n; m = n.memmap(\"/data/mm.bin\", mode=\"r\"); print(sum(int(m[i]) for i in n.random.default_rng(5).integers(0, len(m), 3000)))'",
    ),
    (
        "safetensors",
        "PYTHONPATH=/opt/py python3 -c 'from safetensors import safe_open as o; f = o(\"/data/st.safetensors\", \"np\"); print(sum(float(f.get_tensor(\"l%d\" % n)[3, 5]) for n in range(0, 200, 7)))'",
    ),
    (
        "csv",
        "python3 -c 'import pandas as p, glob; print(sum(len(p.read_csv(f)) for f in sorted(glob.glob(\"/data/csv/*.csv\"))))'",
    ),
    (
        "json",
        "python3 -c 'import json, glob; print(sum(len(json.load(open(f))) for f in sorted(glob.glob(\"/data/mods/*/package.json\"))))'",
    ),
    ("images", "python3 /data/img.py"),
    (
        "office",
        "cd /tmp && HOME=/tmp/home soffice --headless --convert-to pdf /data/t.txt > log; rm -r home; ls t.pdf",
    ),
    (
        "full-text",
        "sqlite3 /data/fts.db \"select count(*) from d where t match '$(head -1 /data/words.txt)'\"",
    ),
    ("tar", "tar cf - -C /usr/share/perl . | wc -c"),
    (
        "cp",
        "cp -r /usr/lib/python3/dist-packages/sklearn /tmp/s && ls /tmp/s | wc -l; rm -r /tmp/s",
    ),
    ("rg", "rg -c import /usr/lib/python3/dist-packages/sklearn | sort | md5sum"),
    ("awk", "gawk '{ n += length($0) } END { print n }' /usr/share/perl/5.36.0/*.pm"),
    ("ghostscript", "gs -q -dNODISPLAY -dBATCH -c '1 2 add =='"),
    ("emacs", "emacs --batch --eval '(progn (require (quote org)) (princ emacs-version))'"),
    ("perl", "perl -MPOSIX -MFile::Find -MStorable -MEncode -MIO::Socket -e 'print 1'"),
    ("php", "php -r 'echo PHP_VERSION;'"),
    ("octave", "octave-cli --eval 'disp(magic(3))'"),
    ("ansible", "ansible --version | head -1"),
];

/// Directories that the image of a container with Python and numpy has of the system.
pub const IMAGE: &[&str] = &[
    "bin",
    "sbin",
    "lib",
    "lib64",
    "etc",
    "root",
    "usr/bin",
    "usr/sbin",
    "usr/lib/locale",
    "usr/lib/os-release",
    "usr/lib/python3.11",
    "usr/lib/python3/dist-packages/numpy",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib64",
];

/// Names and command lines for a container.
const IMAGE_COMMANDS: &[(&str, &str)] = &[
    (
        "shell",
        "ls /usr/bin | wc -l; cat /etc/*release; cut -d: -f1 /etc/passwd | sort | head -3; sha256sum /etc/passwd; date -u -d @0; uname -m; id -un",
    ),
    ("numpy", "python3 -c 'import numpy; print(numpy.arange(9).sum())'"),
    // A server up to its first answer, on a free port.
    (
        "web-server",
        r#"python3 -c '
import threading, urllib.request
from wsgiref.simple_server import make_server
def page(environment, start):
    start("200 OK", [("Content-Type", "text/plain; charset=utf-8")])
    return [b"a page"]
server = make_server("127.0.0.1", 0, page)
threading.Thread(target=server.handle_request, daemon=True).start()
print(urllib.request.urlopen("http://127.0.0.1:%d/" % server.server_port).read().decode())
'"#,
    ),
];
