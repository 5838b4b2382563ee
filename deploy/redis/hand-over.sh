#!/bin/sh
# Makes a replica the primary where the Redis that start.sh started here is it; to be run before it is stopped. Sentinels
# would notice its end only after some seconds. Writes wait meanwhile, so that the replica has all of them; reads are
# served. Exits 0 also where there is nobody to hand over to.
set -u
. "$(dirname "$0")/ask.sh"
[ -n "${GROUP_SELF:-}" ] || exit 0
REDISCLI_AUTH=$(password sentinel)
export REDISCLI_AUTH
others=$(printf '%s\n' $GROUP_HOSTS | grep -vxF "$GROUP_SELF")

# Tries a command until it succeeds, for some seconds: wait_for SECONDS COMMAND
wait_for() {
  until=$(($(date +%s) + $1))
  shift
  until "$@"; do
    [ "$(date +%s)" -lt "$until" ] || return 1
    sleep 0.1
  done
}

is_primary() { role | sed -n 1p | grep -q master; }
# The offset of each replica that is in sync; with that of the primary before it.
replicas() { role | awk 'NR > 4 && NR % 3 == 2'; }
offsets() { role | awk 'NR == 2 || NR > 4 && NR % 3 == 2'; }
# Nobody is to be waited for where all servers stop at once.
is_alone() {
  for host in $others; do [ -z "$(primary_by "$host")" ] || return 1; done
}
# They ask for replicas each ten seconds, and nobody would tell one that they do not know whom to follow next.
are_known() {
  for host in $others; do
    [ -z "$(primary_by "$host")" ] || [ "$(sentinel "$host" replicas mymaster | grep -cx name)" -ge "$(replicas | wc -l)" ] || return 1
  done
}
can_leave() { ! is_primary || { [ -n "$(replicas)" ] && are_known; } || is_alone; }
is_level() { [ "$(offsets | sort -u | wc -l)" = 1 ]; }
# The host of the primary as those know who go on; the Sentinel here is stopping, too.
is_replaced() {
  for host in $others; do
    successor=$(primary_by "$host")
    [ -n "$successor" ] && [ "$successor" != "$GROUP_SELF" ] && return
  done
  return 1
}
# The first Sentinel that answers acts, without asking the others; while it does, it refuses to begin again.
begin() {
  for host in $others; do
    reply=$(ask 2 "$host" "$sentinel_port" --user sentinel sentinel failover mymaster 2>&1)
    case $reply in OK | INPROG* | NOGOODSLAVE*) return ;; esac
  done
}
is_handed_over() {
  is_replaced && return
  begin
  return 1
}

# What has just synced is not on the disk yet.
is_on_disk() { here sentinel info persistence | grep -q '^aof_rewrite_in_progress:0'; }

wait_for 20 is_on_disk
wait_for 15 can_leave
is_primary && [ -n "$(replicas)" ] || exit 0
here sentinel client pause 25000 write
wait_for 5 is_level
if wait_for 15 is_handed_over; then
  # The Sentinels would tell it some seconds later. Where that fails, the pause goes on until it is stopped.
  here sentinel slaveof "$successor" "$redis_port" | grep -q OK || exit 0
  here sentinel config rewrite
fi
here sentinel client unpause
# Whoever is connected looks for the primary again.
here sentinel client kill type normal
here sentinel client kill type pubsub
