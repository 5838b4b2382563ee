#!/bin/sh
# Exits 0 when the Redis that start.sh started here serves; for the probes that ask whether to restart it.
. "$(dirname "$0")/ask.sh"
REDISCLI_AUTH=any here probe ping | grep -q PONG
