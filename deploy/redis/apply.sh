#!/bin/sh
# Gives the Redis that start.sh started here what users.acl, the passwords and the certificates say now. Nothing is
# restarted, and no connection closed but those of users that are gone. A user that is off stays off. No argument has a
# password, which others could see.
set -eu
. "$(dirname "$0")/ask.sh"
REDISCLI_AUTH=$(password operator)
export REDISCLI_AUTH
# Where the certificate has ended, this is what gives it another.
here operator ping >/dev/null 2>&1 || ! has_ended || verify=--insecure
listed=$(here operator -e acl list)
off=" $(printf '%s\n' "$listed" | sed -n 's/^user \([^ ]*\) off .*/\1/p' | tr '\n' ' ')"
for file in "$secrets"/*-password; do
  [ -n "$(hashes "$file")" ] || { echo "$file: no password can be read there; nothing was changed" >&2 && exit 1; }
done
# Read once, and whole: a list that broke off would take users away.
wished=$(users)
printf '%s\n' "$wished" | {
  set -f # rules have stars
  while read -r _ user state rules; do
    case $off in *" $user "*) state=off ;; esac
    here operator -e acl setuser "$user" reset "$state" $rules >/dev/null
  done
}
names=" $(printf '%s\n' "$wished" | cut -d' ' -f2 | tr '\n' ' ')"
there=$(here operator -e acl users)
for each in $there; do
  case $names in *" $each "*) continue ;; esac
  here operator -e acl deluser "$each" >/dev/null
  echo "the user $each is gone: users.acl has none of this name, or $secrets no password of it"
done
here operator -e acl save >/dev/null
[ -z "${GROUP_SELF:-}" ] || printf %s "$(password replica)" | here operator -e -x config set masterauth >/dev/null
[ ! -e "$tls/tls.crt" ] || here operator -e config set tls-cert-file "$tls/tls.crt" tls-key-file "$tls/tls.key" \
  tls-ca-cert-file "$tls/ca.crt" >/dev/null
echo "$self has the passwords and certificates"
