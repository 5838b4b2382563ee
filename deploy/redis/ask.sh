# Functions that ask the Redis which start.sh started here, and the Sentinels of its group ($GROUP_HOSTS), and those that
# read passwords.
secrets=${SECRETS:-/run/secrets}
tls=${TLS_FOLDER:-$secrets/tls}
redis_port=${REDIS_PORT:-6379}
sentinel_port=${SENTINEL_PORT:-26379}
self=${BIND:-127.0.0.1}
# `*` is every address.
case $self in '*'*) self=127.0.0.1 ;; esac
self=${self%% *}

# The password of a user that is used here: the first line of its file.
password() { head -n 1 "$secrets/$1-password" | tr -d '\r'; }

# The SHA-256 of each password in a file, as ACL rules: all of them are good.
hashes() {
  tr -d '\r' <"$1" | while IFS= read -r password || [ -n "$password" ]; do
    [ -z "$password" ] || printf '#%s ' "$(printf '%s' "$password" | sha256sum | cut -d' ' -f1)"
  done
}

# The users of users.acl that have a password, one a line. users.acl holds no secret and says how it becomes this.
users() {
  acl=$(sed -e '/^#/d' "$(dirname "$0")/users.acl" | sed -e ':a' -e '$!N' -e 's/\n  */ /' -e 'ta' -e 'P' -e 'D')
  for file in "$secrets"/*-password; do
    acl=$(printf '%s' "$acl" | sed "s/#@$(basename "$file")@/$(hashes "$file")/")
  done
  printf '%s\n' "$acl" | grep '^user' | grep -v '#@'
}

# ask SECONDS HOST PORT [redis-cli's arguments]: prints the reply; the password is in REDISCLI_AUTH.
ask() {
  limit=$1 at=$2 port=$3
  shift 3
  [ -e "$tls/ca.crt" ] && set -- --tls --cacert "$tls/ca.crt" ${verify:-} "$@"
  set -- redis-cli -h "$at" -p "$port" --no-auth-warning "$@"
  # macOS has no timeout, and no group either.
  if command -v timeout >/dev/null; then timeout "$limit" "$@"; else "$@"; fi
}

# Asks the Redis here as a user: here USER COMMAND …
here() {
  user=$1
  shift
  ask 5 "$self" "$redis_port" --user "$user" "$@"
}

# Whether the Redis here has a certificate of this authority: is_ours [openssl's arguments]
is_ours() {
  case $self in *:*) at="[$self]" ;; *) at=$self ;; esac
  openssl s_client -connect "$at:$redis_port" -CAfile "$tls/ca.crt" -verify_return_error "$@" </dev/null >/dev/null 2>&1
}

# Whether that has ended: it is good but for its time.
has_ended() { ! is_ours && is_ours -no_check_time; }

# The role of the Redis here in its group, as ROLE tells it, a word or number a line.
role() { REDISCLI_AUTH=$(password sentinel) here sentinel role; }

# The reply of the Sentinel on one host to a question that every client may ask.
sentinel() {
  at=$1
  shift
  REDISCLI_AUTH=$(password sentinel-client) ask 2 "$at" "$sentinel_port" sentinel "$@"
}

# The host of the primary as the Sentinel on one host knows it; nothing where that does not answer.
primary_by() { sentinel "$1" get-master-addr-by-name mymaster 2>/dev/null | sed -n 1p; }

# The host of the primary as most Sentinels know it; nothing where most do not answer, or differ.
primary() {
  { for host in ${GROUP_HOSTS:-}; do primary_by "$host" & done; wait; } | grep . | sort | uniq -c |
    awk -v all="$(echo "${GROUP_HOSTS:-}" | wc -w)" '2 * $1 > all { print $2 }'
}

# Whether some Sentinel has seen replicas, which there are once the primary has been up.
group_had_replicas() {
  for host in ${GROUP_HOSTS:-}; do
    [ -z "$(sentinel "$host" replicas mymaster 2>/dev/null)" ] || return 0
  done
  return 1
}
