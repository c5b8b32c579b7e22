# Programs with test suites of their own make: built, and their units listed.
export FORCE_UNSAFE_CONFIGURE=1
case $SUITE in
make) source make-dfsg /mnt/tree ;;
libuv) source libuv1 /mnt/tree ;;
*) source "$SUITE" /mnt/tree ;;
esac
cd /mnt/tree
case $SUITE in
bash)
    step "configuring bash" ./configure --disable-nls --quiet
    step "building bash" make -s -j2
    step "building what its tests need" make -s recho zecho printenv xcase
    (cd tests && ls run-*) | grep -vxE 'run-(all|minimal|gprof|.*~)' >/mnt/units
    ;;
make)
    # The source has no generated files: the tests are for the make that is installed, of this version.
    cp "$(command -v make)" make
    cat >tests/config-flags.pm <<'END'
%CONFIG_FLAGS = (AM_LDFLAGS => '-Wl,--export-dynamic', AR => 'ar', CC => 'gcc', CFLAGS => '-O1',
    CPP => 'cpp', CPPFLAGS => '', GUILE_CFLAGS => '', GUILE_LIBS => '', LDFLAGS => '', LIBS => '',
    USE_SYSTEM_GLOB => 'yes');
1;
END
    (cd tests/scripts && find . -mindepth 2 -type f | sed 's,^\./,,' | sort) >/mnt/units
    ;;
tar)
    step "configuring tar" ./configure --disable-nls --quiet
    step "building tar" make -s -j2
    step "building its tests" make -s -C tests check TESTSUITEFLAGS=--version
    (cd tests && ./testsuite --list) | sed -n 's/^ *\([0-9]*\): .*/\1/p' >/mnt/units
    ;;
busybox)
    step "configuring busybox" sh -c 'make -s defconfig && sed -i "s/^CONFIG_TC=y/CONFIG_TC=n/" .config'
    step "building busybox" sh -c 'yes "" | make -s -j2'
    (cd testsuite && ls -d *.tests | sed 's/\.tests$//'
        find . -mindepth 1 -maxdepth 1 -type d | sed 's,^\./,,') | sort -u >/mnt/units
    ;;
redis)
    step "building Redis (some minutes)" make -s -j2 MALLOC=libc
    sed -n '/^set ::all_tests {/,/^}/p' tests/test_helper.tcl | grep -E '^ +[a-z]+/|^ +[a-z]+$' |
        awk '{ print $1 }' >/mnt/units
    ;;
libuv)
    step "configuring libuv" cmake -S . -B build -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=ON
    step "building libuv" cmake --build build -j2 --target uv_run_tests
    # (Its tests refuse to be run by root.)
    setpriv --reuid=65534 --regid=65534 --clear-groups build/uv_run_tests --list | awk '{ print $1 }' | sort -u >/mnt/units
    ;;
util-linux)
    step "configuring util-linux" ./configure --quiet --disable-nls --without-python --disable-liblastlog2 \
        --without-systemd --disable-bash-completion --disable-asciidoc
    step "building util-linux (some minutes)" make -s -j2
    step "building what its tests need" make -s -j2 check-programs
    (cd tests/ts && find . -mindepth 2 -maxdepth 2 -type f -perm -100 | sed 's,^\./,,' | sort) >/mnt/units
    ;;
esac
find . -name '*.o' -delete
