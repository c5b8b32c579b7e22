# PostgreSQL as its own user: the database in $DATA/postgres. $FRONT starts it.
set -e
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
as="setpriv --reuid postgres --regid postgres --clear-groups"
mkdir "$W/run"
chown postgres "$W/run"
if [ "${1-}" = prepare ]; then
    mkdir "$DATA/postgres"
    chown postgres "$DATA/postgres"
    chmod 700 "$DATA/postgres"
    $as "$bin/initdb" -N --locale=C -A trust -D "$DATA/postgres" >/dev/null
fi
$as $FRONT "$bin/postgres" -D "$DATA/postgres" -k "$W/run" -c listen_addresses= -c shared_buffers=4MB \
    2>"$W/log" &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
query() { "$bin/psql" -X -q -A -t -h "$W/run" -U postgres "$@"; }
for _ in $(seq 250); do query -c 'select 1' >/dev/null 2>&1 && break; sleep 0.1; done
if [ "${1-}" = prepare ]; then
    query -c "create table t as select n, md5(n::text) as digest, repeat('x', 200) as room from generate_series(1, 40000) n" \
        -c 'create index on t (digest)' -c 'vacuum analyze t'
else
    query -c 'select count(*), max(digest), sum(n) from t where n % 7 = 3' \
        -c "select n from t where digest < '01' order by digest" \
        -c 'update t set room = null where n < 100' \
        -c 'select a.n, b.n from t a join t b on a.digest = b.digest where a.n % 4001 = 0'
fi
kill -INT "$server"
status=0
wait "$server" || status=$?
echo "postgres: $status; $(grep -c ERROR "$W/log" || true) errors"
