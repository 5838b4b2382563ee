#!/bin/sh
# Starts one Redis: redis.conf and users.acl from this script's folder, passwords from $SECRETS/*-password. Both lines of
# a file with two are good; a replica itself uses the first. It listens on loopback, or at $BIND.
# With MEMORY_LIMIT_BYTES, what the container may use, Redis refuses new keys at three fifths of it: what is left is for
# rewriting the append-only file.
# With tls.crt, tls.key and ca.crt in $TLS_FOLDER ($SECRETS/tls) it speaks TLS and nothing else.
# With GROUP_SELF, GROUP_HOSTS and GROUP_PRIMARY (host names: its own, all, and who is primary at the very first) it is
# one of three under Sentinel.
set -eu
umask 077
here=$(dirname "$0")
. "$here/ask.sh"
data=${DATA:-/data}
conf=$data/redis.conf

# What restore.sh has left; by this name Redis takes it for the beginning of its append-only file.
restores=
if [ -e "$data/restore.rdb" ]; then
  restores=1
  rm -rf "$data/appendonlydir" "$conf"
  touch "$data/restored"
  mv "$data/restore.rdb" "$data/appendonly.aof"
elif [ -e "$data/join" ]; then
  rm -rf "$data/appendonlydir" "$data/appendonly.aof" "$conf"
  touch "$data/restored"
  rm "$data/join"
fi

acl=$(users)
# A user that somebody set to off stays off. After restore.sh no verifier reads what it brought back until admit.sh says so.
off=$(sed -n 's/^user \([^ ]*\) off .*/\1/p' "$data/users.acl" 2>/dev/null || true)
[ ! -e "$data/restored" ] || off="$off $(printf '%s\n' "$acl" | sed -n 's/^user \(verifier[^ ]*\) .*/\1/p')"
printf '%s\n' "$acl" |
  awk -v off=" $(echo $off) " 'index(off, " " $2 " ") { $3 = "off" } { print }' >"$data/users.acl.new"
mv "$data/users.acl.new" "$data/users.acl"

# The Sentinels know who is primary, as soon as there is a group; while they cannot be asked, it is as it was.
role=
if [ -n "${GROUP_SELF:-}" ]; then
  known=$(primary || true)
  # Sentinels that still run would make it a replica of what it replaces.
  while [ -n "$restores" ] && [ -n "$known" ] && [ "$known" != "$GROUP_SELF" ]; do
    echo "the Sentinels say that $known is the primary: stop them all, run \`restore.sh join\` there, and start them again"
    sleep 1
    known=$(primary || true)
  done
  # The replicas of a primary that comes back with an empty disk would empty theirs: it waits for its successor.
  while [ "$known" = "$GROUP_SELF" ] && [ ! -e "$data/appendonlydir" ] && [ ! -e "$data/appendonly.aof" ] && group_had_replicas; do
    echo "the disk is empty, and this is the primary: waiting until the Sentinels have made another one"
    sleep 1
    known=$(primary || true)
  done
  if [ -n "$known" ]; then
    [ "$known" = "$GROUP_SELF" ] || role="replicaof $known $redis_port"
  elif [ -e "$conf" ]; then
    role=$(grep '^replicaof ' "$conf" || true)
  elif [ "$GROUP_SELF" != "$GROUP_PRIMARY" ]; then
    role="replicaof $GROUP_PRIMARY $redis_port"
  fi
fi
{
  cat "$here/redis.conf"
  sh "$here/listen.sh" "$redis_port"
  printf '%s\n' "dir $data" "aclfile $data/users.acl"
  [ -z "${MEMORY_LIMIT_BYTES:-}" ] || echo "maxmemory $((MEMORY_LIMIT_BYTES / 5 * 3))"
  if [ -n "${GROUP_SELF:-}" ]; then
    printf '%s\n' "replica-announce-ip $GROUP_SELF" 'masteruser replica' \
      "masterauth $(password replica)" "$role"
    # A replica that lost touch is back soon: until then no write is on all of them.
    echo 'repl-diskless-sync-delay 0'
    # One that has just synced would not stop until its append-only file is written anew; hand-over.sh waits for that.
    echo 'shutdown-on-sigterm force'
    # A primary without its replicas stops accepting, so that it cannot go on beside its successor.
    printf '%s\n' 'min-replicas-to-write 1' 'min-replicas-max-lag 2'
  fi
} >"$conf.new"
mv "$conf.new" "$conf"
exec redis-server "$conf" "$@"
