#!/usr/bin/env bash
# run.sh FOLDER: scripts/cluster as kubectl would send it, against the schemas of Kubernetes' objects as npm has them, which is
# installed into FOLDER. Without kubectl the manifests as they stand, without what kustomization.yaml makes of them. Exits with 77
# where there is no npm.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cluster=$here/../../scripts/cluster folder=$1
"$here/../support/npm_ci.sh" "$here" "$folder"
cp "$here/check.cjs" "$folder"

check() { node "$folder/check.cjs" "$1"; }
check "$cluster/kubernetes.yaml"
check "$cluster/models/claim.yaml"
# A misspelt field is found.
sed 's/periodSeconds: 10/periodSecond: 10/' "$cluster/kubernetes.yaml" > "$folder/misspelt.yaml"
! check "$folder/misspelt.yaml" > "$folder/said" || { echo "run.sh: a misspelt field was not found"; exit 1; }
command -v kubectl > /dev/null || { echo "kustomization.yaml: not made, no kubectl"; exit 0; }
kubectl kustomize "$cluster" > "$folder/plain.yaml"
check "$folder/plain.yaml"
grep -q 'image: .*/splitcompute:[0-9]' "$folder/plain.yaml"
# With models from a volume.
rm -rf "$folder/cluster"
cp -r "$cluster" "$folder/cluster"
sed -i 's/^# components/components/' "$folder/cluster/kustomization.yaml"
kubectl kustomize "$folder/cluster" > "$folder/models.yaml"
check "$folder/models.yaml"
grep -q 'claimName: splitcompute-models' "$folder/models.yaml"
