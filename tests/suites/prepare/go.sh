# The tests of Go's standard library, from the installed toolchain: one program for each package.
# Those that have to do with processes, threads, signals, files and networks, and the collector.
units="
archive/tar archive/zip bufio bytes compress/bzip2 compress/flate compress/gzip compress/zlib context
debug/dwarf debug/elf debug/macho debug/pe embed encoding/json expvar flag fmt go/ast go/build go/doc
go/format go/parser go/printer image/png internal/cpu internal/godebug internal/poll internal/testenv
io io/fs io/ioutil log log/syslog mime mime/multipart net net/http net/http/cgi net/http/fcgi
net/http/httptest net/http/httputil net/rpc net/textproto os os/exec os/exec/internal/fdtest os/signal
os/user path/filepath plugin runtime runtime/cgo runtime/debug runtime/metrics runtime/pprof
runtime/trace strings sync sync/atomic syscall testing testing/fstest text/template time"
go=$(command -v go || ls /usr/local/go/bin/go /usr/lib/go/bin/go 2>/dev/null | head -1)
[ -n "$go" ] || fail "go is missing: apt-get install golang-go golang-src"
root=$("$go" env GOROOT)
[ -e "$root/src/os/os_test.go" ] || fail "$root/src has no tests: apt-get install golang-src"
say "copying $root"
mkdir -p /mnt/tree/go /mnt/tree/tests
for part in bin lib pkg src VERSION go.env; do
    [ ! -e "$root/$part" ] || cp -rpL "$root/$part" /mnt/tree/go/
done
export GOROOT=/mnt/tree/go GOCACHE=/mnt/gocache GOPROXY=off GOTOOLCHAIN=local HOME=/mnt/download
go=$GOROOT/bin/go
"$go" env GOVERSION | sed 's/^go/Go /' >/mnt/version
cd "$GOROOT/src"
for package in $units; do
    # Not every release has every package.
    [ -d "$package" ] || continue
    program=/mnt/tree/tests/$(echo "$package" | tr / -).test
    step "compiling the tests of $package" "$go" test -c -o "$program" "$package"
    # Nothing is written if there are no tests.
    [ ! -e "$program" ] || echo "$package" >>/mnt/units
done
# Some tests build programs. They find the library compiled, in a cache that they may add to.
export GOCACHE=/mnt/tree/gocache
step "compiling the library for tests that build programs" "$go" build std
# The compiler's own tests and test data of commands are not run, and are half of the tree.
find cmd -name testdata -prune -exec rm -rf {} +
