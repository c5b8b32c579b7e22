# The Linux Test Project's tests of system calls, each a line of its list; and Open POSIX's, which it
# carries, each a program. Both run with waits forced into them (waits.c).
published ltp 695827725f4fc14fe583043127e0335c29bbd52d /mnt/tree https://github.com/linux-test-project/ltp
cd /mnt/tree
case $SUITE in
ltp)
    step "configuring LTP" make autotools
    step "configuring LTP" ./configure --prefix=/mnt/installed
    step "building LTP's tests of system calls (some minutes)" make -s -j2 -C testcases/kernel/syscalls
    step "installing them" make -s -C testcases/kernel/syscalls install
    cp runtest/syscalls /mnt/installed/syscalls
    rm -rf /mnt/tree
    mv /mnt/installed /mnt/tree
    cd /mnt/tree
    mkdir units
    # A tag and its command. (What loops for long is for those who test kernels.)
    grep '^[a-z_0-9]' syscalls | while read -r tag command; do
        [ -x "testcases/bin/${command%% *}" ] || continue
        echo "exec $command" >"units/$tag"
        echo "$tag"
    done >/mnt/units
    ;;
open-posix)
    cd testcases/open_posix_testsuite
    step "configuring Open POSIX" make autotools
    step "configuring Open POSIX" ./configure
    step "listing Open POSIX's tests" make -s generate-makefiles
    # What cannot be built is not run: each is a test of its own.
    step "building Open POSIX's tests (some minutes)" sh -c 'make -s -j2 -k conformance-all || true'
    find conformance -name '*.run-test' | sed 's/\.run-test$//' | sort >/mnt/units
    grep -q . /mnt/units || fail "nothing of Open POSIX could be built"
    mv conformance /mnt/conformance
    rm -rf /mnt/tree/* && mv /mnt/conformance /mnt/tree/
    find /mnt/tree -name '*.[cho]' -delete
    ;;
esac
waits
