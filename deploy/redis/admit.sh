#!/bin/sh
# Lets verifiers in again, after restore.sh and once everything that was refused since the backup is refused again.
set -eu
. "$(dirname "$0")/ask.sh"
REDISCLI_AUTH=$(head -n 1 "$secrets/operator-password")
export REDISCLI_AUTH
for user in $(here operator acl users | grep '^verifier'); do here operator acl setuser "$user" on; done
rm -f "${DATA:-/data}/restored"
