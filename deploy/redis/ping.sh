#!/bin/sh
# Exits 0 when the Redis that start.sh started here serves; for probes.
ca=${SECRETS:-/run/secrets}/tls/ca.crt
[ -e "$ca" ] && set -- --tls --cacert "$ca"
redis-cli -h "${BIND:-127.0.0.1}" -p "${PORT:-6379}" "$@" --user probe --pass any --no-auth-warning ping | grep -q PONG
