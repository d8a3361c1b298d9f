#!/usr/bin/env bash
# check.sh [--all]: says what a tool can say about the sources, before a reader has to: clang-format, sizes of folders,
# headers and sources, production lines by folder, shellcheck, names in the READMEs, comment lines without a subject, and
# clang-tidy. Of comments and for clang-tidy, which is slow, it looks at what the last 20 commits changed (at most 32
# files, drawn by the commit), and with --all at the whole tree.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

. scripts/shared.sh

all=''
case ${1-} in
  '') ;;
  --all) all=1 ;;
  *) refuse "unknown option '$1'" ;;
esac
most_tidied=24  # some 6 s of a processor each: 75 s on two
failures=0
# finding FOUND WHY: anything that was found is a failure.
finding() { [ -z "$1" ] || { echo "$1"; say "check.sh: $2"; failures=$((failures + 1)); }; }

# A checkout that belongs to another user is still one to look at.
git() { command git -c safe.directory='*' "$@"; }
files() { git ls-files --cached --others --exclude-standard -- "$@" | while read -r f; do [ ! -f "$f" ] || echo "$f"; done; }
base=$(git rev-list --first-parent -n 21 HEAD | tail -n 1)
[ "$base" != "$(git rev-parse HEAD)" ] || [ -n "$all" ] || say "check.sh: one commit: no changes to look at"

# --- format
finding "$(files '*.cpp' '*.h' | xargs -P "$(nproc)" -n 32 clang-format-14 --dry-run -Werror 2>&1 | grep error:)" \
  "clang-format-14 -i mends these"
# A line of dashes behind a heading is one that clang-format broke off.
finding "$(files '*.cpp' '*.h' | xargs grep -nE '^// -{16,}$')" "a heading is '// --- words' on one line"

# --- folders and headers
finding "$(files {cloud_server,common,edge_client,tests}/\*.{cpp,h} | xargs -n 1 dirname | sort | uniq -c |
  awk '$1 > ($2 ~ /^common\/(http|serve)$/ ? 32 : 25) { print $2 ": " $1 " sources" }')" \
  "a folder holds 25 sources itself at most, common/http and common/serve 32"
finding "$(files '*.h' | xargs awk 'FNR == 301 { print FILENAME ": more than 300 lines" }')" "a header has 300 lines at most"
finding "$(files '*.cpp' '*.js' | grep -v '^tests/' | xargs awk 'FNR == 451 { print FILENAME ": more than 450 lines" }')" "a source has 450 lines at most"

# --- production lines
# A folder may outgrow its row by 2 %; a row is raised by a commit of its own, whose body says what for.
lines_of_folders() {
  files {cloud_server,common,edge_client}/\*.{h,cpp,def,comp,glsl,wgsl,js,css,html,inc} | xargs wc -l |
    awk '$2 != "total" { n = split($2, at, "/"); sum[n > 2 ? at[1] "/" at[2] : at[1]] += $1 } END { for (f in sum) print f, sum[f] }'
}
finding "$(awk 'FNR == NR { row[$1] = $2; next }
  !($1 in row) { print $1 ": " $2 " lines and no row" }
  $1 in row && $2 > row[$1] * 1.02 { print $1 ": " $2 " lines, its row allows " row[$1] " and 2 %" }' \
  .github/lines.txt <(lines_of_folders))" "a folder is larger than .github/lines.txt allows"

# --- scripts
# SC2015: `a && b || fail` is meant, b being something that does not fail by itself. SC2016: so are single quotes.
finding "$(files '*.sh' .ci/run | xargs shellcheck -x -e SC2015,SC2016)" "shellcheck"

# --- READMEs
# Names alone; the test Readmes also compares flags and routes, and runs the lines.
names=$(python3 tests/readmes/check.py) && names=''
finding "$names" "these READMEs and comments name what is not there"

