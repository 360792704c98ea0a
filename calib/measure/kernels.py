#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times operations of PyTorch on this machine's GPU, one CSV row each (see README.md).

The lists of what to time are in kernel_cases.py; how each is done, in kernel_calls.py. A case that fails (out of
memory, an operation that this version lacks) is named on standard error and the next one is taken.
"""

import argparse
import os
import sys
import time

import kernel_cases
from table import KERNEL_COLUMNS, Table


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", default=".", help="folder for kernels.csv")
    parser.add_argument("--set", default="gemm", help="what to time, with commas: " + ", ".join(kernel_cases.SETS))
    parser.add_argument("--seconds", type=float, default=3600, help="begin no case after this time")
    parser.add_argument("--only", default="", help="only cases whose text contains this")
    parser.add_argument("--dry-run", action="store_true", help="print the cases and the estimated seconds")
    args = parser.parse_args(words)
    unknown = [name for name in args.set.split(",") if name not in kernel_cases.SETS]
    if unknown:
        parser.error(f"--set: '{unknown[0]}' is none of {', '.join(kernel_cases.SETS)}")
    return args


def cases_of(args):
    cases = [case for name in args.set.split(",") for case in kernel_cases.SETS[name]()]
    return [case for case in cases if args.only in kernel_cases.text(case)]


def measure(torch, cases, table, machine, until):
    """Rows written; cases that failed."""
    import kernel_calls
    done, failed = 0, []
    for case in cases:
        if time.monotonic() > until:
            print(f"out of time after {done} of {len(cases)} cases", file=sys.stderr)
            break
        try:
            row = kernel_calls.time_case(torch, case)
        except Exception as error:  # the next case may still go
            failed.append(case)
            print(f"failed: {kernel_cases.text(case)}: {str(error).splitlines()[0][:200]}", file=sys.stderr)
            if "illegal memory access" in str(error) or "unspecified launch" in str(error):
                raise  # the context is lost
            kernel_calls.release(torch)
            continue
        table.add({**machine.columns(), **row})
        done += 1
    return done, failed


def main(words=None):
    args = parse(words)
    cases = cases_of(args)
    if args.dry_run:
        for case in cases:
            print(kernel_cases.text(case))
        print(f"{len(cases)} cases, about {kernel_cases.estimate_s(cases):.0f} s")
        return 0
    try:
        import torch
    except ImportError:
        print("kernels.py: error: this Python has no torch (see --dry-run)", file=sys.stderr)
        return 2
    from machine import Machine
    os.makedirs(args.out, exist_ok=True)
    table = Table(os.path.join(args.out, "kernels.csv"), KERNEL_COLUMNS)
    done, failed = measure(torch, cases, table, Machine(torch, __file__), time.monotonic() + args.seconds)
    print(f"{args.set}: {done} of {len(cases)} cases timed, {len(failed)} failed")
    return 0 if done or not cases else 1


if __name__ == "__main__":
    sys.exit(main())
