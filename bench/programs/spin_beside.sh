# spin_beside.sh SPIN MILLIONS TOLD COMMAND...: runs the command, with SPIN beside it; both have to succeed.
"$1" "$2" "$3" &
shift 3
"$@"
status=$?
wait "$!" || exit 9
exit "$status"
