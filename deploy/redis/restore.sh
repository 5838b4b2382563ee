#!/bin/sh
# Restores a backup, from standard input: when the Redis here starts next, it begins with that in place of what it has, as the
# primary, and lets no verifier in until admit.sh says so: an older state accepts keys that were disabled since.
# Of a group, this is for the server of $GROUP_PRIMARY. `restore.sh join` is for the others: each begins empty and copies it.
set -eu
umask 077
data=${DATA:-/data}
if [ "${1:-}" = join ]; then
  [ "${GROUP_SELF:-}" != "${GROUP_PRIMARY:-}" ] || { echo 'this server is not to join others: give it the backup' >&2 && exit 1; }
  touch "$data/join"
  exit
fi
[ "${GROUP_SELF:-}" = "${GROUP_PRIMARY:-}" ] || { echo "restore the backup on $GROUP_PRIMARY" >&2 && exit 1; }
cat >"$data/unfinished"
[ "$(head -c 5 "$data/unfinished")" = REDIS ] || { echo 'this is no backup' >&2 && rm "$data/unfinished" && exit 1; }
# Redis is to read it whoever runs this.
[ "$(id -u)" != 0 ] || chown "$(ls -dn "$data" | awk '{ print $3 ":" $4 }')" "$data/unfinished"
mv "$data/unfinished" "$data/restore.rdb"
