#!/usr/bin/env bash
# mutations.sh BUILD [LIST TEST...]: makes each mistake of the list (mutations.txt) in a copy of the sources, builds the tests
# (the tensor library's) beside BUILD and expects one of them to fail. test.sh --long runs it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(mkdir -p "$1" && cd "$1" && pwd)
list=$here/${2:-tests/array/mutations.txt}
tests=("${@:3}")
[ $# -gt 1 ] || tests=(test_array test_goldens test_train)
copy=$build/source
rm -rf "$copy" && mkdir -p "$copy"
# Newer than what an earlier run made, which may be a mistake's.
(cd "$here" && git ls-files -z --cached --others --exclude-standard | tar --null -T - -cf -) | tar -C "$copy" -xmf -
# All or nothing: a mistake that does not compile proves nothing.
made() { cmake --build "$build/out" --parallel "$(nproc)" --target "${tests[@]}" > "$build/log" 2>&1; }
passes() {
  local test
  for test in "${tests[@]}"; do timeout 900 "$build/out/bin/$test" --gtest_brief=1 --gtest_fail_fast > "$build/log" 2>&1 || return 1; done
}
cmake -S "$copy" -B "$build/out" -DCMAKE_BUILD_TYPE=Release -DSPLIT_VULKAN=OFF -DSPLIT_BENCH=OFF > "$build/log" 2>&1
made && passes || { echo "mutations.sh: the tests fail as they are"; tail -5 "$build/log"; exit 1; }
bad=0
while IFS= read -r line; do
  [[ $line != '#'* ]] || continue
  python3 - "$copy" "$line" <<'PY' || { bad=$((bad + 1)); continue; }
import sys
file, was, now = [part.strip().replace("\0", "|") for part in sys.argv[2].replace("\\|", "\0").split("|")]
path = f"{sys.argv[1]}/{file}"
text = open(path).read()
if text.count(was) < 1:
    sys.exit(f"mutations.sh: {file} has no '{was}'")
open(path, "w").write(text.replace(was, now))
PY
  file=$copy/$(cut -d' ' -f1 <<< "$line")
  if ! made; then
    echo "mutations.sh: does not compile: $line"
    bad=$((bad + 1))
  elif passes; then
    echo "mutations.sh: nobody notices: $line"
    bad=$((bad + 1))
  fi
  cp "$here/${file#"$copy"/}" "$file"
done < "$list"
echo "mutations.sh: $bad unnoticed"
exit $((bad > 0))
