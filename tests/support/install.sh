# How ./test and ./bench install what is missing: they say what it is and, on a terminal, ask. Sourced by both.

assume_yes=no

# Is there a program of that name, also where only root looks?
has_program() {
    PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null
}

# confirm_installation WHAT...   Ends the script when somebody says no. Nobody is asked with --yes, with CI=true or
# without a terminal.
confirm_installation() {
    [[ $# -gt 0 ]] || return 0
    echo "about to install:"
    printf '  %s\n' "$@"
    [[ $assume_yes != yes && ${CI:-} != true && -t 0 ]] || return 0
    local answer
    read -r -p "go on? [y/N] " answer || true
    if [[ $answer != [yY]* ]]; then
        echo "nothing was installed"
        exit 1
    fi
}

# install_debian_packages NAME...
install_debian_packages() {
    [[ $# -gt 0 ]] || return 0
    local sudo=()
    [[ $EUID -eq 0 ]] || sudo=(sudo)
    "${sudo[@]}" apt-get -qq update
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq install -y --no-install-recommends "$@" >/dev/null
}
