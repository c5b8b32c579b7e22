# stress-ng, as it is installed: each of its stressors, with its results verified.
stress=$(command -v stress-ng) || fail "stress-ng is missing: apt-get install stress-ng"
mkdir -p /mnt/tree
cp "$stress" /mnt/tree/
"$stress" --version | awk '{ print $1, $3; exit }' | tr -d , >/mnt/version
"$stress" --stressors | tr ' ' '\n' | grep . >/mnt/units
# Its main process locks three pages first of all, and a process that locks memory has no shadows: that
# call, and no later one, does nothing.
WAITS="$WAITS
int mlock(const void *at, size_t len)
{
    static atomic_int calls;
    return atomic_fetch_add(&calls, 1) == 0 ? 0 : (int)syscall(SYS_mlock, at, len);
}"
waits
