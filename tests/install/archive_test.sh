#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The archive of a static build: unpacked, moved, and used in a root that holds it and nothing else: no library, no shell,
# no /proc. Where this machine allows no such root, only the linker's word is taken.
# usage: archive_test.sh SOURCE BUILD
set -u
source_tree=$1 build=$2
. "$source_tree/tests/install/common.sh"

(cd "$work" && cpack --config "$build/CPackConfig.cmake" -B "$work/made") >"$work/log" 2>&1 || {
  tail -n 20 "$work/log"
  exit 1
}
archive=$(ls "$work"/made/orrery-*.tar.xz)
mkdir "$work/root" "$work/root/work" "$work/root/tmp" && tar -C "$work/root" -xf "$archive" && mv "$work"/root/orrery-* "$work/root/any place"
prefix="$work/root/any place"
echo "$(basename "$archive"): $(stat -c %s "$archive") bytes"

for program in "$prefix"/bin/*; do
  expect_text "$(basename "$program") needs no library" "not a dynamic" "$(LC_ALL=C ldd "$program" 2>&1)"
done
expect "nothing in it names the build machine" "" "$(grep -rlF -e "$source_tree/" -e "$build/" "$prefix")"
unshare -rm true 2>/dev/null || {
  echo "no namespaces here: the archive was not used in a root of its own"
  finish
}
plan() { (cd "$work/root" && unshare -r chroot . "/any place/bin/plan" "$@" 2>&1); }

expect_text "a search" "Best by time: tp 1, pp 1, dp 256 (ZeRO 1)" "$(plan --nodes 32 --model bert-1.5b)"
expect_text "a prediction" "largest tensors" "$(plan predict --model gpt2-xl --topology aws-p4d --nodes 2 --zero 1 --global-batch 64)"
expect_text "a simulation, by the program beside it" "Busiest links" "$(plan simulate --model gpt2-small --topology dgx1-v100 \
  --nodes 1 --tp 1 --dp 8 --global-batch 64)"
expect_text "a purchase" "goodput" "$(plan provision --published)"
plan export --to megatron --launcher slurm --model llama3-8b --topology dgx-h100 --nodes 4 --out /work/job >"$work/log"
expect_text "an export" "--pipeline-model-parallel-size" "$(cat "$work"/root/work/job/* "$work/log")"
printf '[parallelism]\ntensor_parallel_degree = 8\n' >"$work/root/work/t.toml"
expect_text "a layout from TOML" "tp 8" "$(plan predict --from /work/t.toml --model llama3-8b --topology dgx-h100 --nodes 1)"
expect_text "what it leaves out, named" "static programs" "$(plan run --model gpt2-micro --steps 1)"
expect_text "the version, and where it finds its catalogues" "/any place/share/orrery" "$(plan version)"
finish
