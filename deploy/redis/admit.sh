#!/bin/sh
# Lets verifiers in again, after restore.sh and once everything that was refused since the backup is refused again; to be
# run on every server.
set -eu
. "$(dirname "$0")/ask.sh"
REDISCLI_AUTH=$(password operator)
export REDISCLI_AUTH
for user in $(here operator acl users | grep '^verifier'); do here operator acl setuser "$user" on; done
here operator acl save
rm -f "${DATA:-/data}/restored"
