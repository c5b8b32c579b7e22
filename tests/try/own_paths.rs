//! Paths through the process's own descriptors and directories, and long names of sockets.

use runahead_tests::{End, available, installed};

use crate::try_directory::{Place, sh, twins};

#[test]
fn names_below_own_descriptors_and_directories_are_of_the_view() {
    let place = Place::filled("own-paths");
    sh(
        &place,
        "echo new > d0/new; rm d0/b; mkdir d0/made; echo in > d0/made/f; exec 3< d0; cat /proc/self/fd/3/new /dev/fd/3/d1/c; \
         cat /proc/self/fd/3/b; ls /proc/thread-self/fd/3/; echo more > /proc/self/fd/3/more; cd d0; \
         ls /proc/self/cwd/made; cat /proc/self/cwd/made/f /proc/self/root/etc/hostname; stat -c %F /proc/self/cwd/made/; \
         cat \"/proc/self/root$PWD/new\"; cat /proc/self/fd/9/x; rm /dev/fd/3/new; ls . /proc/self/cwd/../d0",
    );
}

/// Binds and connects to names as long as an address allows, in a directory of the try.
#[test]
fn sockets_have_names_of_any_length() {
    if available(installed("python3")).is_none() {
        return;
    }
    let place = Place::filled("socket-names");
    let program = "import os, socket\n\
                   os.mkdir('s'); os.chdir('s')\n\
                   for n in (1, 80, 100, 107):\n\
                   \x20s = socket.socket(socket.AF_UNIX); s.bind('x' * n); s.listen(1)\n\
                   \x20c = socket.socket(socket.AF_UNIX); c.connect('x' * n); c.send(b'x'); print(n, s.accept()[0].recv(1))\n\
                   print(sorted(map(len, os.listdir('.'))))";
    let outcome = place.tried(&["-q", "--", "python3", "-I", "-S", "-B", "-c", program]);
    assert_eq!(outcome.end, End::Exit(0), "{outcome:?}");
    assert_eq!(outcome.text(), "1 b'x'\n80 b'x'\n100 b'x'\n107 b'x'\n[1, 80, 100, 107]\n");
}

/// The path of a descriptor's directory changes with renames, removals and other directories under
/// its number.
#[test]
fn a_descriptor_leads_to_its_directory_after_each_change() {
    if available(installed("python3")).is_none() {
        return;
    }
    let place = Place::filled("moved-descriptors");
    let program = "import os\n\
        def say(what):\n\
        \x20try: print(what())\n\
        \x20except OSError as e: print(e.errno)\n\
        def make(name, d):\n\
        \x20os.close(os.open(name, os.O_CREAT | os.O_WRONLY, dir_fd=d))\n\
        d = os.open('d0', os.O_RDONLY)\n\
        say(lambda: os.stat('b', dir_fd=d).st_size); make('made', d); say(lambda: sorted(os.listdir('d0')))\n\
        os.rename('d0', 'd9'); e = os.open('d9', os.O_RDONLY)\n\
        say(lambda: os.stat('b', dir_fd=e).st_size); make('later', e); say(lambda: sorted(os.listdir('d9')))\n\
        os.rename('d9', 'd2/in'); say(lambda: os.stat('made', dir_fd=e).st_size); make('last', e)\n\
        say(lambda: sorted(os.listdir('d2/in')))\n\
        for n in range(20):\n\
        \x20os.mkdir('n'); f = os.open('n', os.O_RDONLY); make(str(n), f); say(lambda: (f, os.listdir('n')))\n\
        \x20os.unlink(str(n), dir_fd=f); os.rmdir('n'); say(lambda: make('x', f)); os.close(f)\n\
        for n in range(20):\n\
        \x20f = os.open('d1' if n % 2 else 'd1/a', os.O_RDONLY); make(str(n), f); os.close(f)\n\
        say(lambda: [sorted(os.listdir(p)) for p in ('d1', 'd1/a')])\n";
    twins(&place, &["python3", "-I", "-S", "-B", "-c", program]);
}

