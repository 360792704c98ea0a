# SPDX-License-Identifier: Apache-2.0
"""Layers of reference.py's models, and the tensors that they make on the way."""
import math
import random
import struct

V, H, L, T, FFN, EPS = 48, 32, 2, 8, 40, 1e-3
HEADS, KV, HD = 4, 2, 8
rng = random.Random(7)
TENSORS = {}  # name: (shape, values)
TYPE = "F32"


def rounded(x):
    if TYPE == "F16":
        return struct.unpack("<e", struct.pack("<e", x))[0]
    bits = struct.pack("<f", x)
    if TYPE == "BF16":
        bits = b"\0\0" + bits[2:]
    return struct.unpack("<f", bits)[0]


def new(name, *shape, mean=0.0, scale=0.25):
    n = math.prod(shape)
    values = [rounded(mean + rng.gauss(0, scale)) for _ in range(n)]
    TENSORS[name] = (list(shape), values)
    if len(shape) == 1:
        return values
    return [values[r * shape[1] : (r + 1) * shape[1]] for r in range(shape[0])]


def linear(name, out, into, bias=True):
    """torch.nn.Linear: weight [out, in]."""
    w = new(name + ".weight", out, into)
    b = new(name + ".bias", out) if bias else [0.0] * out
    return lambda x: [[sum(a * c for a, c in zip(row, v)) + d for row, d in zip(w, b)] for v in x]


def conv1d(name, out, into):
    """transformers' Conv1D: weight [in, out], x @ w + b."""
    w = new(name + ".weight", into, out)
    b = new(name + ".bias", out)
    return lambda x: [[sum(v[i] * w[i][o] for i in range(into)) + b[o] for o in range(out)] for v in x]


def layer_norm(name, width, stored_less=0.0):
    g, b = new(name + ".weight", width, mean=1.0 - stored_less), new(name + ".bias", width)
    g = [a + stored_less for a in g]

    def f(x):
        out = []
        for v in x:
            m = sum(v) / width
            s = math.sqrt(sum((a - m) ** 2 for a in v) / width + EPS)
            out.append([(a - m) / s * c + d for a, c, d in zip(v, g, b)])
        return out

    return f


def rms_norm(name, width, stored_less=0.0):
    g = [a + stored_less for a in new(name + ".weight", width, mean=1.0 - stored_less)]
    return lambda x: [[a / math.sqrt(sum(q * q for q in v) / width + EPS) * c for a, c in zip(v, g)] for v in x]


def gelu(x):
    return [[0.5 * a * (1 + math.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3))) for a in v] for v in x]


def relu(x):
    return [[max(a, 0.0) for a in v] for v in x]


def silu(a):
    return a / (1 + math.exp(-a))


def heads_of(x, n):  # rows of n * HD to n lists of rows
    return [[v[h * HD : (h + 1) * HD] for v in x] for h in range(n)]


def llama3_frequency(f, factor=4, low=0.5, high=4, original=64):
    turns = original * f / (2 * math.pi)
    if turns > high:
        return f
    if turns < low:
        return f / factor
    smooth = (turns - low) / (high - low)
    return (1 - smooth) * f / factor + smooth * f


def yarn_frequency(f, turn, base=10000.0, factor=4, fast=4, slow=0.5, original=64):
    pair = lambda turns: turn * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))
    first, last = max(math.floor(pair(fast)), 0), min(math.ceil(pair(slow)), turn - 1)
    at = round(-math.log(f) / math.log(base) * turn / 2)
    ramp = min(max((at - first) / (last - first), 0), 1)
    return f / factor * ramp + f * (1 - ramp)


def rotate_half(x, turn, base=10000.0, scaled=lambda f: f, magnify=1.0):
    out = []
    for t, v in enumerate(x):
        r = list(v)
        for i in range(turn):
            angle = t * scaled(base ** (-2.0 * (i % (turn // 2)) / turn))
            other = -v[i + turn // 2] if i < turn // 2 else v[i - turn // 2]
            r[i] = (v[i] * math.cos(angle) + other * math.sin(angle)) * magnify
        out.append(r)
    return out


def rotate_every_two(x, turn, base=10000.0):
    out = []
    for t, v in enumerate(x):
        r = list(v)
        for i in range(0, turn, 2):
            angle = t * base ** (-i / turn)
            c, s = math.cos(angle), math.sin(angle)
            r[i], r[i + 1] = v[i] * c - v[i + 1] * s, v[i + 1] * c + v[i] * s
        out.append(r)
    return out


def attention(q, k, v, slopes=None, scale=HD**-0.5, window=T, cap=None):
    """q: heads of rows; k, v: key heads of rows. Causal."""
    share = len(q) // len(k)
    slopes = slopes or [0.0] * len(q)
    out = [[] for _ in range(T)]
    for h, rows in enumerate(q):
        keys, values = k[h // share], v[h // share]
        for t in range(T):
            first = max(0, t + 1 - window)
            scores = [scale * sum(a * b for a, b in zip(rows[t], keys[j])) + slopes[h] * j for j in range(first, t + 1)]
            if cap:
                scores = [cap * math.tanh(s / cap) for s in scores]
            top = max(scores)
            e = [math.exp(s - top) for s in scores]
            for d in range(HD):
                out[t].append(sum(p * values[first + j][d] for j, p in enumerate(e)) / sum(e))
    return out


def add(*lists):
    return [[sum(z) for z in zip(*rows)] for rows in zip(*lists)]


def table(name, rows):
    return new(name, rows, H)
