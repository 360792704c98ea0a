# SPDX-License-Identifier: Apache-2.0
"""What is timed: lists of cases, each a dict with the columns of kernels.csv that describe it.

Products and attentions come from shapes.csv, which is made from the plans of scenarios/models; further sizes
(batches of tokens, squares, thin ones) show how a device's rate depends on the shape.
"""

import csv
import os

HERE = os.path.dirname(os.path.abspath(__file__))
WIDTH = {"bf16": 2, "fp16": 2, "tf32": 4, "fp32": 4}
# Models whose steps are measured too come first.
FIRST = ["gpt2-small", "bert-large", "gpt2-xl", "gpt2-medium", "gpt2-large"]
SWEPT = ["gpt2-small", "gpt2-xl", "llama3-8b"]  # products at further numbers of tokens
TOKENS = [256, 512, 1024, 2048, 4096, 16384, 32768]
SQUARES = [256, 512, 768, 1024, 1536, 2048, 3072, 4096, 5120, 6144, 8192, 12288, 16384]
WIDTHS = [768, 1024, 1280, 1600, 2048, 4096, 8192]
ROWS = [1024, 8192, 32768]
COPIES = [1 << e for e in range(12, 33, 2)]  # bytes


def read_shapes(path=os.path.join(HERE, "shapes.csv")):
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["models"] = row["models"].split()
    return sorted(rows, key=_rank)


def _rank(row):
    ranks = [FIRST.index(name) for name in row["models"] if name in FIRST]
    return min(ranks) if ranks else len(FIRST)


def product(op, m, n, k, dtype, epilogue, batch=1):
    width = WIDTH[dtype]
    elements = batch * (m * k + k * n + m * n * (2 if epilogue == "accumulate" else 1))
    return {"kind": "gemm", "op": op, "m": m, "n": n, "k": k, "batch": batch, "dtype": dtype, "epilogue": epilogue,
            "bytes": width * elements, "flops": 2 * batch * m * n * k}


def _products(dtype, models=None):
    for row in read_shapes():
        if row["kind"] != "gemm" or (models and not set(models) & set(row["models"])):
            continue
        yield product(row["op"], int(row["m"]), int(row["n"]), int(row["k"]), dtype, row["epilogue"],
                      int(row["batch"]))


def _swept_products():
    seen = set()
    for row in read_shapes():
        forward = row["kind"] == "gemm" and row["op"] == "nt" and set(SWEPT) & set(row["models"])
        key = (row["n"], row["k"], row["epilogue"])
        if not forward or key in seen:
            continue
        seen.add(key)
        for m in TOKENS:
            yield product("nt", m, int(row["n"]), int(row["k"]), "bf16", row["epilogue"])


def _squares(dtype):
    return [product("nt", n, n, n, dtype, "none") for n in SQUARES]


def attention(op, batch, heads, kv_heads, seq_q, seq_kv, head_dim, causal, dtype, algorithm):
    width = WIDTH[dtype]
    own, other = batch * heads * seq_q * head_dim, batch * kv_heads * seq_kv * head_dim
    passes = (2 * own + 2 * other) if op == "forward" else (4 * own + 4 * other)  # q,k,v,out (,dout,dq,dk,dv)
    flops = (4 if op == "forward" else 10) * batch * heads * seq_q * seq_kv * head_dim * (0.5 if causal else 1)
    return {"kind": "attention", "op": op, "batch": batch, "heads": heads, "kv_heads": kv_heads, "seq_q": seq_q,
            "seq_kv": seq_kv, "head_dim": head_dim, "causal": int(causal), "dtype": dtype, "algorithm": algorithm,
            "bytes": width * passes, "flops": flops}


def _attentions(dtype, algorithm, models=None):
    for row in read_shapes():
        if row["kind"] != "attention" or (models and not set(models) & set(row["models"])):
            continue
        sizes = [int(row[c]) for c in ("batch", "heads", "kv_heads", "seq_q", "seq_kv", "head_dim")]
        yield attention(row["op"], *sizes, row["causal"] == "1", dtype, algorithm)


