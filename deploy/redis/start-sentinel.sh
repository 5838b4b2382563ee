#!/bin/sh
# Starts the Sentinel beside one of three Redis (start.sh). What it learnt of the group survives a restart.
set -eu
umask 077
here=$(dirname "$0")
. "$here/ask.sh"
data=${DATA:-/data}
conf=$data/sentinel.conf
password=$(password sentinel)

learnt=$(grep -E '^sentinel (monitor|myid|config-epoch|leader-epoch|current-epoch|known-)' "$conf" 2>/dev/null || true)
# After restore.sh the group begins anew.
for mark in restore.rdb join restored; do [ ! -e "$data/$mark" ] || learnt=; done
group="sentinel monitor mymaster $GROUP_PRIMARY $redis_port 2"
{
  sh "$here/listen.sh" "$sentinel_port"
  echo "dir $data"
  printf '%s\n' 'sentinel resolve-hostnames yes' 'sentinel announce-hostnames yes' "sentinel announce-ip $GROUP_SELF"
  # Clients may ask who is primary, and nothing else; the Sentinels among themselves may do all.
  printf '%s\n' "user default on $(hashes "$secrets/sentinel-client-password")resetchannels allchannels -@all +hello +ping +subscribe +unsubscribe +sentinel|get-master-addr-by-name +sentinel|sentinels +sentinel|replicas +sentinel|slaves"
  printf '%s\n' "user sentinel on $(hashes "$secrets/sentinel-password")allchannels +@all" 'sentinel sentinel-user sentinel' \
    "sentinel sentinel-pass $password"
  printf '%s\n' "${learnt:-$group}" | grep '^sentinel monitor'
  # Where the Sentinels did not agree on who acts, they try again after twice the second.
  printf '%s\n' 'sentinel auth-user mymaster sentinel' "sentinel auth-pass mymaster $password" \
    "sentinel down-after-milliseconds mymaster ${DOWN_AFTER_MS:-5000}" \
    "sentinel failover-timeout mymaster ${FAILOVER_MS:-10000}"
  printf '%s\n' "$learnt" | grep -v '^sentinel monitor' || true
} >"$conf.new"
mv "$conf.new" "$conf"
exec redis-server "$conf" --sentinel "$@"
