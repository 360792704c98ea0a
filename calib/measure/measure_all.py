#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the measurements of this folder, most valuable first, within a time that is given.

Each piece is a process of its own with a deadline; one that hangs or dies costs its own time only, and its rows are
on the disk already. What does not fit any more is named. Part 1 and part 2 are made for two commands of 10 minutes.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections import namedtuple

HERE = os.path.dirname(os.path.abspath(__file__))
Piece = namedtuple("Piece", "part name deadline_s words")
LEAST_S = 20  # of time left, or a piece is not begun
ENDING_S = 12  # a piece is told to begin nothing new this long before it is killed


def kernels(part, deadline_s, sets):
    return Piece(part, f"kernels {sets}", deadline_s, ["kernels.py", "--set", sets])


def steps(part, deadline_s, sets):
    return Piece(part, f"steps {sets}", deadline_s, ["steps.py", "--set", sets])


PIECES = [
    Piece(1, "machine", 45, ["machine.py"]),
    kernels(1, 75, "gemm"),
    kernels(1, 75, "launch,optimizer,attention,memory"),
    steps(1, 140, "yardstick-124m"),
    steps(1, 130, "yardstick-1.5b"),
    steps(1, 150, "yardstick-bert"),
    kernels(2, 70, "gemm-sweep,gemm-tf32,attention-cudnn"),
    steps(2, 130, "sweep-gpt2"),
    steps(2, 90, "sweep-llama"),
    steps(2, 90, "sweep-recompute"),
    steps(2, 80, "sweep-bert"),
    steps(2, 60, "fp32,tf32"),
    kernels(2, 40, "attention-sweep,gemm-fp32,attention-fp32,gemm-fp16"),
    steps(2, 70, "eager,eager-more,blocks"),
]


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", default=os.environ.get("OUT") or ".", help="folder for the files (default: $OUT)")
    parser.add_argument("--part", type=int, choices=(1, 2), help="one part; default: both")
    parser.add_argument("--seconds", type=float, default=540, help="for all of it")
    parser.add_argument("--dry-run", action="store_true", help="print what would run and the estimated seconds")
    return parser.parse_args(words)


def run_piece(piece, seconds, out, log, python=sys.executable, folder=HERE):
    """The piece's exit code; None: it was killed at its deadline."""
    words = [python, os.path.join(folder, piece.words[0]), *piece.words[1:], "--out", out]
    if piece.words[0] != "machine.py":
        words += ["--seconds", f"{max(1.0, seconds - ENDING_S):.0f}"]
    child = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                             env={**os.environ, "PYTHONUNBUFFERED": "1"})
    try:
        return child.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        _end(child)


def _end(child):
    """Ends the piece and what it started (compilers), which are a process group of their own."""
    for word in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, word)
        except (ProcessLookupError, PermissionError):
            return
        try:
            child.wait(timeout=3)
        except subprocess.TimeoutExpired:
            continue


def run_all(pieces, seconds, out, run=run_piece, clock=time.monotonic, say=print):
    """[(piece, seconds it took, what became of it)]."""
    begin, report = clock(), []
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "measure.log"), "a", encoding="utf-8") as log:
        for piece in pieces:
            left = seconds - (clock() - begin)
            if left < LEAST_S:
                report.append((piece, 0.0, "no time left"))
                continue
            at = clock()
            log.write(f"== {piece.name}\n")
            log.flush()
            code = run(piece, min(piece.deadline_s, left), out, log)
            what = "ended at its deadline" if code is None else "ok" if code == 0 else f"exit code {code}"
            report.append((piece, clock() - at, what))
            say(f"{report[-1][1]:6.1f} s  {piece.name}: {what}", flush=True)
    return report


def count_rows(path):
    try:
        with open(path, encoding="utf-8") as file:
            return max(0, sum(1 for _ in file) - 1)
    except OSError:
        return 0


def show_plan(pieces, seconds):
    """The order, with what the pieces' own --dry-run estimate."""
    total = 0.0
    for piece in pieces:
        words = [sys.executable, os.path.join(HERE, piece.words[0]), *piece.words[1:], "--dry-run"]
        estimate = "1 file, about 8 s" if piece.words[0] == "machine.py" else subprocess.run(
            words, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
        total += min(piece.deadline_s, float(estimate.split()[-2]) + 8)
        print(f"part {piece.part}  {piece.name:<55} {estimate}; deadline {piece.deadline_s} s")
    print(f"about {total:.0f} s with the deadlines, of {seconds:.0f} s a part")


def main(words=None):
    args = parse(words)
    pieces = [piece for piece in PIECES if args.part in (None, piece.part)]
    if args.dry_run:
        show_plan(pieces, args.seconds)
        return 0
    report = run_all(pieces, args.seconds, args.out)
    for piece, _, what in report:
        if what == "no time left":
            print(f"   not begun: {piece.name}")
    rows = {name: count_rows(os.path.join(args.out, name)) for name in ("kernels.csv", "steps.csv")}
    print(f"kernels.csv: {rows['kernels.csv']} rows, steps.csv: {rows['steps.csv']} rows in {args.out}")
    return 0 if sum(rows.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
