# An S3 server for ./test: the object gateway of Ceph, from Debian's packages, on loopback only. `start_s3`, `stop_s3`.
#
# Sourced in the root of the project, with `target` set. Exports where it is and with which keys:
# ESTRADE_TEST_S3_ENDPOINT, ESTRADE_TEST_S3_KEY and ESTRADE_TEST_S3_SECRET of its user, and ESTRADE_TEST_S3_BUCKET,
# which exists and is empty. Tests share it, each under a prefix of its own.

s3_dir=
s3_pids=()

# Debian packages that the server needs and the machine does not have, a line each.
missing_s3_packages() {
    local program
    for program in ceph-mon ceph-osd radosgw; do
        has_program "$program" || echo "$program"
    done
    has_program ceph || echo ceph-common
}

# start_s3   One monitor, one store, one gateway, without authentication between them.
start_s3() {
    local monitor gateway
    read -r monitor gateway < <(python3 -c 'import socket
ports = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(port.getsockname()[1] for port in ports))')
    s3_dir=$(mktemp -d /tmp/estrade-s3.XXXXXX) # short: it holds Unix sockets
    mkdir "$s3_dir/run" "$s3_dir/log" "$s3_dir/mon" "$s3_dir/osd"
    write_ceph_configuration "$monitor"
    start_ceph_storage "$monitor" >"$target/s3.log" 2>&1 || show_s3_log
    s3_daemon radosgw -n client.admin --rgw-frontends "beast endpoint=127.0.0.1:$gateway"

    export ESTRADE_TEST_S3_ENDPOINT=http://127.0.0.1:$gateway
    export ESTRADE_TEST_S3_KEY=estrade-test ESTRADE_TEST_S3_SECRET=secret-of-the-tests
    local tries=0
    until curl --silent --output /dev/null --noproxy '*' "$ESTRADE_TEST_S3_ENDPOINT"; do
        ((++tries < 600)) || show_s3_log
        sleep 0.1
    done
    ceph_tool radosgw-admin user create --uid=test --display-name=test \
        --access-key="$ESTRADE_TEST_S3_KEY" --secret-key="$ESTRADE_TEST_S3_SECRET" \
        >>"$target/s3.log" 2>&1 || show_s3_log
    export ESTRADE_TEST_S3_BUCKET=estrade-test
    python3 tests/s3/make_bucket "$ESTRADE_TEST_S3_BUCKET"
}

stop_s3() {
    if [[ ${#s3_pids[@]} -gt 0 ]]; then
        # Nothing here has to survive: they need not tidy up.
        kill -KILL "${s3_pids[@]}" 2>/dev/null || true
        wait "${s3_pids[@]}" 2>/dev/null || true
        s3_pids=()
    fi
    [[ -z $s3_dir ]] || rm -rf "$s3_dir"
    s3_dir=
}

# The connection between daemons is not encrypted: with the default a gateway without authentication never starts.
write_ceph_configuration() {
    cat >"$s3_dir/ceph.conf" <<EOF
[global]
fsid = $(cat /proc/sys/kernel/random/uuid)
mon host = [v2:127.0.0.1:$1]
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
ms mon client mode = crc
mon allow pool size one = true
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd objectstore = bluestore
osd memory target = 939524096
bluestore block size = 4294967296
run dir = $s3_dir/run
admin socket = $s3_dir/run/\$name.\$pid.asok
log file = $s3_dir/log/\$name.log
mon data = $s3_dir/mon
osd data = $s3_dir/osd
keyring = $s3_dir/keyring
EOF
}

start_ceph_storage() {
    local fsid osd
    fsid=$(sed -n 's/^fsid = //p' "$s3_dir/ceph.conf")
    osd=$(cat /proc/sys/kernel/random/uuid)
    ceph-authtool --create-keyring "$s3_dir/keyring" --gen-key -n mon. --cap mon 'allow *'
    ceph-authtool "$s3_dir/keyring" --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *'
    monmaptool --create --clobber --fsid "$fsid" --addv a "[v2:127.0.0.1:$1]" "$s3_dir/monmap"
    ceph_tool ceph-mon --mkfs -i a --monmap "$s3_dir/monmap" --keyring "$s3_dir/keyring"
    s3_daemon ceph-mon -i a
    ceph_tool timeout 60 ceph osd new "$osd"
    ceph_tool ceph-osd -i 0 --mkfs --osd-uuid "$osd"
    s3_daemon ceph-osd -i 0
}

# ceph_tool [timeout SECONDS] PROGRAM ARGUMENT...
ceph_tool() {
    CEPH_CONF=$s3_dir/ceph.conf "$@"
}

# s3_daemon PROGRAM ARGUMENT...   In the foreground, so that its PID is ours. Standard input is not for it.
s3_daemon() {
    CEPH_CONF=$s3_dir/ceph.conf "$@" -f </dev/null >>"$s3_dir/log/$1.out" 2>&1 &
    s3_pids+=($!)
}

show_s3_log() {
    cat "$target/s3.log" >&2
    tail -n 20 "$s3_dir"/log/*.out >&2
    return 1
}
