# The Linux Test Project's tests of system calls, each a line of its list; and Open POSIX's, which it
# carries, each a program. Both run with waits forced into them (waits.c).
published ltp 6958277259a1 /mnt/tree https://github.com/linux-test-project/ltp
cd /mnt/tree
step "configuring LTP" make autotools
step "configuring LTP" ./configure --prefix=/mnt/installed
case $SUITE in
ltp)
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
    step "building Open POSIX's tests (some minutes)" sh -c 'make -s -j2 -k conformance-make || true'
    find conformance -name '*.run-test' | sed 's/\.run-test$//' | sort >/mnt/units
    mv conformance /mnt/conformance
    rm -rf /mnt/tree/* && mv /mnt/conformance /mnt/tree/
    find /mnt/tree -name '*.[cho]' -delete
    ;;
esac
waits
