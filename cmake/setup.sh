# SPDX-License-Identifier: Apache-2.0
# Shared by ./plan and ./check (POSIX sh): installs missing Debian packages and builds build/.
# Expects $root, the absolute path of the repository. Builds the preset $preset (release) with CMake's $options in $build
# (build/). Speaks on stderr only.
#
#   ORRERY_NO_INSTALL=1  take the packages for installed
#   ORRERY_JOBS=N        compile N files at a time (default: one per core and GiB of free memory)

build="$root/build"
preset=release
options=  # of CMake
log="$build/setup.log"

say() { printf 'orrery: %s\n' "$*" >&2; }

# wait_for_lock: one build of a folder at a time; the lock is open as 9.
# While it waits it shows the counter of the build that runs.
wait_for_lock() {
  ! flock -n 9 || return 0
  say "waiting for the build that runs"
  until flock -w 2 9; do
    counter=$(counter_of_log)
    [ -z "$counter" ] || show_counter "$counter"
  done
  [ ! -t 2 ] || printf '\r                \r' >&2
}

# How far ninja is, N/M; nothing at first.
counter_of_log() { sed -n 's/^\[\([0-9]*\/[0-9]*\)\].*/\1/p' "$log" 2>/dev/null | tail -n 1; }

# show_counter N/M [SECONDS]: in place on a terminal, else a whole line for each tenth of the way.
show_counter() {
  if [ -t 2 ]; then
    printf '\r  [%s]%s ' "$1" "${2:+ $2 s}" >&2
  elif [ $((10 * ${1%/*} / ${1#*/})) -gt "${said:-0}" ]; then
    said=$((10 * ${1%/*} / ${1#*/}))
    say "compiled ${1%/*} of ${1#*/} files"
  fi
}

fail_with_log() {
  touch "$build/.failed" 2>/dev/null
  say "$1; the last lines of $(basename "$build")/setup.log:"
  tail -n 25 "$log" >&2
  exit 1
}

# missing_packages check|build|required: the names in debian-packages.txt that are not installed.
missing_packages() {
  names=$(awk -v which="$1" '
    /^[^#]/ && (which == "check" || $2 == "" || (which == "build" && $2 == "optional")) { print $1 }' \
    "$root/cmake/debian-packages.txt")
  installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' $names 2>/dev/null |
    awk '$2 == "installed" { print $1 }')
  for name in $names; do
    printf '%s\n' "$installed" | grep -qx -e "$name" || echo "$name"
  done | paste -s -d ' '
}

# Runs apt-get as root, or says that it may not.
apt_get() {
  if [ "$(id -u)" = 0 ]; then
    env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -y "$@"
  elif sudo -n true 2>/dev/null; then
    sudo -n env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -y "$@"
  else
    echo "neither root nor sudo without a password"
    return 1
  fi
}

apt_install() { apt_get install --no-install-recommends "$@" >>"$log" 2>&1; }

# The most telling line of the log: apt ends with advice, the cause stands above it.
install_failure() {
  cause=$(grep -E 'Temporary failure|Could not|Failed to fetch|Unable to locate' "$log" | tail -n 1)
  printf '%s\n' "${cause:-$(tail -n 1 "$log")}"
}

# Where packages are not Debian's, nobody can ask what is installed: CMake names the libraries that it misses, but something
# has to start CMake.
require_tools() {
  absent=
  for tool in cmake ninja; do command -v $tool >/dev/null || absent="$absent $tool"; done
  command -v c++ >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null || absent="$absent c++"
  [ -n "$absent" ] || return 0
  say "missing here:$absent. Not a Debian (no dpkg-query): please install what these packages of Debian hold:"
  missing_packages required | fold -s -w 100 | sed 's/^/  /' >&2
  exit 1
}

