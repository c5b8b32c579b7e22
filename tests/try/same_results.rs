//! A command does the same as a try and natively, and leaves the same once it is committed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use runahead_tests::programs::{Link, program};
use runahead_tests::{End, Run, Seed, available, installed, root, runahead, scratch};

use crate::try_directory::{Place, differences, fill, nested_twins_behind, seen, sh, twins};

#[test]
fn shell_scripts_give_the_same_results() {
    let place = Place::filled("shell");
    let scripts = [
        "echo a > f; cat f; mv f g; ls; rm -r d0; ls -l l/; mkdir d0; ls d0; cat l/b; echo x > l/b; cat d0/b",
        "mv d0 z; ls z; cat z/d1/c; rmdir d2; rm 'd2/long name'; rmdir d2; ls; cd z/d1; pwd; echo hi > ../../top; cat ../../top",
        "sed -i s/o/0/ a d0/b; cat a d0/b; find . -name 'c' -delete; find . | sort; cp -a d1 e; diff -r d1 e; ls -R",
        "tar cf t.tar d0 d1; rm -rf d0 d1; tar xf t.tar; rm t.tar; find . -type f | sort | xargs cat; rm -rf ./* ; ls",
        "touch -d 2002-02-02 a d1; chmod 700 d0; chmod 600 d0/b; stat -c '%n %a %Y' a d0 d1 d0/b; ln a b; echo x >> b; cat a; stat -c %h a",
        "printf '#!/bin/sh\\necho $0 $@; cat $0' > s; chmod +x s; ./s 1 2; cd d1; ../s 3; mkdir -p n/m; cd n/m; pwd; ls ..; ls ../../..; cat ../../../a",
        "cp /bin/echo e; ./e hello; ln -s e k; ./k again; readlink -f k; rm e; ./k; echo $?; umask 077; echo > new; mkdir newd; ls -ld newd new | cut -c1-10",
        "(cd d0 && exec cat b) ; cat < a > c; cat c; exec 3<>d0/b; echo z >&3; cat d0/b; (sleep 0.1; echo later > d2/x) & wait; cat d2/x",
        "echo x > nowhere/file; cat nowhere; rm nowhere; rmdir a; rm d0; mkdir a; mv d0 d0/d1; mv a d0; mv d0 a; cd a; ln d0 x; echo end",
        "ln -s a/ k; ln -s none/ n; ln -s d0/ d; echo x > k; echo x > n; echo x > d; cat k; ls n d; echo x >> d/b; cat d0/b; echo end",
    ];
    scripts.iter().for_each(|script| sh(&place, script));
}

/// Programs of the lower tree that are executed through links have the names that were given.
#[test]
fn programs_behind_links_have_the_given_names() {
    let place = Place::filled("names");
    let programs = scratch().join("named-programs");
    fs::create_dir_all(programs.join("d")).expect("it is ours");
    let script =
        "#!/bin/sh\necho \"$0\"; read name < /proc/$$/comm; test -z \"$1\" || echo \"$name\"\n";
    for name in ["s", "d/s"] {
        fs::write(programs.join(name), script).expect("it is ours");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(programs.join(name), mode).expect("it is ours");
    }
    fs::copy("/bin/cat", programs.join("p")).expect("it can be copied");
    for (link, text) in [("l", "s"), ("dl", "d"), ("pl", "p")] {
        let _ = fs::remove_file(programs.join(link));
        std::os::unix::fs::symlink(text, programs.join(link)).expect("it is ours");
    }
    let programs = programs.display();
    sh(
        &place,
        &format!(
            ": > new; P={programs}; $P/l 1; $P/dl/s 1; $P/d/../s 1; $P/pl /proc/self/comm; (cd $P; ./l 1; dl/s 1; d/../s 1); \
             ln -s $P/s zl; ./zl; cd $P; PATH=$P:$PATH; l 1; echo 'echo \"$0\"' > ns; chmod +x ns; ln -s ns nl; ./nl; rm ns nl"
        ),
    );
}

