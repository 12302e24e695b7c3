#!/bin/sh
# Get the servers that the tests talk to. Never fails: what is missing is said, and its tests say so again.
set -u

have() {
    command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ]
}

missing=""
have rabbitmq-server || missing="$missing rabbitmq-server"
have prometheus || missing="$missing prometheus"
[ -z "$missing" ] && exit 0

if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    echo "Installing from Debian's packages:$missing"
    export DEBIAN_FRONTEND=noninteractive
    # The tests start nodes of their own, so the packages' services must not come up.
    policy=/usr/sbin/policy-rc.d
    made_policy=""
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy" && made_policy=yes
    fi
    # shellcheck disable=SC2086
    apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing >/dev/null
    [ -n "$made_policy" ] && rm -f "$policy"
fi

for name in $missing; do
    have "$name" || echo "WARNING: no $name on this machine: the tests that need it are skipped." >&2
done
exit 0
