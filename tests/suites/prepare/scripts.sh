# Scripts that are mostly pipes, and builds by make: what each writes is compared with what it wrote natively, here.
source bash /mnt/tree/source
cd /mnt/tree
export FORCE_UNSAFE_CONFIGURE=1
(cd source && step "configuring bash" ./configure --disable-nls --quiet CFLAGS=-O1)
mkdir units right
unit() { cat >"units/$1"; }

# Text in long pipes.
unit words <<'END'
cd /mnt/tree/source
cat *.c | tr -cs 'A-Za-z_' '\n' | tr A-Z a-z | grep -v '^$' | sort | uniq -c | sort -k1,1nr -k2 | head -n 200
cat *.h | sed 's,/\*.*\*/,,' | awk '{ n += NF; w[NF]++ } END { print n; for (k in w) print k, w[k] }' | sort -n
for n in 1 2 3 4 5 6 7 8; do cut -c "$n" <parse.y | sort | uniq -c | sort -k1,1nr -k2 | head -n 3; done
END
# A program for each file, several for each line.
unit loops <<'END'
cd /mnt/tree/source
find . -name '*.c' | sort | head -n 60 | while read -r file; do
    lines=$(wc -l <"$file")
    first=$(grep -n '^#include' "$file" | head -n 1 | cut -d: -f1)
    echo "$file $lines ${first:-none} $(cksum <"$file" | cut -d' ' -f1)"
done | sort -k2,2nr | tee "$HOME/list" | awk '{ sum += $2 } END { print NR, sum }'
cat "$HOME/list"
END
# Pipes with names, and background jobs that are waited for.
unit fifos <<'END'
cd "$HOME"
for n in 1 2 3 4 5 6; do
    mkfifo "in$n" "out$n"
    (sort "in$n" >"out$n") &
    (sed "s/^/$n /" "/mnt/tree/source/lib/sh/Makefile.in" >"in$n") &
    head -n 40 <"out$n" >"first$n" &
    wait
    cksum <"first$n"
done
mkfifo both
tee both </mnt/tree/source/shell.c | cksum >one &
cksum <both
wait
cat one
END
# Statuses of what a pipe is made of, and who is told that nobody reads.
unit statuses <<'END'
exec bash -c '
yes | head -n 3; echo "${PIPESTATUS[*]}"
for n in 1 2 3 4 5 6 7 8 9; do
    (exit "$n") | (cat; exit 3) | true; echo "${PIPESTATUS[*]}"
    seq 100000 | head -n "$n" | tail -n 1; echo "${PIPESTATUS[*]}"
    (kill -TERM "$BASHPID") | cat; echo "${PIPESTATUS[*]}"
    out=$(echo "$n"; exit "$n"); echo "$? $out"