#[test]
fn git_python_and_make_give_the_same_results() {
    let place = Place::filled("programs");
    let git = "export HOME=$PWD GIT_AUTHOR_DATE='2000-01-01 00:00' GIT_COMMITTER_DATE='2000-01-01 00:00' GIT_AUTHOR_NAME=a \
               GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; git init -q; git add .; git commit -qm one; echo x > a; \
               git commit -qam two; git checkout -q HEAD~1; cat a; git stash list; git clone -q . ../clone; cd ../clone; git log \
               --format=%s --all; git fsck; cd ../work; rm -rf .git ../clone";
    let python = "python3 -I -S -B -c \"import os, subprocess, tempfile, shutil, threading\n\
                  print(subprocess.run(['cat', 'b'], cwd='d0', capture_output=True).stdout)\n\
                  try: subprocess.run(['./nope'])\n\
                  except Exception as e: print(e)\n\
                  d = tempfile.mkdtemp(dir='.'); open(d + '/x', 'w').write('1'); os.rename(d, 'moved'); print(os.listdir('moved'))\n\
                  shutil.copytree('d1', 'copy', symlinks=True); shutil.rmtree('d1'); os.chdir('copy'); print(os.getcwd()[-4:])\n\
                  t = [threading.Thread(target=lambda n=n: [open('t%d' % n, 'a').write('x') for _ in range(50)]) for n in range(4)]\n\
                  [x.start() for x in t]; [x.join() for x in t]; print([os.path.getsize('t%d' % n) for n in range(4)])\"";
    let make = "printf 'all: x y\\nx: a\\n\\tcp a x\\ny: x\\n\\tcat x d0/b > y\\n' > Makefile; make -j2 -O | sort; make -q && echo made; touch a; make -q || echo old";
    for (name, script) in [("git", git), ("python3", python), ("make", make)] {
        if available(installed(name)).is_some() {
            sh(&place, script);
        }
    }
}

/// Random steps, each said, on few names (`programs/name_steps.c`).
#[test]
fn random_steps_give_the_same_results() {
    const RUNS: usize = 25;
    let (place, program) = (Place::filled("random"), program("name_steps", Link::Dynamic));
    let program = program.to_str().expect("a plain path");
    let mut seeds = Seed::new();
    for _ in 0..RUNS {
        let seed = seeds.below(u64::MAX).to_string();
        eprintln!("names {seed} 150");
        twins(&place, &[program, &seed, "150"]);
        place.again();
    }
}

/// Runs some steps in a try, and more in a try inside that.
#[test]
fn random_steps_in_nested_tries_give_the_same_results() {
    const RUNS: usize = 25;
    let (place, program) = (Place::filled("random-inside"), program("name_steps", Link::Dynamic));
    let program = program.to_str().expect("a plain path");
    let mut seeds = Seed::new();
    for _ in 0..RUNS {
        let [first, second] = [(); 2].map(|()| seeds.below(u64::MAX).to_string());
        eprintln!("names {first} 60, names {second} 100");
        // A process that writes to a named pipe of the lower tree is refused.
        let before = format!("{program:?} {first} 60 > /dev/null 2>&1; find . -type p -delete");
        nested_twins_behind(&place, &before, &[program, &second, "100"]);
        place.again();
    }
}

#[test]
fn ordinary_users_get_the_same_results_and_errors() {
    if available(root()).is_none() {
        return;
    }
    let place = Place::filled("user");
    fs::set_permissions(scratch(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let program = scratch().join("runahead-of-all");
    fs::copy(runahead(), &program).expect("it can be copied");
    let own = "chown -R 65534:65534 ../.. && chmod 555 d0 && chmod 444 a";
    assert!(
        Command::new("/bin/sh")
            .args(["-c", own])
            .current_dir(&place.work)
            .status()
            .expect("it runs")
            .success()
    );
    let script = "echo x > a; rm d0/b; touch d0/n; echo x >> d0/b; cat d0/b; echo x > /etc/hosts; rm /etc/passwd; chmod 700 /etc; mkdir /usr/x; \
                  cat /etc/shadow; rm -rf d0 2>/dev/null; chmod 755 d0; touch d0/n; rm -r d0; chown 0 a; chgrp 0 a; mv a b; ls; stat -c '%U %a' b d2";
    let setpriv = |command: &[&str]| {
        let first = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
        Run::new(first.iter().chain(command)).dir(&place.work).run()
    };
    let (program, state) = (program.to_str().expect("plain"), place.state.to_str().expect("plain"));
    let tried = setpriv(&[program, "try", "-q", "--state", state, "--", "/bin/sh", "-c", script]);
    assert!(place.work.join("d0/d1/c").exists() && place.work.join("a").exists(), "{tried:?}");
    let plain = setpriv(&["/bin/sh", "-c", script]);
    assert_eq!(plain, tried);
    let made = seen(&place.work);
    assert!(
        Command::new("/bin/sh")
            .args(["-c", "rm -rf ./*"])
            .current_dir(&place.work)
            .status()
            .expect("it runs")
            .success()
    );
    fill(&place.work);
    assert!(
        Command::new("/bin/sh")
            .args(["-c", own])
            .current_dir(&place.work)
            .status()
            .expect("it runs")
            .success()
    );
    let outcome = setpriv(&[program, "try", "--state", state, "undo"]);
    assert_eq!(outcome.end, End::Exit(0), "{outcome:?}");
    let again = setpriv(&[program, "try", "-q", "--state", state, "--", "/bin/sh", "-c", script]);
    assert_eq!(plain, again);
    let outcome = setpriv(&[program, "try", "--state", state, "commit"]);
    assert_eq!(outcome.end, End::Exit(0), "{outcome:?}");
    let differences = differences(&made, &seen(&place.work));
    assert!(differences.is_empty(), "{differences:#?}");
}
