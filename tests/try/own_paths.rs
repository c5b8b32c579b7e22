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
