# Prints where a Redis or a Sentinel listens, for its configuration: on loopback or at $BIND, with a certificate over TLS
# alone, to the others of its group too. Passwords say who somebody is; client certificates are not asked for.
tls=${TLS_FOLDER:-${SECRETS:-/run/secrets}/tls}
echo "bind ${BIND:-127.0.0.1 -::1}"
if [ -e "$tls/tls.crt" ]; then
  printf '%s\n' 'port 0' "tls-port $1" "tls-cert-file $tls/tls.crt" "tls-key-file $tls/tls.key" \
    "tls-ca-cert-file $tls/ca.crt" 'tls-auth-clients no' 'tls-replication yes'
else
  echo "port $1"
fi
