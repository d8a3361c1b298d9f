# shellcheck shell=bash
# Functions that the scripts share: sourced by them from the repository's root, not run. A script whose first word is --help is ended here,
# before it has done anything.

# usage: the comment at the head of the script that runs.
usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "scripts/${0##*/}"; }
case ${1-} in -h | --help) usage && exit ;; esac
# refuse WORDS...: ends the script because of its command line.
refuse() { echo "${0##*/}: $*; --help says what it takes" >&2 && exit 2; }

say() { echo "$*" >&2; }

# up_to_date: whether the last build came to its end, and since then neither a source has changed nor any package.
up_to_date() {
  [ -e build/up-to-date ] && [ -x build/bin/cloud_server ] && [ -x build/bin/edge_client ] && [ -x build/bin/split_link ] &&
    [ -z "$(find CMakeLists.txt common cloud_server edge_client scripts/link scripts/setup.sh scripts/build.sh /var/lib/dpkg/status \
      ! -name '*.md' -newer build/up-to-date -print -quit 2> /dev/null)" ]
}

# minutes SECONDS: what so much work of one processor takes on this machine's, at least 1.
minutes() { echo $((($1 / $(nproc) + 59) / 60)); }

# jobs: compilations at a time: one a processor, and one for each gigabyte of free memory, which the largest takes.
jobs() {
  local free
  free=$(awk '/^MemAvailable:/ { print int($2 / 1000000) }' /proc/meminfo 2> /dev/null) || :
  echo $((${free:-1000} < 1 ? 1 : ${free:-1000} < $(nproc) ? ${free:-1000} : $(nproc)))
}

# progress WORDS: copies stdin to stdout, and says on stderr every few seconds that WORDS go on: by make's lines, which begin with
# "[ 42%]", how far, and for how long. At a terminal in one line that is written over.
progress() {
  local part line='' percent='' begun=$SECONDS said=$SECONDS status pause=8
  [ ! -t 2 ] || pause=1
  while :; do
    status=0
    IFS= read -r -t 1 part || status=$?
    line+=$part
    if [ $status -le 128 ]; then  # else the second is over, perhaps within a line
      [ -z "$line" ] && [ $status != 0 ] || printf '%s\n' "$line"
      [[ ! $line =~ ^\[\ *([0-9]+)%\] ]] || percent="${BASH_REMATCH[1]} %, "
      line=''
      [ $status = 0 ] || break
    fi
    [ $((SECONDS - said)) -ge $pause ] || continue
    said=$SECONDS
    if [ -t 2 ]; then printf '\r%s: %s%s s ' "$1" "$percent" $((said - begun)) >&2; else say "$1: $percent$((said - begun)) s"; fi
  done
  [ $said = $begun ] || [ ! -t 2 ] || printf '\r%60s\r' '' >&2
}

# programs: installs and builds what the two programs lack. No build tool starts where nothing has changed.
programs() {
  ! up_to_date || return 0
  scripts/setup.sh
  if [ -x build/bin/edge_client ]; then
    say "Building what has changed ..."
  else
    say "Building the two programs: about $(minutes 500) min on $(nproc) processors, only the first time ..."
  fi
  scripts/build.sh
}
