# SPDX-License-Identifier: Apache-2.0
"""CSV that is on the disk row by row: whatever ends the program, what was measured stays."""

import csv
import os

SHARED = ["date", "script", "device", "driver", "library", "sm_mhz"]
KERNEL_COLUMNS = SHARED + [
    "kind", "op", "m", "n", "k", "batch", "heads", "kv_heads", "seq_q", "seq_kv", "head_dim", "causal",
    "dtype", "epilogue", "algorithm", "bytes", "flops", "seconds", "low_s", "high_s", "calls", "note"]
STEP_COLUMNS = [
    "case", "topology", "nodes", "gpus_per_node", "framework", "family", "layers", "hidden", "ffn", "gated",
    "heads", "kv_heads", "vocab", "seq_len", "tp", "pp", "vpp", "dp", "cp", "zero", "zero_group", "micro_batch",
    "global_batch", "precision", "recompute", "flash", "optimizer", "seq_parallel", "window",
    "measured_step_s", "measured_mem_gib", "memory_by", "reserved_gib", "device_gib", "tokens_per_s", "mfu",
    "low_s", "high_s", "steps", "compiled", "loss", "outcome"] + SHARED


class Table:
    """Appends rows to a CSV; a header when the file is new. A row with an unknown column is an error."""

    def __init__(self, path, columns):
        self.columns = columns
        new = not os.path.exists(path) or os.path.getsize(path) == 0
        self._file = open(path, "a", newline="", encoding="utf-8")
        self._writer = csv.writer(self._file, lineterminator="\n")
        if new:
            self._put(columns)

    def add(self, row):
        unknown = sorted(set(row) - set(self.columns))
        if unknown:
            raise KeyError(f"no such column: {', '.join(unknown)}")
        self._put([_text(row.get(column)) for column in self.columns])

    def _put(self, cells):
        self._writer.writerow(cells)
        self._file.flush()
        os.fsync(self._file.fileno())


def _text(value):
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return f"{value:.7g}"
    return str(value)
