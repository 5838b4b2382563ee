#!/bin/sh
# Exits 0 when the Redis that start.sh started here holds all there is: it is the primary, or a replica whose link to
# the primary is up. For the probe that lets a rollout go on: until then, stopping another server of the group could
# stop the last one that is whole.
[ -n "${GROUP_SELF:-}" ] || exec sh "$(dirname "$0")/ping.sh"
. "$(dirname "$0")/ask.sh"
reply=$(role) || exit 1
follows=$GROUP_SELF
case $reply in
  master*) ;;
  slave*)
    [ "$(echo "$reply" | sed -n 4p)" = connected ] || exit 1
    follows=$(echo "$reply" | sed -n 2p)
    ;;
  *) exit 1 ;;
esac
# A primary that was replaced while it was away is one no longer, and says so only once it has been told.
known=$(primary_by "$GROUP_SELF")
[ -z "$known" ] || [ "$known" = "$follows" ]
