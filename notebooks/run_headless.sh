#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a notebook from top to bottom: run_headless.sh NOTEBOOK FOLDER, which gets the executed copy
# and its pictures. ORRERY_BIN: the folder of built programs; without it ../plan builds what is
# missing. Exit codes: 0 it ran, 1 it failed, 77 Jupyter or matplotlib is not installed.
notebook=$(readlink -f -- "$1") && mkdir -p "$2" && out=$(readlink -f -- "$2") || exit 1
for python in python3 /usr/bin/python3; do
  "$python" -c 'import ipykernel, matplotlib, nbconvert' 2>/dev/null && break
  python=
done
if [ -z "$python" ]; then
  echo "skipped: needs the Debian packages jupyter-nbconvert python3-matplotlib python3-ipykernel"
  exit 77
fi
cd "$(dirname -- "$notebook")" || exit 1
ORRERY_PICTURES="$out" "$python" -X frozen_modules=off -m nbconvert --to notebook --execute \
  --ExecutePreprocessor.timeout=3600 --output-dir "$out" "$notebook"
