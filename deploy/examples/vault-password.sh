#!/bin/sh
# Prints the password of a static role of Vault's database engine, for REDIS_PASSWORD_COMMAND='vault-password.sh <role>'.
#
# Needs VAULT_ADDR and VAULT_TOKEN_FILE, and curl. Vault replaces the password when it likes: Keyfence asks again when Redis
# refuses the one that it has.
set -eu
answer=$(printf 'header = "X-Vault-Token: %s"\n' "$(head -n 1 "$VAULT_TOKEN_FILE")" |
  curl -sSf -m 4 -K - "$VAULT_ADDR/v1/database/static-creds/$1")
printf '%s\n' "$answer" | sed -n 's/.*"password": *"\([^"\\]*\)".*/\1/p'