# install_packages [check]: what is needed to build; with "check" also what only tests need.
install_packages() {
  which=${1:-build}
  [ -z "${ORRERY_NO_INSTALL:-}" ] || return 0
  command -v dpkg-query >/dev/null || { require_tools && return 0; }
  missing=$(missing_packages "$which")
  [ -n "$missing" ] || return 0
  say "installing $missing"
  : >"$log"
  if apt_install $missing; then return 0; fi
  apt_get update >>"$log" 2>&1 && apt_install $missing && return 0
  # One package that this Debian lacks must not keep the others away.
  required=$(missing_packages required)
  if [ -z "$required" ] || apt_install $required; then
    say "cannot install $(missing_packages "$which"); going on without"
    return 0
  fi
  say "cannot install the packages ($(install_failure)). Please run:"
  printf '  sudo apt-get update && sudo apt-get install -y --no-install-recommends %s\n' "$missing" >&2
  exit 1
}

# First number in the files that exist: the limit of a container's control group.
group_limit() { cat "$@" 2>/dev/null | grep -m 1 '^[0-9]'; }

# One compiler per core, and no more than there are GiB of free memory. A container sees the cores
# and the memory of its host: its own limits stand in its control group (version 2, then 1).
compile_jobs() {
  if [ -n "${ORRERY_JOBS:-}" ]; then
    echo "$ORRERY_JOBS"
    return
  fi
  group=${ORRERY_CGROUP:-/sys/fs/cgroup}
  memory=$(group_limit "$group/memory.max" "$group/memory/memory.limit_in_bytes")
  quota=$(group_limit "$group/cpu.max")
  awk -v cores="$(nproc)" -v memory="${memory:-1e18}" -v quota="$quota" '
    /^MemAvailable/ { gib = int($2 / 1048576) }
    END {
      if (memory / 1073741824 < gib) gib = int(memory / 1073741824)
      if (split(quota, cpu, " ") == 2 && int(cpu[1] / cpu[2] + 0.5) < cores) cores = int(cpu[1] / cpu[2] + 0.5)
      n = cores < gib ? cores : gib
      print (n > 1 ? n : 1)
    }' /proc/meminfo
}

# ccache stops the build where it cannot write, as for a user without a home.
ready_ccache() {
  command -v ccache >/dev/null || return 0
  [ -n "${HOME:-}" ] || export HOME="$build"  # without a home and a user name it does not even start
  cache=$(ccache --get-config cache_dir 2>/dev/null)
  if [ -z "$cache" ] || ! mkdir -p "$cache/tmp" 2>/dev/null || [ ! -w "$cache" ] ||
    [ ! -w "$cache/tmp" ]; then
    export CCACHE_DIR="$build/.ccache"
  fi
}

configure() {
  if [ -f "$build/build.ninja" ] && [ "$(cat "$build/.root" 2>/dev/null)" = "$root" ] &&
    [ -z "$(find "$root/CMakePresets.json" -newer "$build/.root")" ]; then
    return 0  # ninja itself configures again when a CMake file changed
  fi
  fresh=
  [ ! -f "$build/CMakeCache.txt" ] || fresh=--fresh
  (cd "$root" && cmake --preset "$preset" $fresh $options) >"$log" 2>&1 || fail_with_log "CMake failed"
  printf '%s\n' "$root" >"$build/.root"
}

# The counter and the seconds so far, each second: a large file takes many. Ends with this shell, which may be killed.
tick() {
  seconds=0
  while kill -0 $$ 2>/dev/null && sleep 1; do
    seconds=$((seconds + 1))
    counter=$(counter_of_log)
    [ -z "$counter" ] || show_counter "$counter" "$seconds"
  done
}

# Shows how far ninja is, on standard error. The whole output goes to the log.
follow() {
  said=0
  ticker=
  if [ -t 2 ]; then
    tick &
    ticker=$!
  fi
  while IFS= read -r line; do
    printf '%s\n' "$line" >>"$log"
    [ -z "$ticker" ] || continue
    case "$line" in
      '['[0-9]*/[0-9]*']'*) counter=${line%%]*} && show_counter "${counter#[}" ;;
    esac
  done
  [ -n "$ticker" ] || return 0
  kill "$ticker" 2>/dev/null
  printf '\r                      \r' >&2
}

# compile TARGET...
compile() {
  : >"$log"
  ready_ccache
  rm -f "$build/.failed"
  { ninja -C "$build" -j "$(compile_jobs)" "$@" 2>&1 || touch "$build/.failed"; } | follow
  [ ! -e "$build/.failed" ] || fail_with_log "the build failed"
}
