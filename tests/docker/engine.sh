# A Docker Engine with the base image of the tests, for ./test and ./bench: `start_docker`, `stop_docker`.
#
# Sourced in the root of the project, with `target` set. Exports ESTRADE_TEST_DOCKER, the engine's socket, and
# ESTRADE_TEST_IMAGE, the tar of the base image.

docker_dir=
docker_pid=

# The engine needs root.
as_root() {
    if [[ $EUID -ne 0 ]]; then
        set -- sudo -n -- "$@"
    fi
    "$@"
}

# The root directory that tests run and build on, made once for each version of its recipe.
base_image() {
    local images=$target/test-images tar
    tar=$images/base-$(sha256sum <tests/docker/base-image | cut -c1-12).tar
    if [[ ! -e $tar ]]; then
        echo "making the base image of the tests (a minute or two, once)" >&2
        mkdir -p "$images"
        rm -f "$images"/base-*
        as_root tests/docker/base-image "$tar"
    fi
    echo "$tar"
}

start_docker() {
    local socket
    ESTRADE_TEST_IMAGE=$(base_image)
    export ESTRADE_TEST_IMAGE
    # Two engines fight over the firewall: one that runs on this machine already is the one to use.
    socket=/var/run/docker.sock
    if [[ -z ${ESTRADE_TEST_DOCKER:-} ]] && docker_api "$socket" /_ping >/dev/null 2>&1; then
        export ESTRADE_TEST_DOCKER=$socket
    fi
    if [[ -z ${ESTRADE_TEST_DOCKER:-} ]]; then
        docker_dir=$(mktemp -d /tmp/estrade-docker.XXXXXX) # short: it holds Unix sockets
        socket=$docker_dir/docker.sock
        as_root env PATH="$PATH:/usr/sbin:/sbin" dockerd --group="$(id -g)" --bridge=none \
            --data-root="$docker_dir/data" --exec-root="$docker_dir/exec" \
            --pidfile="$docker_dir/pid" --host="unix://$socket" >"$target/docker.log" 2>&1 &
        docker_pid=$!
        export ESTRADE_TEST_DOCKER=$socket
    fi

    local tries=0
    until docker_api "$ESTRADE_TEST_DOCKER" /_ping >/dev/null 2>&1; do
        if [[ -n $docker_pid ]] && ! kill -0 "$docker_pid" 2>/dev/null || ((++tries > 300)); then
            [[ -z $docker_pid ]] || tail -n 20 "$target/docker.log"
            echo "no Docker Engine at $ESTRADE_TEST_DOCKER" >&2
            return 1
        fi
        sleep 0.1
    done
    docker_api "$ESTRADE_TEST_DOCKER" "/images/create?fromSrc=-&repo=estrade-test/base&tag=2" \
        --request POST --upload-file "$ESTRADE_TEST_IMAGE" >/dev/null
}

docker_api() {
    local socket=$1 path=$2
    shift 2
    curl --silent --show-error --fail --unix-socket "$socket" "$@" "http://docker$path"
}

stop_docker() {
    if [[ -n $docker_pid ]]; then
        as_root kill -TERM "$(<"$docker_dir/pid")" 2>/dev/null || true # it stops its containers
        wait "$docker_pid" || true
    fi
    [[ -z $docker_dir ]] || as_root rm -rf "$docker_dir"
}
