#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times whole training steps of PyTorch on this machine's GPU, one CSV row each (see README.md).

A step is what `plan run` does: forward, backward, clipping to norm 1, AdamW (fused). Batches grow until memory is
out; that row says so and ends the series. Times are medians of steps between events, without synchronising inside.
"""

import argparse
import contextlib
import gc
import os
import sys
import time

import step_cases
from table import STEP_COLUMNS, Table

WARM_STEPS = 3
TIMED_S = 2.5
MOST_STEPS, LEAST_STEPS = 30, 5
PEAK_FLOPS = 989e12  # of an H100 or H200 in 16 bit without sparsity, the vendor's figure; mfu is over this


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", default=".", help="folder for steps.csv")
    parser.add_argument("--set", default="yardstick-124m", help="with commas: " + ", ".join(step_cases.SETS))
    parser.add_argument("--seconds", type=float, default=3600, help="begin no batch after this time")
    parser.add_argument("--batches", default="", help="these batches instead, with commas")
    parser.add_argument("--dry-run", action="store_true", help="print the steps and the estimated seconds")
    args = parser.parse_args(words)
    unknown = [name for name in args.set.split(",") if name not in step_cases.SETS]
    if unknown:
        parser.error(f"--set: '{unknown[0]}' is none of {', '.join(step_cases.SETS)}")
    try:
        args.batches = tuple(int(word) for word in args.batches.split(",") if word)
    except ValueError:
        parser.error(f"--batches: '{args.batches}' is no list of whole numbers")
    return args


def series_of(args):
    chosen = [one for name in args.set.split(",") for one in step_cases.SETS[name]]
    return [one._replace(batches=args.batches) if args.batches else one for one in chosen]


# The catalogue's machine for a device: the first name that the driver's name holds.
MACHINES = (("GH200", ""), ("GB200", "azure-nd-gb200"), ("GB300", ""), ("H200", "aws-p5en"), ("H100", "aws-p5"),
            ("A100-SXM4-80GB", "aws-p4de"), ("A100-SXM4-40GB", "aws-p4d"), ("V100-SXM2-32GB", "aws-p3dn"),
            ("V100-SXM2-16GB", "aws-p3-16xl"), ("A10G", "aws-g5-1gpu"), ("B200", "aws-p6-b200"),
            ("B300", "aws-p6-b300"))


def machine_of(device):
    """(short name, topology) of a device; the topology is empty where the catalogue has none, and is then filled in
    by hand before `plan validate` reads the rows."""
    for key, topology in MACHINES:
        if key in device:
            return key.split("-")[0].lower(), topology
    return "torch" if not device else device.split()[-1].lower(), ""


def describe(one, config, batch, device=""):
    """The columns that say what the step is."""
    family = {"encoder": "bert"}.get(config["family"], "llama" if config["norm"] == "rms-norm" else "gpt")
    short, topology = machine_of(device)
    name = (f"{short}torch-{one.model}-s{one.seq}-b{batch}-{one.precision}-{one.recompute}-{one.compiled}"
            f"-v{config['vocab']}")
    facts = "compile=off" if one.compiled == "no" else "compile=on,compile_loss=on"  # blocks: Trainer compiles the loss, too
    if family == "llama" and one.compiled == "no":
        facts += ",fused_norm=off"  # networks.Norm, operation by operation
    row = {"case": name, "topology": topology, "framework": "ddp+" + facts, "family": family, "window": "step"}
    row.update({key: 1 for key in ("nodes", "gpus_per_node", "tp", "pp", "vpp", "dp", "cp", "flash")})
    row.update({key: config[key] for key in ("layers", "hidden", "ffn", "heads", "kv_heads", "vocab")})
    row.update({"gated": int(config["activation"] == "swiglu"), "seq_len": one.seq, "zero": 0, "zero_group": "dp",
                "micro_batch": batch, "global_batch": batch, "precision": one.precision,
                "recompute": one.recompute, "optimizer": "adamw", "seq_parallel": 0, "compiled": one.compiled})
    return row


class Trainer:
    """A model with its optimizer, and steps of it."""

    def __init__(self, torch, one, config):
        import networks
        self.torch, self.one, self.config = torch, one, config
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.backends.cuda.matmul.allow_tf32 = one.precision == "tf32"
        torch.backends.cudnn.allow_tf32 = one.precision == "tf32"
        torch.manual_seed(1)
        with contextlib.nullcontext() if self.device == "cpu" else torch.device(self.device):
            self.model = networks.Network(config, recompute=one.recompute == "full").to(self.device)
        options = {"fused": True} if self.device == "cuda" else {}
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1,
                                           **options)
        self.call = self._compiled(networks)

    def _compiled(self, networks):
        torch, compiled = self.torch, self.one.compiled
        if compiled == "no":
            return self.model
        torch._dynamo.config.automatic_dynamic_shapes = False
        for limit in ("cache_size_limit", "recompile_limit"):
            if hasattr(torch._dynamo.config, limit):
                setattr(torch._dynamo.config, limit, 64)
        if compiled == "whole":
            return torch.compile(self.model, dynamic=False)
        for block in self.model.blocks:
            block.compile(dynamic=False)
        self.model.loss = torch.compile(self.model.loss, dynamic=False)
        return self.model

    def batch(self, count):
        torch, seq = self.torch, self.one.seq
        masked = step_cases.masked_of(self.config, seq)
        tokens = torch.randint(0, self.config["vocab"], (count, seq), device=self.device)
        if masked is None:
            return tokens, torch.randint(0, self.config["vocab"], (count * seq,), device=self.device), None
        places = torch.stack([torch.randperm(seq, device=self.device)[:masked] + i * seq for i in range(count)])
        return tokens, torch.randint(0, self.config["vocab"], (count * masked,), device=self.device), places.flatten()

    def step(self, data):
        torch = self.torch
        self.optimizer.zero_grad(set_to_none=True)
        half = self.one.precision == "bf16"
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=half):
            loss = self.call(*data)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss


def time_steps(torch, trainer, data):
    """(seconds of each timed step, the last loss); peak memory is counted over the timed steps."""
    cuda = trainer.device == "cuda"
    for _ in range(WARM_STEPS):
        loss = trainer.step(data)
    if cuda:
        torch.cuda.synchronize()
    begin = time.perf_counter()
    trainer.step(data)
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    count = int(max(LEAST_STEPS, min(MOST_STEPS, TIMED_S / (time.perf_counter() - begin))))
    if not cuda:
        times = []
        for _ in range(count):
            begin = time.perf_counter()
            loss = trainer.step(data)
            times.append(time.perf_counter() - begin)
        return times, float(loss)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    events[0].record()
    for event in events[1:]:
        loss = trainer.step(data)
        event.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) * 1e-3 for a, b in zip(events, events[1:])], float(loss)


def memory_columns(torch):
    if not torch.cuda.is_available():
        return {}
    free, total = torch.cuda.mem_get_info()
    gib = float(1 << 30)
    return {"measured_mem_gib": torch.cuda.max_memory_allocated() / gib, "memory_by": "allocator",
            "reserved_gib": torch.cuda.max_memory_reserved() / gib, "device_gib": (total - free) / gib}


def measure_batch(torch, trainer, batch):
    from timing import summary
    one, config = trainer.one, trainer.config
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    times, loss = time_steps(torch, trainer, trainer.batch(batch))
    time_of = summary(times, 1)
    return {"measured_step_s": time_of.median, "low_s": time_of.low, "high_s": time_of.high, "steps": len(times),
            "tokens_per_s": batch * one.seq / time_of.median, "loss": loss, "outcome": "ok",
            "mfu": step_cases.flops_per_sequence(config, one.seq) * batch / time_of.median / PEAK_FLOPS,
            **memory_columns(torch)}


def is_out_of_memory(error):
    text = str(error)
    return type(error).__name__ == "OutOfMemoryError" or "out of memory" in text.lower()


def measure_series(torch, one, table, machine, until):
    """How many rows hold a time."""
    config, done, trainer = step_cases.config_of(one), 0, None
    for batch in one.batches:
        if time.monotonic() > until:
            print(f"out of time before {step_cases.text(one, batch)}", file=sys.stderr)
            break
        row, stop = describe(one, config, batch, machine.columns()["device"]), True
        try:
            trainer = trainer or Trainer(torch, one, config)
            row.update(measure_batch(torch, trainer, batch))
            done, stop = done + 1, False
        except Exception as error:  # said in the row; the next series may still go
            row["outcome"] = "out of memory" if is_out_of_memory(error) else (
                "failed: " + (str(error).splitlines() or [type(error).__name__])[0][:150])
            print(f"{step_cases.text(one, batch)}: {row['outcome']}", file=sys.stderr)
        table.add({**row, **machine.columns()})
        if stop:
            break
        print(f"{step_cases.text(one, batch)}: {row['measured_step_s'] * 1e3:.2f} ms, "
              f"{row['tokens_per_s']:.0f} tokens/s, mfu {row['mfu']:.3f}", flush=True)
    return done


def release(torch):
    gc.collect()
    if hasattr(torch, "_dynamo"):
        torch._dynamo.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def main(words=None):
    args = parse(words)
    chosen = series_of(args)
    if args.dry_run:
        for one in chosen:
            for batch in one.batches:
                print(step_cases.text(one, batch))
        print(f"{sum(len(one.batches) for one in chosen)} steps, about "
              f"{sum(step_cases.estimate_s(one) for one in chosen):.0f} s")
        return 0
    try:
        import torch
    except ImportError:
        print("steps.py: error: this Python has no torch (see --dry-run)", file=sys.stderr)
        return 2
    from machine import Machine
    os.makedirs(args.out, exist_ok=True)
    table, machine = Table(os.path.join(args.out, "steps.csv"), STEP_COLUMNS), Machine(torch, __file__)
    until, done = time.monotonic() + args.seconds, 0
    for index, one in enumerate(chosen):  # each has its share of the time that is left
        now = time.monotonic()
        done += measure_series(torch, one, table, machine, now + (until - now) / (len(chosen) - index))
        release(torch)
    print(f"{args.set}: {done} steps timed")
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main())