done
set -o pipefail
seq 10 | grep 11 | wc -l || echo "pipefail $?"
trap "echo usr1" USR1; kill -USR1 $$; sleep 0.01 & wait $!; echo "$?"
coproc tr a-z A-Z; echo "to and fro" >&"${COPROC[1]}"; exec {COPROC[1]}>&-; cat <&"${COPROC[0]}"
cat <(seq 5) <(seq 5 | tac) | paste -sd, -
seq 20 | tee >(wc -l >"$HOME/n") | sum; until [ -s "$HOME/n" ]; do sleep 0.01; done; cat "$HOME/n"
'
END
# Archives from pipe to pipe, and files that are made, edited, compared and removed.
unit archives <<'END'
cd "$HOME"
tar -C /mnt/tree/source -cf - --sort=name --mtime=@0 --owner=0 --group=0 lib doc builtins | gzip -n9 | tee all.tgz | gunzip | tar -tf - | cksum
mkdir copy && gunzip <all.tgz | tar -xf - -C copy
(cd copy && find . -type f | sort | xargs sha256sum) | cksum
find copy -name '*.c' | sort | head -n 40 | xargs -n 1 sed -i 's/int/long/g'
diff -r /mnt/tree/source/lib copy/lib | grep -v '^diff' | cksum
diff -ru /mnt/tree/source/builtins copy/builtins | sed '/^[-+][-+]/s/\t.*//' | cksum
split -n 7 all.tgz part. && cat part.* | cmp - all.tgz && rm part.* && ls
tar -cf - copy | (cd / && tar -tf - | wc -l)
END
# Two at a time.
unit parallel <<'END'
cd /mnt/tree/source
find . -type f | sort | xargs -P 2 -n 16 sha256sum | sort -k 2 | cksum
find . -name '*.h' | sort | xargs -P 2 -n 4 sh -c 'for f; do grep -c define "$f" | sed "s,^,$f ,"; done' sh | sort
printf '%s\n' a b c d e f | xargs -P 2 -I @ sh -c 'seq 2000 | sed "s/^/@/" >"$HOME/@"; wc -c <"$HOME/@"' | sort
cat "$HOME"/[a-f] | sort -R | sort | cksum
END
# Perl's own ways to start programs and to talk to them.
unit perl <<'END'
exec perl -we '
use IPC::Open3; use Symbol "gensym"; $| = 1;
for my $n (1 .. 20) {
    open my $from, "-|", "seq $n | sort -r" or die; print map { chomp; "$_ " } <$from>; close $from; print "$?\n";
    my $pid = open3(my $in, my $out, my $err = gensym, "sh", "-c", "cat; echo err >&2; exit $n");
    print $in "line $n\n"; close $in; print <$out>, <$err>; waitpid $pid, 0; print $? >> 8, "\n";
    pipe my $r, my $w; my $child = fork // die;
    if (!$child) { close $r; print $w "x" x (9000 * $n); close $w; exit $n }
    close $w; local $/; my $all = <$r>; waitpid $child, 0; print length $all, " ", $? >> 8, "\n";
    open my $file, "+>", "$ENV{HOME}/f$n" or die; print $file "$n\n" x 500; seek $file, 3, 0; truncate $file, 300;
    read $file, my $some, 20; $some =~ tr/\n/ /; print "$some\n"; unlink "$ENV{HOME}/f$n";
}'
END
# A configure script, which is a thousand small programs.
unit configure <<'END'
cp -r /mnt/tree/source "$HOME/b" && cd "$HOME/b" && rm -f config.status config.h config.cache Makefile
./configure --disable-nls CFLAGS=-O1 2>&1
cksum config.h Makefile lib/*/Makefile
END
# A build by two jobs: each object file, and what the program then does.
unit build <<'END'
cp -Rp /mnt/tree/source "$HOME/b" && cd "$HOME/b" && make -s -j2 >log 2>&1
echo "$?"
find . -name '*.o' | sort | xargs sha256sum
./bash -c 'for ((n = 0; n < 5; n++)); do echo "$n" | ./bash -c "read x; echo \$((x * x))"; done'
END

# Two times, in a place like the one where they will be: what is not the same then is no unit.
run() (
    rm -rf /mnt/work && mkdir -p /mnt/work/tmp
    cd /mnt/work
    export HOME=/mnt/work TMPDIR=/mnt/work/tmp LC_ALL=C.UTF-8 TERM=dumb
    status=0
    sh "/mnt/tree/units/$1" >/mnt/out 2>&1 </dev/null || status=$?
    echo "status $status" >>/mnt/out
)
for name in $(ls units); do
    say "what $name writes"
    run "$name"
    mv /mnt/out "right/$name"
    run "$name"
    if cmp -s /mnt/out "right/$name"; then
        echo "$name" >>/mnt/units
    else
        say "$name is not the same twice: left out"
    fi
done
rm -rf /mnt/work /mnt/out
cat >check <<'END'
# What a unit writes is what it wrote natively.
cd "$HOME"
sh "/mnt/tree/units/$1" >/tmp/out 2>&1 </dev/null
echo "status $?" >>/tmp/out
diff "/mnt/tree/right/$1" /tmp/out
END
