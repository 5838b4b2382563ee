#!/bin/sh
# Makes what each machine keeps in /etc/keyfence, and changes it step by step. It runs on a machine that you trust; $FOLDER
# stays there, because nothing else has the key of the authority.
#   secrets.sh make ADDRESS…   makes what is missing for the machines with Redis at these addresses
#   secrets.sh new NAME        makes the password of one more user, such as verifier-billing-password
#   secrets.sh add NAME        adds a new secret as the second line of a file (or a new authority)
#   secrets.sh use NAME        makes it the first line (or signs all certificates by the new authority)
#   secrets.sh drop NAME       removes the old one
# NAME is a file, such as verifier-password, or `authority`. `use certificates` makes only certificates anew.
# $FOLDER/<address> is for the machine at that address, and $FOLDER/verifier for one with a verifier alone.
set -eu
umask 077
USERS='operator control-plane verifier replica sentinel sentinel-client'
usage() {
  sed -n 's/^#   //p' "$0" >&2
  exit 2
}
fail() {
  echo "$1" >&2
  exit 1
}
[ $# -ge 2 ] || usage
[ -n "${FOLDER:-}" ] || fail 'FOLDER: say where the secrets are, such as FOLDER=~/keyfence-secrets'
mkdir -p "$FOLDER/secrets"
cd "$FOLDER"
step=$1
shift

random() { openssl rand -hex 32; }
# Replaces a file in one moment: put FILE < TEXT
put() {
  cat >"$1.new"
  mv "$1.new" "$1"
}
machines() { for folder in */tls; do [ ! -d "$folder" ] || echo "${folder%/tls}"; done; }

# It tells much, which matters only where it fails.
quietly() {
  told=$("$@" 2>&1) || fail "$told"
}
make_authority() {
  quietly openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj "/CN=Keyfence $(date -u +%Y-%m-%dT%H:%M:%SZ)" \
    -keyout ca.key -out "$1"
}
# Signs by ca.key and the last certificate of ca.crt.
certify() {
  [ -e ca.key ] || fail "$PWD/$1/tls: put tls.crt and tls.key of your authority there, for $1"
  case $1 in *[!0-9.:]*) name=DNS:$1 ;; *) name=IP:$1 ;; esac
  awk '/BEGIN/ { text = "" } { text = text $0 "\n" } END { printf "%s", text }' ca.crt >signer
  echo "subjectAltName=$name" >names
  quietly openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$1" \
    -keyout "$1/tls/tls.key.new" -out request
  quietly openssl x509 -req -in request -CA signer -CAkey ca.key -set_serial "0x$(openssl rand -hex 16)" -days "${DAYS:-365}" \
    -extfile names -out "$1/tls/tls.crt.new"
  for file in key crt; do mv "$1/tls/tls.$file.new" "$1/tls/tls.$file"; done
  rm signer names request
}
# Gives each machine what it needs, and no more.
spread() {
  for machine in $(machines) verifier; do
    files='verifier-password sentinel-client-password'
    [ "$machine" = verifier ] || files=$(cd secrets && echo *)
    mkdir -p "$machine/tls"
    for file in $files; do put "$machine/$file" <"secrets/$file"; done
    put "$machine/tls/ca.crt" <ca.crt
    chmod 640 "$machine"/tls/* # for the group of the folder to which it is copied
  done
}

case $step in
  make)
    [ -e secrets/root-key ] || random | put secrets/root-key
    for user in $USERS; do [ -e "secrets/$user-password" ] || random | put "secrets/$user-password"; done
    [ -e ca.crt ] || make_authority ca.crt
    for address; do
      mkdir -p "$address/tls"
      [ -e "$address/tls/tls.crt" ] || certify "$address"
    done
    ;;
  new)
    case $1 in *[!a-z0-9-]* | -*) usage ;; *-password) ;; *) usage ;; esac
    [ ! -e "secrets/$1" ] || fail "$PWD/secrets/$1 is there already: to replace it, add, then use, then drop"
    random | put "secrets/$1"
    ;;
  add | use | drop)
    file=secrets/$1
    case $step-$1 in
      add-authority) make_authority new && cat ca.crt new | put ca.crt && rm new ;;
      use-authority | use-certificates) for machine in $(machines); do [ "$machine" = verifier ] || certify "$machine"; done ;;
      drop-authority) awk '/BEGIN/ { text = "" } { text = text $0 "\n" } END { printf "%s", text }' ca.crt | put ca.crt ;;
      *)
        lines=$(grep -c . "$file") || fail "$PWD/$file: there is no such secret"
        case $step-$lines in
          add-1) { cat "$file" && random; } | put "$file" ;;
          use-2) { tail -n 1 "$file" && head -n 1 "$file"; } | put "$file" ;;
          drop-2) head -n 1 "$file" | put "$file" ;;
          *) fail "$file has $lines lines: add, then use, then drop" ;;
        esac
        ;;
    esac
    ;;
  *) usage ;;
esac
spread
