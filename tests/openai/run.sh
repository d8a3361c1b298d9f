#!/usr/bin/env bash
# run.sh BINARIES FOLDER: clients of OpenAI's, Anthropic's and Ollama's routes, of npm's, against edge_client --serve and
# cloud_server on free ports: of the demo model, and of one that calls a tool. The clients are installed into FOLDER. Exits
# with 77 where there is no npm.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
binaries=$1 folder=$2

"$here/../support/npm_ci.sh" "$here" "$folder"
cp "$here"/*.mjs "$folder"

# shellcheck source=tests/support/serving.sh
. "$here/../support/serving.sh"
cd "$folder"
serve demo 6
node test.mjs "$url"
node clients.mjs "$url"
node "$here/saying.mjs" "$folder/saying"
serve saying 1 --model "$folder/saying"
node tools.mjs "$url" "$cloud"
ranker=$(cd "$here/../golden/models/rerank-xlmr" && pwd)
serve ranker 1 --model "$ranker"
node rank.mjs rerank-xlmr "$url" "$cloud"