/// Sends to sockets of the try by name, without connecting, and answers.
#[test]
fn messages_to_sockets_of_the_try_arrive() {
    if available(installed("python3")).is_none() {
        return;
    }
    let place = Place::filled("messages");
    let program = "import os, socket, threading\n\
                   new = lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n\
                   s = new(); s.bind('d0/s'); os.symlink('d0/s', 'link'); os.mkdir('n')\n\
                   for name in ('d0/s', 'link', os.path.abspath('d0/s')):\n\
                   \x20new().sendto(b'to', name); print(s.recv(9))\n\
                   \x20new().sendmsg([b'ms', b'g'], [], 0, name); print(s.recv(9))\n\
                   for name in ('d0/b', 'nope', ''):\n\
                   \x20try: new().sendto(b'to', name)\n\
                   \x20except OSError as error: print(name, error)\n\
                   a, b = socket.socketpair(); a.sendmsg([b'x']); a.sendall(b'y'); print(b.recv(9))\n\
                   l = socket.socket(socket.AF_UNIX); l.bind('n/l'); l.listen()\n\
                   c = socket.socket(socket.AF_UNIX); c.connect('n/l'); print(len(l.accept()))";
    sh(&place, &format!("exec python3 -I -S -B -c \"{program}\""));
}

/// A name that fits into an address is one that a receiver can answer to.
#[test]
fn messages_are_answered_by_the_name_of_their_sender() {
    if available(installed("python3")).is_none() {
        return;
    }
    let place = Place::filled("answers");
    let state = tempfile::tempdir_in("/tmp").expect("a short path");
    let state = state.path().to_str().expect("a plain path");
    let program = "import os, socket\n\
                   new = lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n\
                   os.chdir('/tmp'); s = new(); s.bind('SERVER'); c = new(); c.bind('CLIENT')\n\
                   c.sendto(b'asked', 'SERVER'); text, sender = s.recvfrom(9)\n\
                   s.sendto(b'answered', sender); print(text, c.recv(9))";
    let id = std::process::id();
    let program = program.replace("SERVER", &format!("s{id}")).replace("CLIENT", &format!("c{id}"));
    let runahead = runahead_tests::runahead().to_str().expect("a plain path");
    let argv = ["try", "-q", "--state", state, "--", "python3", "-I", "-S", "-B", "-c", &program];
    let argv: Vec<_> = std::iter::once(runahead).chain(argv).collect();
    let outcome = place.run(&argv);
    assert_eq!(outcome.text(), "b'asked' b'answered'\n", "{outcome:?}");
}

#[test]
fn programs_name_their_threads() {
    if available(installed("python3")).is_none() {
        return;
    }
    let place = Place::filled("thread-names");
    let program = "import ctypes, os, threading\n\
                   stop = threading.Event(); other = threading.Thread(target=stop.wait); other.start()\n\
                   libc = ctypes.CDLL(None); named = libc.pthread_setname_np\n\
                   print(named(ctypes.c_ulong(other.ident), b'other'), named(ctypes.c_ulong(threading.get_ident()), b'own'))\n\
                   read = lambda: [open(f'/proc/self/task/{n}/comm').read() for n in (os.getpid(), other.native_id)]\n\
                   print(read()); open(f'/proc/self/task/{other.native_id}/comm', 'w').write('again'); print(read())\n\
                   fd = os.open('/proc/self/comm', os.O_WRONLY); print(fd, os.get_inheritable(fd), os.write(fd, b'main')); print(read())\n\
                   try: print(open('/proc/1/comm', 'w').write('x'))\n\
                   except OSError as error: print(type(error))\n\
                   stop.set()";
    // Another process's name is refused, natively when it is written.
    let program = program.replace(
        "try: print(open('/proc/1/comm', 'w').write('x'))",
        "try: f = os.open('/proc/1/comm', 1); os.write(f, b'x')",
    );
    let program = program.replace("print(type(error))", "print('refused')");
    sh(&place, &format!("exec python3 -I -S -B -c \"{program}\""));
}
