# SPDX-License-Identifier: Apache-2.0
"""Does a case of kernel_cases.py with PyTorch's own operations and times it."""

import gc
import time

import timing

KEPT_BYTES = 40 << 30  # above this the allocator's cache is given back between cases
BACKENDS = {"flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "math": "MATH"}


def time_case(torch, case):
    """The case's columns with its time."""
    tf32 = case.get("dtype") == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    time_it = {"gemm": _gemm, "attention": _attention, "memory": _memory, "optimizer": _optimizer,
               "launch": _launch}[case["kind"]]
    with timing.on_stream(torch):  # a backward pass runs in the stream of its forward pass, which is to be captured
        result = time_it(torch, case)
    row = dict(case)
    row.update({"seconds": result.median, "low_s": result.low, "high_s": result.high, "calls": result.calls,
                "note": result.note})
    if torch.cuda.is_available() and torch.cuda.memory_reserved() > KEPT_BYTES:
        release(torch)
    return row


def release(torch):
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def dtype_of(torch, name):
    return {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32, "fp32": torch.float32}[name]


def _device(torch):
    return "cuda" if torch.cuda.is_available() else "cpu"


_generators = {}  # by device


def _random(torch, shape, dtype):
    # Random data: zeros run faster than what training multiplies. Of a generator of our own: a capture that fails
    # leaves PyTorch's default one unusable, and every later case with it.
    device = _device(torch)
    if device not in _generators:
        _generators[device] = torch.Generator(device=device).manual_seed(1)
    numbers = torch.randn(shape, device=device, dtype=torch.float32, generator=_generators[device])
    return numbers.mul_(0.5).to(dtype)


def gemm_call(torch, case):
    """One set of operands and the closure that multiplies them."""
    m, n, k, dtype = case["m"], case["n"], case["k"], dtype_of(torch, case["dtype"])
    a = _random(torch, (k, m) if case["op"][0] == "t" else (m, k), dtype)
    b = _random(torch, (n, k) if case["op"][1] == "t" else (k, n), dtype)
    a = a.t() if case["op"][0] == "t" else a
    b = b.t() if case["op"][1] == "t" else b
    c = torch.zeros((m, n), device=_device(torch), dtype=dtype)
    epilogue = case["epilogue"]
    if epilogue == "none":
        return lambda: torch.mm(a, b, out=c)
    if epilogue == "accumulate":
        return lambda: torch.addmm(c, a, b, out=c)
    bias = _random(torch, (n,), dtype) if epilogue.startswith("bias") else torch.zeros(n, device=_device(torch),
                                                                                      dtype=dtype)
    if epilogue == "bias":
        return lambda: torch.addmm(bias, a, b, out=c)
    return lambda: torch._addmm_activation(bias, a, b, use_gelu=True)


def _gemm(torch, case):
    if case["batch"] != 1:
        raise ValueError("batched products are timed as attention")
    sets = timing.sets_for(case["bytes"])
    return timing.time_calls(torch, [gemm_call(torch, case) for _ in range(sets)])


def attention_call(torch, case):
    functional = torch.nn.functional
    batch, heads, kv, dim = case["batch"], case["heads"], case["kv_heads"], case["head_dim"]
    dtype, backward = dtype_of(torch, case["dtype"]), case["op"] == "backward"

    def operand(count, seq):  # as a projection leaves it: [batch, seq, heads, dim] seen as [batch, heads, seq, dim]
        return _random(torch, (batch, seq, count, dim), dtype).transpose(1, 2).requires_grad_(backward)
    q, k, v = operand(heads, case["seq_q"]), operand(kv, case["seq_kv"]), operand(kv, case["seq_kv"])
    options = {"is_causal": bool(case["causal"])}
    if kv != heads:
        options["enable_gqa"] = True

    def forward():
        return functional.scaled_dot_product_attention(q, k, v, **options)
    if not backward:
        return forward
    out = forward()
    grad = _random(torch, tuple(out.shape), dtype)
    return lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)


def _attention(torch, case):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    with sdpa_kernel(getattr(SDPBackend, BACKENDS[case["algorithm"]])):
        sets = timing.sets_for(case["bytes"])
        return timing.time_calls(torch, [attention_call(torch, case) for _ in range(sets)])


