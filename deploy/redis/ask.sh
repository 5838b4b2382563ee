# Functions that ask the Redis which start.sh started here, and the Sentinels of its group ($GROUP_HOSTS).
secrets=${SECRETS:-/run/secrets}

# ask SECONDS HOST PORT [redis-cli's arguments]: prints the reply; the password is in REDISCLI_AUTH.
ask() {
  limit=$1 at=$2 port=$3
  shift 3
  [ -e "$secrets/tls/ca.crt" ] && set -- --tls --cacert "$secrets/tls/ca.crt" "$@"
  set -- redis-cli -h "$at" -p "$port" --no-auth-warning "$@"
  # macOS has no timeout, and no group either.
  if command -v timeout >/dev/null; then timeout "$limit" "$@"; else "$@"; fi
}

# Asks the Redis here as a user: here USER COMMAND …
here() {
  user=$1
  shift
  ask 5 "${BIND:-127.0.0.1}" "${PORT:-6379}" --user "$user" "$@"
}

# The role of the Redis here, as ROLE tells it, a word or number a line.
role() { REDISCLI_AUTH=any here probe role; }

# The reply of the Sentinel on one host to a question that every client may ask.
sentinel() {
  at=$1
  shift
  REDISCLI_AUTH=$(head -n 1 "$secrets/sentinel-client-password" | tr -d '\r') ask 2 "$at" "${SENTINEL_PORT:-26379}" sentinel "$@"
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
