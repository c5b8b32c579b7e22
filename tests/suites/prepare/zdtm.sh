# CRIU's zdtm, without CRIU: each test sets up a state that is hard to carry over (descriptors, memory,
# signals, sessions, namespaces), waits for SIGTERM, and checks that the state is still there.
published criu 2cf8f13ca1f11a0491977e438b262e646137256c /mnt/criu https://github.com/checkpoint-restore/criu
cd /mnt/criu/test/zdtm
step "building zdtm's library" make -C lib -j2 USERCFLAGS=-Wno-error
# What cannot be built is not run.
step "building zdtm's tests (a minute)" sh -c 'make -k -C static -j2 USERCFLAGS=-Wno-error || true'
mkdir -p /mnt/tree/units
cd static
for source in *.c; do
    name=${source%.c}
    [ -x "$name" ] || continue
    # How the test is started: by the Makefile's rule for its PID's file.
    command=$(make -n -s "$name.pid" 2>/dev/null | grep -- "^\./$name ") || continue
    cp "$name" /mnt/tree/
    echo "exec /mnt/tree/${command#./}" >"/mnt/tree/units/$name"
    echo "$name"
done >/mnt/units
grep -q . /mnt/units || fail "nothing of zdtm could be built"
rm -rf /mnt/criu
cat >/mnt/tree/check <<'END'
cd "$HOME" || exit 99
sh "/mnt/tree/units/$1" >output 2>&1
echo "started with status $?"
pid=$(cat "$1.pid" 2>/dev/null) || exit 1
kill -TERM "$pid"
n=0
while kill -0 "$pid" 2>/dev/null && [ $n -lt 300 ]; do
    sleep 0.05
    n=$((n + 1))
done
grep -o 'PASS\|FAIL' "$1.out"
! kill -KILL "$pid" 2>/dev/null
END