def memory_call(torch, case):
    functional = torch.nn.functional
    op, m, n, dtype = case["op"], case["m"], case["n"], dtype_of(torch, case["dtype"])
    x = _random(torch, (m, n), dtype)
    if op in ("copy", "fill", "add", "gelu", "softmax"):
        y = torch.empty_like(x)
    if op == "copy":
        return lambda: y.copy_(x)
    if op == "fill":
        return lambda: y.fill_(1)
    if op == "reduce":
        return lambda: torch.sum(x)
    if op == "add":
        z = _random(torch, (m, n), dtype)
        return lambda: torch.add(x, z, out=y)
    if op == "softmax":
        return lambda: torch.softmax(x, -1)
    if op == "gelu":
        return lambda: functional.gelu(x, approximate="tanh")
    if op == "swiglu":
        gate = _random(torch, (m, n), dtype)
        return lambda: functional.silu(gate) * x  # two kernels: a fused one moves 3 passes
    gain, shift = torch.ones(n, device=x.device, dtype=dtype), torch.zeros(n, device=x.device, dtype=dtype)
    if op == "layer_norm":
        return lambda: functional.layer_norm(x, (n,), gain, shift)
    if op == "rms_norm":
        return lambda: functional.rms_norm(x, (n,), gain)
    x.requires_grad_()
    if op in ("xent", "xent_bwd"):
        target = (torch.arange(m, device=x.device) * 7919) % n
        forward, inputs = (lambda: functional.cross_entropy(x, target)), (x,)
    elif op == "gelu_bwd":
        forward, inputs = (lambda: functional.gelu(x, approximate="tanh")), (x,)
    elif op == "layer_norm_bwd":
        gain.requires_grad_(), shift.requires_grad_()
        forward, inputs = (lambda: functional.layer_norm(x, (n,), gain, shift)), (x, gain, shift)
    else:
        raise ValueError(f"no such operation: {op}")
    if not op.endswith("_bwd"):
        return forward
    out = forward()
    grad = torch.ones_like(out)
    return lambda: torch.autograd.grad(out, inputs, grad, retain_graph=True)


def _memory(torch, case):
    sets = timing.sets_for(case["bytes"])
    return timing.time_calls(torch, [memory_call(torch, case) for _ in range(sets)])


def optimizer_call(torch, case):
    weight = torch.nn.Parameter(_random(torch, (case["n"],), torch.float32))
    weight.grad = _random(torch, (case["n"],), torch.float32)
    kind = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[case["op"]]
    options = {"momentum": 0.0} if case["op"] == "sgd" else {}
    if torch.cuda.is_available():
        options["fused"] = True
    optimizer = kind([weight], lr=1e-4, **options)
    return optimizer.step


def _optimizer(torch, case):
    step = optimizer_call(torch, case)
    step()  # its states come with the first call
    if not torch.cuda.is_available():
        return timing.time_calls(torch, [step])
    stream, count = torch.cuda.current_stream(), max(3, int(2e-3 / (case["bytes"] / 3e12)))
    count = min(count, 50)
    times = timing._time_plain(torch, stream, [step], count, timing.REPLAYS)
    return timing.summary(times, count, "plain launches")


def _launch(torch, case):
    """Host seconds per launched kernel, per one-node graph, per synchronisation or event; device seconds per node."""
    if not torch.cuda.is_available():
        raise ValueError("launches are a GPU's")
    x, count = torch.zeros(32, device="cuda"), 1000
    graph = torch.cuda.CUDAGraph()
    x.add_(1)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for _ in range(count if case["op"] == "node" else 1):
            x.add_(1)
    event = torch.cuda.Event()
    run = {"kernel": lambda: x.add_(1), "graph": graph.replay, "node": graph.replay,
           "sync": torch.cuda.synchronize, "event": event.record}[case["op"]]
    run()
    torch.cuda.synchronize()
    if case["op"] == "node":
        return timing.summary(timing._time_events(torch, torch.cuda.current_stream(), run, timing.REPLAYS), count)
    times = []
    for _ in range(timing.REPLAYS):
        begin = time.perf_counter()
        for _ in range(count):
            run()
        times.append(time.perf_counter() - begin)
        torch.cuda.synchronize()
    return timing.summary(times, count, "host time")
