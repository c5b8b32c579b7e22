# musl's libc-test, built with musl: what it has about functions that make calls, and about what was once
# wrong, each a program, linked dynamically and statically. (Its mathematics make no calls.)
command -v musl-gcc >/dev/null || fail "musl-gcc is missing: apt-get install musl-tools"
published libc-test f2bac7711bec93467b73bec1465579ea0b8d5071 /mnt/tree https://repo.or.cz/libc-test.git
cd /mnt/tree
# (What follows there is for glibc.)
sed '/glibc/,$d' config.mak.def >config.mak
programs() {
    make -s --eval='list-of:;@printf "%s\n" $(filter src/functional/% src/regression/%,$(BINS) $(LIBS))' list-of
}
# What cannot be built is not run: each is a test of its own.
step "building libc-test" sh -c "make -s -j2 -k CC=musl-gcc $(programs | tr '\n' ' ') || true"
find src -name '*.exe' | sed 's/\.exe$//' | sort >/mnt/units
grep -q . /mnt/units || fail "nothing of libc-test could be built"
find . -name '*.[och]' -delete -o -name '*.err' -delete
waits
# Of neither C library, since programs of the other one are started as well.
step "compiling what forces waits" musl-gcc -O2 -shared -fPIC -nostdlib -o waits.so /mnt/waits.c
