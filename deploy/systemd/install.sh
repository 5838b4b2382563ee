#!/bin/sh
# Installs this machine: install.sh ITS-ADDRESS FIRST SECOND THIRD. At one of the last three addresses it runs Redis,
# Sentinel, a control plane and a verifier; at any other a verifier alone. The first is the primary at the very first.
# Its secrets are in /etc/keyfence already (secrets.sh). It keeps settings that are there. With DESTDIR it writes below
# that folder, and starts nothing.
set -eu
[ $# = 4 ] || { sed -n '2,5s/^# //p' "$0" >&2 && exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
etc=${DESTDIR:-}/etc/keyfence
self=$1
shift
parts=verifier
case " $* " in *" $self "*) parts='redis sentinel control-plane verifier' ;; esac
[ -e "$etc/verifier-password" ] || { echo "$etc: copy the files that secrets.sh made for $self there first" >&2 && exit 1; }
if [ -z "${DESTDIR:-}" ]; then
  [ "$here" = /opt/keyfence/deploy/systemd ] || { echo "$here: the units need the project in /opt/keyfence" >&2 && exit 1; }
  systemd-sysusers "$here/keyfence.sysusers"
  chown -R root:root "$etc"
  chown -R root:keyfence-tls "$etc/tls"
  echo vm.overcommit_memory=1 >/etc/sysctl.d/60-keyfence.conf # or Redis cannot fork when it fills half the memory
  sysctl -q -p /etc/sysctl.d/60-keyfence.conf
fi
chmod 755 "$etc"
chmod 2750 "$etc/tls" # so that what is copied here later has its group
find "$etc" -maxdepth 1 -type f ! -name '*.env' -exec chmod 600 {} +
find "$etc/tls" -type f -exec chmod 640 {} +

scheme=redis
[ ! -e "$etc/tls/ca.crt" ] || scheme=rediss
sentinels=
for host; do sentinels=$sentinels,$scheme://$host:${SENTINEL_PORT:-26379}; done
settings() { [ -e "$etc/$1.env" ] || cat >"$etc/$1.env"; }
redis_client() {
  printf '%s\n' "ADMIN_HOST=$self" REDIS_MODE=sentinel "REDIS_URL=${sentinels#,}" REDIS_REPLICAS=2
  [ ! -e "$etc/tls/ca.crt" ] || echo REDIS_TLS_CA_FILE=/etc/keyfence/tls/ca.crt
}
redis_client | settings verifier
if [ "$parts" != verifier ]; then
  { echo "HOST=$self" && redis_client; } | settings control-plane
  settings redis <<SETTINGS
GROUP_SELF=$self
GROUP_HOSTS="$*"
GROUP_PRIMARY=$1
BIND=$self
DATA=/var/lib/keyfence-redis
SECRETS=/etc/keyfence
TLS_FOLDER=/etc/keyfence/tls
MEMORY_LIMIT_BYTES=$(awk '/^MemTotal:/ { printf "%.0f", $2 * 512 }' /proc/meminfo)
SETTINGS
fi
for part in $parts; do
  [ -n "${DESTDIR:-}" ] || systemctl enable --now "$here/keyfence-$part.service"
done
