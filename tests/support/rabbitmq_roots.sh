#!/bin/sh
# Make root file systems that hold a later RabbitMQ, from Debian's own packages: rabbitmq_roots.sh [4.0] [4.3]
# They lie in OVERNIGHT_TEST_ROOTS and are kept; one that is there already is left alone. Needs root.
set -eu

ROOTS=${OVERNIGHT_TEST_ROOTS:-/var/tmp/overnight-rabbitmq-roots}

suite_of() {
    case $1 in
        4.0) echo trixie ;;
        4.3) echo testing ;;
        *) echo "no root is known for RabbitMQ $1; known are 4.0 and 4.3" >&2; return 2 ;;
    esac
}

# Where this machine gets its own packages from, other suites are too.
archive() {
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -n 1
}

make_root() {
    version=$1
    suite=$(suite_of "$version")
    [ -e "$ROOTS/$version/usr/lib/rabbitmq/bin/rabbitmq-server" ] && return
    command -v mmdebstrap >/dev/null || { echo "no mmdebstrap: apt-get install mmdebstrap" >&2; return 1; }
    echo "RabbitMQ $version from Debian's $suite, into $ROOTS/$version"
    part="$ROOTS/part-$version-$$"
    mkdir -p "$ROOTS"
    # The signature of a moving suite is checked, but not its date: an archive may lag behind the clock.
    # erl_call comes with erlang-base; the services of the packages do not start in a root.
    if mmdebstrap --quiet --mode=root --variant=minbase \
        --dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        --aptopt='Acquire::Check-Valid-Until "false"' \
        --customize-hook='echo 127.0.0.1 localhost >"$1/etc/hosts"' \
        --include=rabbitmq-server "$suite" "$part" "deb $(archive) $suite main"
    then
        mv "$part" "$ROOTS/$version"
    else
        rm -rf --one-file-system "$part"
        return 1
    fi
}

[ $# -gt 0 ] || set -- 4.0 4.3
for wanted in "$@"; do
    make_root "$wanted"
done
