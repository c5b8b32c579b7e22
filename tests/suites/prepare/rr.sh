# rr's tests, without rr: each is a program that does what debuggers and recorders get wrong, and
# checks itself.
published rr 5c202cd8cb678b32107fa6aaf1c6108420bc53a8 /mnt/rr https://github.com/rr-debugger/rr
cd /mnt/rr/src
mkdir -p /mnt/generated /mnt/tree
for file in X64 X86 Generic; do
    step "generating what rr's tests include" python3 generate_syscalls.py \
        "/mnt/generated/SyscallEnumsForTests$file.generated"
done
# Those that need no recording: the list of CMakeLists.txt. What cannot be built is not run.
sed -n '/^set(BASIC_TESTS/,/^)/p' ../CMakeLists.txt | sed '1d; $d; s/^ *//; s/^x86\///' >/mnt/names
program() {
    file=$(find test -name "$1.c" | head -n 1)
    gcc -w -g -O0 -std=gnu11 -D_GNU_SOURCE -pthread -I../include -I. -Itest -I/mnt/generated \
        -o "/mnt/tree/$1" "$file" -ldl -lrt -lutil 2>/dev/null
}
say "building rr's tests (a minute)"
while read -r name; do
    if program "$name"; then echo "$name"; fi
done </mnt/names >/mnt/units
grep -q . /mnt/units || fail "nothing of rr's tests could be built"
rm -rf /mnt/rr /mnt/generated
# What a test prints has process IDs and addresses: its end is compared, and whether it says success.
cat >/mnt/tree/check <<'END'
cd "$HOME" && "/mnt/tree/$1" >output 2>&1
status=$?
grep -c EXIT-SUCCESS output
exit $status
END
