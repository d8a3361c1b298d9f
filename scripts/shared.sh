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

# programs: installs and builds what the two programs lack. No build tool starts where nothing has changed.
programs() {
  ! up_to_date || return 0
  scripts/setup.sh
  # 360 seconds of one processor.
  local minutes=$(((320 / $(nproc) + 59) / 60))
  if [ -x build/bin/edge_client ]; then
    say "Building what has changed ..."
  else
    say "Building the two programs: about $minutes min on $(nproc) processors, only the first time ..."
  fi
  scripts/build.sh
}
