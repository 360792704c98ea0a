#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Refits the profiles from published runs: calib/refit.sh RUNS.csv [ARGUMENT...], for example
# calib/refit.sh runs.csv --in-place. Without -o DIR or --in-place it only reports.
# $PLAN_CALIBRATE: the program, when it is not build/bin/plan-calibrate.
root=$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")
[ $# -ge 1 ] || { echo "usage: calib/refit.sh RUNS.csv [-o DIR | --in-place]" >&2; exit 2; }
runs=$1
shift
exec "${PLAN_CALIBRATE:-$root/build/bin/plan-calibrate}" "$runs" \
  --job "$root/calib/fit/jobs/published-runs.yaml" "$@"
