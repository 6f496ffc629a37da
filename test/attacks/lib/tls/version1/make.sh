#!/bin/sh
# Makes the certificates of this directory, which tests of crates/frontend/src/tls/version1.rs and the fuzz target `certificate` read.
# Their keys are thrown away. Plain `openssl x509 -req` makes version 1.
set -e
out=$(pwd)
cd "$(mktemp -d)"
key="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
authority() { openssl req -x509 $key -days 36500 -subj "/CN=$1" -keyout "$1.key" -out "$1.pem"; }
issue() { # name, issuer, what else
  openssl req $key -subj "/CN=$1" -keyout "$1.key" -out "$1.csr"
  name=$1 issuer=$2
  shift 2
  openssl x509 -req -in "$name.csr" -CA "$issuer.pem" -CAkey "$issuer.key" -set_serial 7 -days 36500 -out "$name.pem" "$@"
}
printf 'basicConstraints=critical,CA:TRUE\nkeyUsage=keyCertSign\n' > authority.ext
printf 'basicConstraints=CA:FALSE\nextendedKeyUsage=clientAuth\n' > end.ext
authority root
authority stranger
issue client root
issue foreign stranger
issue middle root -extfile authority.ext
issue below middle
issue old root
issue below_old old
issue new_below_old old -extfile end.ext
cp root.pem client.pem foreign.pem middle.pem below.pem old.pem below_old.pem new_below_old.pem "$out"
