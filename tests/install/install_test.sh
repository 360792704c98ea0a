#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs into a folder, moves it, hides the source tree where this machine allows that, and lets use_installed.sh use it.
# usage: install_test.sh SOURCE BUILD
set -u
source_tree=$1 build=$2
. "$source_tree/tests/install/common.sh"

cmake --install "$build" --prefix "$work/installed" >"$work/log" 2>&1 || {
  tail -n 5 "$work/log"
  exit 1
}
mv "$work/installed" "$work/another place"
expect "nothing installed names the source tree" "" "$(grep -rlF "$source_tree/" "$work/another place")"

# What the same programs say before they are installed.
"$build/bin/plan" --nodes 32 --model bert-1.5b >"$work/plan.txt"
"$build/bin/plan" --json --refine 0 --model gpt2-xl --topology aws-p4d --nodes 4 --global-batch 512 --seq-len 1024 \
  --precision bf16 --optimizer adam --dropout 0 --framework megatron >"$work/closed.json"

cp -r "$source_tree/tests/install" "$work/tests" && mkdir "$work/empty"
if unshare -rm true 2>/dev/null; then
  # shellcheck disable=SC2016
  unshare -rm sh -c 'mount --bind "$1/empty" "$2" && exec sh "$1/tests/use_installed.sh" "$1"' - "$work" "$source_tree"
else
  echo "the source tree stays visible: no user namespaces here"
  sh "$work/tests/use_installed.sh" "$work"
fi
expect "exit code of use_installed.sh" 0 $?
finish
