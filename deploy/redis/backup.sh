#!/bin/sh
# Copies all that a Redis holds to $BACKUP/<time>.rdb, and keeps the last $KEEP copies. The time is that at which it
# began: what was disabled later may be missing. It asks the server $REDIS_HOST; without that, of a group a replica that
# has all data, else the server here. A Redis without a port then restores the copy: one that it cannot read is not kept.
set -eu
umask 077
. "$(dirname "$0")/ask.sh"
REDISCLI_AUTH=$(password operator)
export REDISCLI_AUTH
time=$(date -u +%Y-%m-%dT%H:%M:%SZ)

fail() {
  echo "no backup: $1" >&2
  exit 1
}
at() {
  limit=$1
  shift
  ask "$limit" "$host" "$redis_port" --user operator -e "$@"
}
is_replica_with_all() { [ "$(at 5 role 2>/dev/null | sed -n '1p;4p' | tr '\n' ' ')" = 'slave connected ' ]; }

host=${REDIS_HOST:-}
if [ -z "$host" ] && [ -n "${GROUP_HOSTS:-}" ]; then
  for host in $GROUP_HOSTS ''; do
    [ -z "$host" ] || ! is_replica_with_all || break
  done
  [ -n "$host" ] || fail "no replica of $GROUP_HOSTS has all data: look at each with ready.sh"
fi
host=${host:-$self}

copy=$BACKUP/unfinished
rm -rf "$copy"
mkdir "$copy"
trap 'rm -rf "$copy"' EXIT
held=$(at 5 dbsize) || fail "$host does not answer: $held"
at "${BACKUP_S_MAX:-3600}" --rdb "$copy/dump.rdb" >"$copy/log" 2>&1 || fail "$host did not send its data: $(tail -n 1 "$copy/log")"

cd "$copy"
redis-server --port 0 --unixsocket socket --save '' --appendonly no --logfile log --daemonize no &
server=$!
# A server that ends still writes its log.
trap 'kill $server 2>/dev/null; wait $server || :; rm -rf "$copy"' EXIT
restored=
# While it reads the copy it answers, but not with a number.
until [ -n "$restored" ] && [ -z "$(echo "$restored" | tr -d '0-9')" ]; do
  kill -0 "$server" 2>/dev/null || fail "the copy of $host cannot be read: $(tail -n 1 log)"
  sleep 0.1
  restored=$(redis-cli -s socket dbsize 2>/dev/null) || restored=
done
[ "$held" = 0 ] || [ "$restored" != 0 ] || fail "the copy of $host is empty"

mv dump.rdb "../$time.rdb"
cd ..
ls | grep '\.rdb$' | sort -r | tail -n +"$((${KEEP:-14} + 1))" | while read -r old; do rm "$old"; done
echo "$BACKUP/$time.rdb: $restored entries, of $held in $host"
