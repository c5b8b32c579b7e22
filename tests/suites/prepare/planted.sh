# For the harness's own tests: units of a known outcome. RUNAHEAD_PLANTED is set by a false runahead.
mkdir -p /mnt/tree
cd /mnt/tree
echo "planted 1" >/mnt/version
unit() {
    { echo "#!/bin/sh" && cat; } >"$1"
    chmod 755 "$1"
    echo "$1" >>/mnt/units
}
unit passes <<'END'
echo "ok 1 - first"
echo "ok 2 - second # SKIP not here"
echo "1..2"
END
unit fails <<'END'
echo "not ok 1 - fails either way"
echo "1..1"
exit 1
END
unit differs <<'END'
echo "ok 1 - the same"
[ -z "$RUNAHEAD_PLANTED" ] && echo "ok 2 - differs" || echo "not ok 2 - differs"
[ -z "$RUNAHEAD_PLANTED" ] && echo "ok 3 - is lost"
echo "1..3"
END
unit writes <<'END'
echo "ok 1 - the same"
[ -z "$RUNAHEAD_PLANTED" ] && echo "one thing" || echo "another"
echo "$RUNAHEAD_PLANTED" >"$HOME/left"
END
unit ends <<'END'
echo "ok 1 - the same"
[ -z "$RUNAHEAD_PLANTED" ] || kill -SEGV $$
END
unit hangs <<'END'
echo "ok 1 - the same"
[ -z "$RUNAHEAD_PLANTED" ] || sleep 1000
END
unit leaves <<'END'
setsid sleep 1000 </dev/null >/dev/null 2>&1 &
echo "ok 1 - leaves a process that holds the disk"
END
unit changes <<'END'
[ -e changed ] && echo "not ok 1 - sees what the run before did" || echo "ok 1 - sees nothing"
echo changed >>changed
echo changed >>passes
rm fails
END
unit slow <<'END'
echo "ok 1 - never ends"
sleep 1000
END
# More than a page, to be missed when the disk is cold.
head -c 100000 /dev/zero >data
unit cold <<'END'
cat data >/dev/null && echo "ok 1 - reads"
END
