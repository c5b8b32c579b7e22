# stress-ng, as it is installed: each of its stressors, with its results verified.
stress=$(command -v stress-ng) || fail "stress-ng is missing: apt-get install stress-ng"
mkdir -p /mnt/tree
cp "$stress" /mnt/tree/
"$stress" --version | awk '{ print $1, $3; exit }' | tr -d , >/mnt/version
"$stress" --stressors | tr ' ' '\n' | grep . >/mnt/units