def _long_attentions():
    for seq in (128, 256, 512, 1024, 2048, 4096, 8192, 16384):
        for head_dim in (64, 128):
            for op in ("forward", "backward"):
                yield attention(op, max(1, 16384 // seq), 16, 16, seq, seq, head_dim, True, "bf16", "flash")


def memory(op, m, n, dtype, passes, extra=0):
    return {"kind": "memory", "op": op, "m": m, "n": n, "dtype": dtype, "bytes": WIDTH[dtype] * passes * m * n + extra}


# Operand passes over m x n elements, as the op reads and writes them once.
ROW_OPS = {"layer_norm": 2, "layer_norm_bwd": 3, "rms_norm": 2, "gelu": 2, "gelu_bwd": 3, "swiglu": 3, "add": 3,
           "softmax": 2}


def _memory():
    for size in COPIES:
        yield memory("copy", 1, size // 2, "bf16", 2)
    for size in COPIES[3:]:
        yield memory("reduce", 1, size // 4, "fp32", 1)
        yield memory("fill", 1, size // 4, "fp32", 1)
    for op, passes in ROW_OPS.items():
        for n in WIDTHS:
            for m in ROWS:
                yield memory(op, m, n, "bf16", passes)
    for vocab in (30522, 50257, 128256):
        for m in (2048, 8192):
            yield memory("xent", m, vocab, "bf16", 1)
            yield memory("xent_bwd", m, vocab, "bf16", 2)


def _optimizer():
    for n in (1 << 20, 1 << 22, 1 << 24, 124_439_808, 354_823_168, 1_557_611_200):
        yield {"kind": "optimizer", "op": "adamw", "n": n, "dtype": "fp32", "algorithm": "fused", "bytes": 28 * n}
    yield {"kind": "optimizer", "op": "sgd", "n": 124_439_808, "dtype": "fp32", "algorithm": "fused",
           "bytes": 12 * 124_439_808}


def _launch():
    return [{"kind": "launch", "op": op} for op in ("kernel", "graph", "node", "sync", "event")]


SETS = {
    "gemm": lambda: list(_products("bf16")),
    "gemm-sweep": lambda: _squares("bf16") + list(_swept_products()),
    "gemm-tf32": lambda: list(_products("tf32", FIRST)) + _squares("tf32"),
    "gemm-fp32": lambda: list(_products("fp32", FIRST[:2])) + _squares("fp32")[:9],
    "gemm-fp16": lambda: _squares("fp16"),
    "attention": lambda: list(_attentions("bf16", "flash")),
    "attention-cudnn": lambda: list(_attentions("bf16", "cudnn")),
    "attention-sweep": lambda: list(_long_attentions()),
    "attention-fp32": lambda: list(_attentions("fp32", "efficient", FIRST)) +
                              list(_attentions("fp32", "math", FIRST[:2])),
    "memory": lambda: list(_memory()),
    "optimizer": lambda: list(_optimizer()),
    "launch": lambda: _launch(),
}


def text(case):
    return " ".join(f"{key}={value}" for key, value in case.items() if key not in ("bytes", "flops"))


# Guesses of an H200: 500 TFLOP/s for 16 bit, 250 tf32, 45 fp32, 3 TB/s; 40 replays' worth of the graph's length.
RATE = {"bf16": 500e12, "fp16": 500e12, "tf32": 250e12, "fp32": 45e12}


def estimate_s(cases):
    total = 0.0
    for case in cases:
        one = max(case.get("flops", 0) / RATE.get(case.get("dtype", "fp32"), 45e12), case.get("bytes", 0) / 3e12)
        total += 0.06 + 25 * max(one, 1.5e-3) + 4 * case.get("bytes", 0) / 200e9
    return total
