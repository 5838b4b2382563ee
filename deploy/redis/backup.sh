#!/bin/sh
# Copies all that the Redis at $REDIS_HOST holds to $BACKUP/<time>.rdb, and keeps the last $KEEP. The time is that at
# which it began: what was disabled later may be missing in it.
set -eu
. "$(dirname "$0")/ask.sh"
REDISCLI_AUTH=$(head -n 1 "$secrets/operator-password")
export REDISCLI_AUTH
time=$(date -u +%Y-%m-%dT%H:%M:%SZ)
ask "${BACKUP_S_MAX:-3600}" "$REDIS_HOST" "${PORT:-6379}" --user operator --rdb "$BACKUP/unfinished"
mv "$BACKUP/unfinished" "$BACKUP/$time.rdb"
ls "$BACKUP" | grep '\.rdb$' | sort -r | tail -n +"$((${KEEP:-14} + 1))" | while read -r old; do rm "$BACKUP/$old"; done
echo "$BACKUP/$time.rdb"
