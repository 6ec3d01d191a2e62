# A PostgreSQL of our own in a temporary directory, for ./test and ./bench, which say where logs go ($target).

postgres_dir=
postgres_pid=

# The newest server on this machine. Debian keeps it out of PATH.
postgres_bin() {
    local postgres
    postgres=$(printf '%s\n' /usr/lib/postgresql/*/bin/postgres | sort -V | tail -n 1)
    [[ -x $postgres ]] || postgres=$(command -v postgres) || return 1
    dirname "$postgres"
}

# PostgreSQL refuses to run as root. `setpriv` becomes the program, so its PID is the server's.
as_postgres() {
    if [[ $EUID -eq 0 ]]; then
        set -- setpriv --reuid=postgres --regid=postgres --init-groups -- "$@"
    fi
    exec "$@"
}

# `start_postgres durable`: as in production. Otherwise nothing has to survive a power cut.
start_postgres() {
    local bin port speed=(-c fsync=off -c synchronous_commit=off -c full_page_writes=off)
    [[ ${1:-} != durable ]] || speed=()
    bin=$(postgres_bin)
    port=$(python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
    postgres_dir=$(mktemp -d /tmp/estrade-postgres.XXXXXX) # short: it holds a Unix socket
    [[ $EUID -ne 0 ]] || chown postgres: "$postgres_dir"

    (cd "$postgres_dir" && as_postgres "$bin/initdb" --pgdata="$postgres_dir/data" \
        --username=postgres --auth=trust --encoding=UTF8 --locale=C --no-sync) >/dev/null
    (cd "$postgres_dir" && as_postgres "$bin/postgres" -D "$postgres_dir/data" \
        -c listen_addresses=127.0.0.1 -c port="$port" -c unix_socket_directories="$postgres_dir" \
        -c max_connections=300 "${speed[@]}") \
        >"$target/postgres.log" 2>&1 &
    postgres_pid=$!

    local tries=0
    until "$bin/pg_isready" --quiet --host=127.0.0.1 --port="$port"; do
        if ! kill -0 "$postgres_pid" 2>/dev/null || ((++tries > 300)); then
            cat "$target/postgres.log"
            return 1
        fi
        sleep 0.1
    done
    export ESTRADE_TEST_POSTGRES=postgres://postgres@127.0.0.1:$port/postgres
}

stop_postgres() {
    if [[ -n $postgres_pid ]]; then
        kill -INT "$postgres_pid" 2>/dev/null || true # INT: at once, without waiting for clients
        wait "$postgres_pid" || true
    fi
    [[ -z $postgres_dir ]] || rm -rf "$postgres_dir"
}
