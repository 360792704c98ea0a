#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Debian package: its fields, then in an empty Debian root: installed with what it depends on, asked, removed. Skipped
# without cpack, mmdebstrap, root or a mirror.
# usage: package_test.sh SOURCE BUILD
set -u
source_tree=$1 build=$2
. "$source_tree/tests/install/common.sh"

command -v dpkg-shlibdeps >/dev/null || skip "dpkg-shlibdeps is missing (Debian package dpkg-dev)"
(cd "$work" && cpack --config "$build/CPackConfig.cmake" -G DEB -B "$work/made") >"$work/log" 2>&1 || {
  tail -n 20 "$work/log"
  exit 1
}
package=$(ls "$work"/made/orrery_*.deb)
fields=$(dpkg-deb --field "$package" Depends)
for library in libc6 libfmt libyaml-cpp; do expect_text "dependencies" "$library" "$fields"; done
expect "files outside of /usr" "" "$(dpkg-deb --contents "$package" | awk '{ print $6 }' | grep -v '^\./\(usr/\|$\)' | grep -v '^\./usr$')"
# What a program or library of the package needs to start is in it or in a package of Debian's, which dpkg-shlibdeps then names.
dpkg-deb -x "$package" "$work/unpacked"
for file in "$work"/unpacked/usr/bin/* $(find "$work/unpacked" -name '*.so*' -type f); do
  objdump -p "$file" 2>/dev/null | awk '$1 == "NEEDED" { print $2 }'
done | sort -u >"$work/needed"
while read -r library; do
  [ -n "$(find "$work/unpacked" -name "$library")" ] || dpkg -S "*/$library" >/dev/null 2>&1 ||
    fail "its programs need $library, which no package has"
done <"$work/needed"
echo "$(basename "$package"): $(stat -c %s "$package") bytes; $fields"

command -v mmdebstrap >/dev/null || skip "the package is right; mmdebstrap is missing, it was not installed anywhere"
[ "$(id -u)" = 0 ] || skip "the package is right; installing it into a root of its own needs root"
root=$work/root
# The mirror and the settings of this machine's apt.
mirror=/etc/apt/sources.list.d/debian.sources
[ -f "$mirror" ] || mirror=/etc/apt/sources.list
. /etc/os-release
timeout 600 mmdebstrap --mode=root --variant=apt --quiet --skip=cleanup/apt/lists \
  --setup-hook='mkdir -p "$1/etc/apt/apt.conf.d" && cp -a /etc/apt/apt.conf.d/99* "$1/etc/apt/apt.conf.d/" 2>/dev/null; true' \
  "${VERSION_CODENAME:-stable}" "$root" "$mirror" >"$work/log" 2>&1 ||
  skip "the package is right; no Debian root could be made: $(tail -n 1 "$work/log")"
# With a /proc, which ends with the command: programs find their catalogues by it.
inside() {
  env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
    unshare -m sh -c 'mount --bind /proc "$0/proc" && exec chroot "$0" "$@"' "$root" "$@"
}
files() { (cd "$root" && find . -path ./proc -prune -o -path ./sys -prune -o -path ./var -prune -o -path ./tmp -prune -o -path ./run -prune -o -path ./dev -prune -o -print | sort); }
files >"$work/before"
cp "$package" "$root/tmp/orrery.deb" && cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null
inside apt-get install -y --no-install-recommends /tmp/orrery.deb >"$work/log" 2>&1 || fail "installing: $(tail -n 15 "$work/log")"
expect_text "the answer" "Best by time: tp 1, pp 1, dp 256 (ZeRO 1)" "$(inside plan --nodes 32 --model bert-1.5b 2>&1)"
expect_text "a program beside it" "Busiest links" "$(inside plan simulate --model gpt2-small --topology dgx1-v100 --nodes 1 \
  --tp 1 --dp 8 --global-batch 64 2>&1)"
for command in "run --model gpt2-micro --seq-len 32 --global-batch 2 --steps 1" check \
  "bench all_reduce --ranks 2 --comm local -e 64K"; do
  inside plan $command >"$work/log" 2>&1 || fail "plan $command: $(tail -n 3 "$work/log")"
done
inside apt-get purge -y orrery >"$work/log" 2>&1 || fail "removing: $(tail -n 15 "$work/log")"
inside apt-get autoremove --purge -y >"$work/log" 2>&1
expect "what is left" "" "$(files | diff "$work/before" - | grep '^>' | grep -v '/etc/.*-$')"  # copies of the user table, of a dependency's user
finish
