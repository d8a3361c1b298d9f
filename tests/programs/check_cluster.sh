#!/usr/bin/env bash
# check_cluster.sh: what scripts/cluster and compose.yaml say is valid, by the programs that read it, where they are installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=$PATH:/usr/sbin
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

if command -v haproxy > /dev/null; then
  LISTEN=127.0.0.1:8080 REPLICA_A=127.0.0.1:8081 REPLICA_B=127.0.0.1:8082 REPLICA_C=127.0.0.1:8083 \
    haproxy -c -f scripts/cluster/haproxy.cfg
  # A fourth replica, and each of two balancers.
  for peer in a b; do
    LISTEN=127.0.0.1:8080 REPLICA_A=127.0.0.1:8081 REPLICA_B=127.0.0.1:8082 REPLICA_C=127.0.0.1:8083 REPLICA_D=127.0.0.1:8084 \
      PEER=$peer PEER_LISTEN=127.0.0.1:10000 PEER_A=127.0.0.1:10000 PEER_B=127.0.0.1:10000 haproxy -c -f scripts/cluster/haproxy.cfg
  done
  # Names as in Kubernetes: one that nobody knows yet is no reason not to start, and TLS has its key beside the certificate.
  openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=test -keyout "$dir/tls.key" -out "$dir/tls.crt" 2> /dev/null
  LISTEN=127.0.0.1:8443 REPLICAS=replicas.invalid:8080 STATUS=127.0.0.1:8404 CERTIFICATE=$dir/tls.crt \
    haproxy -c -f scripts/cluster/haproxy.cfg 2> "$dir/said" || { cat "$dir/said"; exit 1; }
else
  echo "haproxy.cfg: not checked, no haproxy"
fi
if command -v nginx > /dev/null; then
  nginx -t -p "$dir" -c "$PWD/scripts/cluster/nginx.conf"
else
  echo "nginx.conf: not checked, no nginx"
fi
if command -v docker-compose > /dev/null; then
  docker-compose --profile cluster config -q && echo "compose.yaml: valid"
else
  echo "compose.yaml: read as YAML only, no docker-compose"
fi
if command -v promtool > /dev/null; then
  promtool check rules scripts/cluster/alerts.yaml
else
  echo "alerts.yaml: metrics checked only, no promtool"
fi
/usr/bin/python3 tests/programs/check_manifests.py