# --- comments
# A comment starts with a verb or a noun, and leans on no other: "The same", "likewise". One that was moved or wrapped anew is not new: its words, without spaces and
# marks, are among those that went. Only the first line of a block may not be "It ..." or "And ...": a sentence inside may.
subjectless='^([[:space:]]*(//|#) (Of\b|For whom\b|Whose\b|Which\b|Told\b|To who\b|What |The same\b|As [A-Z]|Those of\b|None where\b|And |It |They )|.*(//|#) (likewise|of these)\b|.*[^[:space:]][[:space:]]{2,}(//|#) (of|and|that|those|none|which|whose)\b)'
sources=('*.h' '*.cpp' '*.def' '*.comp' '*.glsl' '*.sh' '*.py' '*.cmake' '*CMakeLists.txt')
new=$(git diff -M -w --ignore-blank-lines -U1 "$base" -- "${sources[@]}" | awk '
  function words(line) { gsub(/[[:space:]]|\/\/|#/, "", line); return line }
  function mark(line) { return match(line, /\/\/|#/) }
  /^@@/ { before = "" }
  /^-/ && !/^--- / { gone = gone words(substr($0, 2)) }
  /^\+\+\+ / { file = substr($0, 7) }
  /^\+/ && !/^\+\+\+ / {
    line = substr($0, 2)
    goes_on = mark(line) > 0 && mark(line) == mark(before) && line ~ /^[[:space:]]*(\/\/|#) (And|It|They) /
    if (!goes_on) { added[++n] = line; from[n] = file }
  }
  /^[ +]/ && !/^\+\+\+ / { before = substr($0, 2) }
  END { for (i = 1; i <= n; ++i) if (index(gone, words(added[i])) == 0) print from[i] ": " added[i] }' |
  { grep -E "^[^:]+: ${subjectless#^}" || :; })
finding "$new" "these new comment lines begin without a subject"
if [ -n "$all" ]; then
  say "check.sh: $(files "${sources[@]}" | xargs grep -hE "$subjectless" | wc -l) comment lines in all begin without a subject"
fi

# --- clang-tidy
# Each source by itself, in a folder where nothing is built.
cmake -S . -B build-check -DSPLIT_UNITY=OFF -DSPLIT_TESTS=ON > /dev/null || finding "cmake" "cannot configure build-check"
# The project's own files that are built, but for those that ask GCC for what clang 14 does not know, the kernels'
# instruction sets, and those that include what a build makes.
known=$(sed -n "s|^ *\"file\": \"$PWD/\([^\"]*\.cpp\)\".*|\1|p" build-check/compile_commands.json |
  grep -vE '^build|/cpu/kernels/(kernels|rounded|choose_kernels)\.cpp$|/(revision|page|app_routes)\.cpp$' | sort -u)
if [ -n "$all" ]; then
  tidied=$known
else
  # A header is looked at from its own .cpp. A file that only moved has not changed.
  changed=$(git diff -M --name-status "$base" -- '*.h' '*.cpp' | awk '$1 != "D" && $1 != "R100" { sub(/\.h$/, ".cpp", $NF); print $NF }' | sort -u)
  tidied=$(comm -12 <(echo "$known") <(echo "$changed"))
  count=$(wc -w <<< "$tidied")
  if [ "$count" -gt $most_tidied ]; then
    say "check.sh: clang-tidy: $most_tidied of $count files, drawn by the commit; --all takes every one"
    tidied=$(shuf -n $most_tidied --random-source=<(yes "$(git rev-parse HEAD)") <<< "$tidied")
  fi
fi
# Its stderr counts the warnings that it left out.
# A finding in a header comes with each file that includes it.
tidy() { clang-tidy-14 -p build-check --quiet "$1" 2> /dev/null || echo "$1: clang-tidy-14 fails"; }
export -f tidy
[ -z "$tidied" ] || finding "$(xargs -P "$(nproc)" -I FILE bash -c 'tidy FILE' <<< "$tidied" | awk '!seen[$0]++')" "clang-tidy-14"

[ $failures = 0 ]
