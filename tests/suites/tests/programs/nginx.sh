# nginx, its workers as their own user: $DATA/page to a client. $FRONT starts it.
set -e
cat >"$W/nginx.conf" <<EOF
daemon off; user www-data; worker_processes 2; pid $W/nginx.pid; error_log $W/error.log;
events { worker_connections 64; }
http {
    access_log off; sendfile on; root $DATA/page; aio threads;
    client_body_temp_path $W/t1; proxy_temp_path $W/t2; fastcgi_temp_path $W/t3;
    uwsgi_temp_path $W/t4; scgi_temp_path $W/t5;
    server { listen unix:$W/nginx.sock; }
}
EOF
$FRONT nginx -c "$W/nginx.conf" &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
for _ in $(seq 200); do [ -S "$W/nginx.sock" ] && break; sleep 0.1; done
python3 - "$W/nginx.sock" <<'EOF'
import hashlib, http.client, socket, sys
class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sys.argv[1])
for name in ["index.html", *(f"{n}.svg" for n in range(40)), "missing"]:
    connection = Connection("page")
    connection.request("GET", "/" + name)
    answer = connection.getresponse()
    print(name, answer.status, hashlib.sha256(answer.read()).hexdigest())
EOF
kill -QUIT "$server"
status=0
wait "$server" || status=$?
echo "nginx: $status; $(grep -c alert "$W/error.log" || true) alerts"
