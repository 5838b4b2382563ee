#!/bin/sh
# Starts one Redis: redis.conf and users.acl from this script's folder, passwords from $SECRETS/*-password. Both lines of
# a file with two are good; a replica itself uses the first.
# With $SECRETS/tls/{tls.crt,tls.key,ca.crt} it speaks TLS and nothing else.
# With GROUP_SELF and GROUP_PRIMARY (host names) it is one of three under Sentinel.
set -eu
umask 077
here=$(dirname "$0")
secrets=${SECRETS:-/run/secrets}
data=${DATA:-/data}
port=${PORT:-6379}
conf=$data/redis.conf

# users.acl holds no secret and says how it becomes one user a line.
acl=$(sed -e '/^#/d' "$here/users.acl" | sed -e ':a' -e '$!N' -e 's/\n  */ /' -e 'ta' -e 'P' -e 'D')
for file in "$secrets"/*-password; do
  hashes=$(tr -d '\r' <"$file" | while IFS= read -r password || [ -n "$password" ]; do
    [ -z "$password" ] || printf '#%s ' "$(printf '%s' "$password" | sha256sum | cut -d' ' -f1)"
  done)
  acl=$(printf '%s' "$acl" | sed "s/#@$(basename "$file")@/$hashes/")
done
printf '%s\n' "$acl" | grep '^user' | grep -v '#@' >"$data/users.acl"

# Whose replica this is survives a restart: Sentinel writes it into the file, and may have changed it since.
role=
if [ -n "${GROUP_SELF:-}" ]; then
  if [ -e "$conf" ]; then
    role=$(grep '^replicaof ' "$conf" || true)
  elif [ "$GROUP_SELF" != "$GROUP_PRIMARY" ]; then
    role="replicaof $GROUP_PRIMARY $port"
  fi
fi
{
  cat "$here/redis.conf"
  sh "$here/listen.sh" "$port"
  printf '%s\n' "dir $data" "aclfile $data/users.acl" 'protected-mode no'
  if [ -n "${GROUP_SELF:-}" ]; then
    printf '%s\n' "replica-announce-ip $GROUP_SELF" 'masteruser replica' \
      "masterauth $(head -n 1 "$secrets/replica-password")" "$role"
    # A replica that lost touch is back soon: until then no write is on all of them.
    echo 'repl-diskless-sync-delay 0'
    # A primary without its replicas stops accepting, so that it cannot go on beside its successor.
    printf '%s\n' 'min-replicas-to-write 1' 'min-replicas-max-lag 2'
  fi
} >"$conf.new"
mv "$conf.new" "$conf"
exec redis-server "$conf" "$@"
