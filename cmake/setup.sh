# SPDX-License-Identifier: Apache-2.0
# Shared by ./plan and ./check (POSIX sh): installs missing Debian packages and builds build/.
# Expects $root, the absolute path of the repository. Speaks on stderr only.
#
#   ORRERY_NO_INSTALL=1  take the packages for installed
#   ORRERY_JOBS=N        compile N files at a time (default: one per core and GiB of free memory)

build="$root/build"
log="$build/setup.log"

say() { printf 'orrery: %s\n' "$*" >&2; }

fail_with_log() {
  say "$1; the last lines of build/setup.log:"
  tail -n 25 "$log" >&2
  exit 1
}

# packages all|required: the names in debian-packages.txt that are not installed.
missing_packages() {
  names=$(awk -v all="$1" '/^[^#]/ && (all == "all" || $2 != "optional") { print $1 }' \
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

install_packages() {
  [ -z "${ORRERY_NO_INSTALL:-}" ] && command -v dpkg-query >/dev/null || return 0
  missing=$(missing_packages all)
  [ -n "$missing" ] || return 0
  say "installing $missing"
  if apt_get install --no-install-recommends $missing >"$log" 2>&1; then return 0; fi
  if apt_get update >>"$log" 2>&1 &&
    apt_get install --no-install-recommends $missing >>"$log" 2>&1; then return 0; fi
  if [ -z "$(missing_packages required)" ]; then
    say "cannot install $missing; going on without"
    return 0
  fi
  say "cannot install the packages ($(tail -n 1 "$log")). Please run:"
  printf '  sudo apt-get update && sudo apt-get install -y --no-install-recommends %s\n' "$missing" >&2
  exit 1
}

# One compiler per core, and no more than there are GiB of free memory.
compile_jobs() {
  if [ -n "${ORRERY_JOBS:-}" ]; then
    echo "$ORRERY_JOBS"
    return
  fi
  awk -v cores="$(nproc)" '/^MemAvailable/ { gib = int($2 / 1048576) }
    END { n = cores < gib ? cores : gib; print (n > 1 ? n : 1) }' /proc/meminfo
}

configure() {
  if [ -f "$build/build.ninja" ] && [ "$(cat "$build/.root" 2>/dev/null)" = "$root" ]; then
    return 0  # ninja itself configures again when a CMake file changed
  fi
  fresh=
  [ ! -f "$build/CMakeCache.txt" ] || fresh=--fresh
  (cd "$root" && cmake --preset release $fresh) >"$log" 2>&1 || fail_with_log "CMake failed"
  printf '%s\n' "$root" >"$build/.root"
}

# Shows "[12/80]" in place on a terminal; the whole output goes to the log.
follow() {
  if [ -t 2 ]; then
    tee -a "$log" | sed -un 's/^\(\[[0-9]*\/[0-9]*\]\).*/\r  \1 /p' | tr -d '\n' >&2
    printf '\r            \r' >&2
  else
    cat >>"$log"
  fi
}

# compile TARGET...
compile() {
  : >"$log"
  rm -f "$build/.failed"
  { ninja -C "$build" -j "$(compile_jobs)" "$@" 2>&1 || touch "$build/.failed"; } | follow
  [ ! -e "$build/.failed" ] || fail_with_log "the build failed"
}
