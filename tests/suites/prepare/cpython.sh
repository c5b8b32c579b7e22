# Debian's CPython with its own regression tests: interpreter, library and tests are unpacked beside
# each other, all of one version, so that all of them lie on the slow disk. An interpreter finds its
# library by where it is itself.
debian
release=$(apt-cache show python3 | sed -n 's/^Version: \(3\.[0-9]*\).*/\1/p' | head -1)
packages /mnt/tree "python$release-minimal" "libpython$release-minimal" "libpython$release-stdlib" \
    "libpython$release-testsuite"
python=/mnt/tree/usr/bin/python$release
"$python" -c 'import platform; print("CPython", platform.python_version())' >/mnt/version
# As the packages do when they are installed; a few test files are meant not to compile.
step "compiling CPython's library" sh -c "$python -m compileall -q /mnt/tree/usr/lib/python$release || true"
rm -rf /mnt/tree/usr/share
"$python" -m test --list-tests >/mnt/units
