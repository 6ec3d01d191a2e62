# A Docker Engine for ./test and ./bench: `start_docker` with the base image of the tests, `start_engine` without,
# `import_apps_image`, `stop_docker`.
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
    ESTRADE_TEST_IMAGE=$(base_image)
    export ESTRADE_TEST_IMAGE
    start_engine
    docker_api "$ESTRADE_TEST_DOCKER" "/images/create?fromSrc=-&repo=estrade-test/base&tag=2" \
        --request POST --upload-file "$ESTRADE_TEST_IMAGE" >/dev/null
}

# It has no network of its own: Estrade makes a bridge for each owner, in which builds and instances are.
start_engine() {
    local socket
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
}

# The image on which examples/ and tests/apps are built, as $1. It trusts what this machine trusts, and uses its
# registries and proxies.
import_apps_image() {
    local certificates=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt} images=$target/test-images
    local inside=/etc/ssl/certs/ca-certificates.crt tar changes= name
    tar=$images/apps-$(cat tests/apps/base-image "$certificates" <(npm config get registry 2>/dev/null) |
        sha256sum | cut -c1-12).tar
    if [[ ! -e $tar ]]; then
        echo "making the base image of the samples (a few minutes, once)" >&2
        mkdir -p "$images"
        rm -f "$images"/apps-*
        as_root tests/apps/base-image "$tar" "$certificates"
    fi
    for name in NODE_EXTRA_CA_CERTS PIP_CERT SSL_CERT_FILE REQUESTS_CA_BUNDLE; do
        changes+="&changes=ENV%20$name%3D$inside"
    done
    for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
        [[ -z ${!name:-} ]] || changes+="&changes=ENV%20$name%3D$(jq -rn --arg v "${!name}" '$v | @uri')"
    done
    docker_api "$ESTRADE_TEST_DOCKER" "/images/create?fromSrc=-&repo=${1%:*}&tag=${1##*:}$changes" \
        --request POST --upload-file "$tar" >/dev/null
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
