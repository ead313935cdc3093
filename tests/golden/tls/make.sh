#!/bin/sh
# A certificate of its own for `localhost`, and its key, which guards nothing: tests/remote/tls.rs serves with them.
set -eu
cd "$(dirname "$0")"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 36500 -subj /CN=localhost \
  -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE \
  -keyout key.pem -out certificate.pem
