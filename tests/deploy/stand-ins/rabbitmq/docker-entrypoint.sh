#!/bin/bash
# As the official image does: refuse what it refuses, and do not run the server as root.
set -euo pipefail
for name in RABBITMQ_DEFAULT_PASS_FILE RABBITMQ_DEFAULT_USER_FILE RABBITMQ_VM_MEMORY_HIGH_WATERMARK; do
    if [ -n "${!name:-}" ]; then
        echo "error: $name is set but deprecated" >&2
        exit 1
    fi
done
if [ "$1" = rabbitmq-server ] && [ "$(id -u)" = 0 ]; then
    find /var/lib/rabbitmq ! -user rabbitmq -exec chown rabbitmq '{}' +
    exec setpriv --reuid rabbitmq --regid rabbitmq --init-groups "$0" "$@"
fi
exec "$@"
