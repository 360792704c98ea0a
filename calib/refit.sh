#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Refits the profiles from published runs: calib/refit.sh RUNS.csv [ARGUMENT...], for example
# calib/refit.sh runs.csv --in-place. Without -o DIR or --in-place it only reports. First the constants of
# step times, then those of memory; with -o DIR the latter go to DIR/memory, each profile with its own constants only.
# $PLAN_CALIBRATE: the program, when it is not build/bin/plan-calibrate.
root=$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")
[ $# -ge 1 ] || { echo "usage: calib/refit.sh RUNS.csv [-o DIR | --in-place]" >&2; exit 2; }
runs=$1
shift
program=${PLAN_CALIBRATE:-$root/build/bin/plan-calibrate}
"$program" "$runs" --job "$root/calib/fit/jobs/published-runs.yaml" "$@" || exit
[ "$1" = -o ] && set -- -o "$2/memory"
exec "$program" "$runs" --job "$root/calib/fit/jobs/published-memory.yaml" "$@"
