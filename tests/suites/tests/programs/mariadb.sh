# MariaDB as its own user: the database in $DATA/mariadb. $FRONT starts it.
set -e
mkdir "$W/run"
chown mysql "$W/run"
if [ "${1-}" = prepare ]; then
    mariadb-install-db --no-defaults --user=mysql --datadir="$DATA/mariadb" --skip-test-db >/dev/null
fi
setpriv --reuid mysql --regid mysql --clear-groups $FRONT mariadbd --no-defaults --datadir="$DATA/mariadb" --socket="$W/run/socket" --skip-networking \
    --pid-file="$W/run/pid" --innodb-buffer-pool-size=8M --innodb-buffer-pool-load-at-startup=0 \
    --log-warnings=0 --silent-startup 2>"$W/log" &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
query() { mariadb --no-defaults --batch --socket="$W/run/socket" -u root "$@"; }
for _ in $(seq 250); do query -e 'select 1' >/dev/null 2>&1 && break; sleep 0.1; done
if [ "${1-}" = prepare ]; then
    query -e "create database d; use d; create table d.t (n int primary key, digest char(32), room char(200), index (digest));
        insert into d.t select seq, md5(seq), repeat('x', 200) from seq_1_to_20000"
else
    query -e "select count(*), max(digest), sum(n) from d.t where n % 7 = 3;
        select n from d.t where digest < '01' order by digest;
        update d.t set room = null where n < 100;
        select a.n, b.n from d.t a join d.t b on a.digest = b.digest where a.n % 4001 = 0"
fi
kill -TERM "$server"
status=0
wait "$server" || status=$?
echo "mariadbd: $status; $(grep -c ERROR "$W/log" || true) errors"
