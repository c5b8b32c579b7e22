# competing_greps.sh OUT PROGRAMS COMMAND...: runs so many at once, each with the files of a part of its own
# as further arguments; then prints the output and the exit status of each.
out=$1 programs=$2
shift 2
n=0
while [ "$n" -lt "$programs" ]; do
    { "$@" "part$n"/*; echo "exit $?"; } >"$out/compete.$n" 2>&1 &
    n=$((n + 1))
done
wait
n=0
while [ "$n" -lt "$programs" ]; do
    cat "$out/compete.$n"
    n=$((n + 1))
done
