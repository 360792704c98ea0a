# SPDX-License-Identifier: Apache-2.0
"""Which training steps are timed: series of batches of one model, in one precision, with or without recomputation."""

import os
from collections import namedtuple

MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scenarios", "models")
DEFAULTS = {"kv_heads": None, "linear_bias": True, "post_norm": False, "embedding_norm": False, "pooler": False,
            "head_transform": False, "head_bias": False, "tied_embeddings": True, "token_types": 0,
            "max_positions": 1024, "activation": "gelu", "norm": "layer-norm", "positions": "learned"}
# A llama of 1.1 B parameters; the dimensions are those that TinyLlama published (Zhang et al. 2024).
OWN = {"llama-1b": {"family": "decoder", "layers": 22, "hidden": 2048, "ffn": 5632, "heads": 32, "kv_heads": 4,
                    "vocab": 32000, "max_positions": 2048, "norm": "rms-norm", "activation": "swiglu",
                    "positions": "rotary", "linear_bias": False, "tied_embeddings": False}}

# compiled: whole (torch.compile of the model, the yardstick), blocks (each kind of block once; quick to compile), no.
Series = namedtuple("Series", "model seq batches precision recompute compiled vocab")


def series(model, seq, batches, precision="bf16", recompute="none", compiled="blocks", vocab=None):
    return Series(model, seq, tuple(batches), precision, recompute, compiled, vocab)


PADDED = 50304  # GPT-2's vocabulary as nanoGPT and llm.c pad it

SETS = {
    # The yardstick of the runtime: the best that PyTorch does by itself.
    "yardstick-124m": [series("gpt2-small", 1024, (16, 32, 64), compiled="whole", vocab=PADDED),
                       series("gpt2-small", 1024, (32,), compiled="whole")],
    "yardstick-bert": [series("bert-large", 128, (64, 256), compiled="whole"),
                       series("bert-large", 512, (16, 64), compiled="whole")],
    "yardstick-1.5b": [series("gpt2-xl", 1024, (8, 16), compiled="whole", vocab=PADDED)],
    "sweep-gpt2": [series("gpt2-small", 1024, (4, 16, 64, 128, 256), vocab=PADDED),
                   series("gpt2-medium", 1024, (4, 16, 64, 128), vocab=PADDED),
                   series("gpt2-large", 1024, (4, 16, 64), vocab=PADDED),
                   series("gpt2-xl", 1024, (2, 8, 32, 64), vocab=PADDED)],
    "sweep-recompute": [series("gpt2-xl", 1024, (8, 64, 256), recompute="full", vocab=PADDED),
                        series("gpt2-small", 1024, (16, 128, 512), recompute="full", vocab=PADDED),
                        series("gpt2-large", 1024, (16, 128), recompute="full", vocab=PADDED)],
    "sweep-llama": [series("llama-1b", 2048, (2, 8, 16, 32, 64)),
                    series("llama-1b", 2048, (8, 64), recompute="full")],
    "sweep-bert": [series("bert-large", 128, (16, 64, 256, 1024)), series("bert-large", 512, (4, 16, 64, 256)),
                   series("bert-large", 512, (64, 512), recompute="full")],
    "fp32": [series("gpt2-small", 1024, (4, 8, 16), "fp32", vocab=PADDED),
             series("bert-large", 128, (16, 64), "fp32"),
             series("gpt2-medium", 1024, (8,), "fp32", vocab=PADDED)],
    "tf32": [series("gpt2-small", 1024, (8, 16), "tf32", vocab=PADDED), series("bert-large", 128, (64,), "tf32")],
    "eager": [series("gpt2-small", 1024, (8, 16, 32), compiled="no", vocab=PADDED),
              series("bert-large", 512, (16,), compiled="no")],
    "eager-more": [series("gpt2-xl", 1024, (4, 8), compiled="no", vocab=PADDED),
                   series("llama-1b", 2048, (2, 8), compiled="no"),
                   series("bert-large", 128, (64,), compiled="no"),
                   series("gpt2-medium", 1024, (16,), compiled="no", vocab=PADDED)],
    "blocks": [series("llama-1b", 2048, (2, 8)), series("gpt2-xl", 1024, (8,), vocab=PADDED),
               series("bert-large", 512, (16,)), series("gpt2-medium", 1024, (16,), vocab=PADDED)],
}


def read_model(name, folder=MODELS):
    """The scalar keys at the top of a model's file; what it leaves out as DEFAULTS has it."""
    config = dict(DEFAULTS)
    if name in OWN:
        config.update(OWN[name])
    else:
        with open(os.path.join(folder, name + ".yaml"), encoding="utf-8") as file:
            for line in file:
                key, colon, value = line.split("#")[0].rstrip().partition(":")
                if colon and value.strip() and not key.startswith((" ", "-")):
                    config[key] = _scalar(value.strip())
    config["kv_heads"] = config["kv_heads"] or config["heads"]
    return config


def _scalar(text):
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isdigit() else text


def config_of(one):
    config = read_model(one.model)
    if one.vocab:
        config["vocab"] = one.vocab
    config["max_positions"] = max(config["max_positions"], one.seq)
    return config


def masked_of(config, seq):
    """Predicted positions per sequence: BERT's own recipe (Devlin et al. 2018); None: all."""
    if config["family"] != "encoder":
        return None
    return min(20, seq) if seq <= 128 else 80 if seq == 512 else -(-15 * seq // 100)


def parameters_of(config):
    """(all, the embedding tables that are only looked up)."""
    h, f, v = config["hidden"], config["ffn"], config["vocab"]
    gated, bias = config["activation"] == "swiglu", config["linear_bias"]
    norm = h if config["norm"] == "rms-norm" else 2 * h
    qkv = (config["heads"] + 2 * config["kv_heads"]) * (h // config["heads"])
    up = f * (2 if gated else 1)
    layer = h * qkv + h * h + h * up + f * h + 2 * norm + (qkv + h + up + h if bias else 0)
    places = config["max_positions"] * h if config["positions"] == "learned" else 0
    looked_up = places + config["token_types"] * h + (0 if config["tied_embeddings"] else v * h)
    ends = v * h + (norm if config["embedding_norm"] else 0) + (0 if config["post_norm"] else norm)
    head = (h * h + h + norm if config["head_transform"] else 0) + (v if config["head_bias"] else 0)
    pooler = h * h + h if config["pooler"] else 0
    return config["layers"] * layer + looked_up + ends + head + pooler, looked_up


def flops_per_sequence(config, seq):
    """6 N + 12 L H Q T per token (Chowdhery et al. 2022, appendix B); the head at the positions that reach it."""
    total, looked_up = parameters_of(config)
    head = config["vocab"] * config["hidden"]
    masked = masked_of(config, seq)
    inner = 6 * (total - looked_up - head) + 12 * config["layers"] * config["hidden"] * seq
    return inner * seq + 6 * head * (seq if masked is None else masked)


def activation_bytes(config, one, batch):
    """A guess for the order and the estimate only: 34 bytes per element of a layer's input in 16 bit."""
    per_layer = (2 if one.recompute == "full" else 34) * (1 if one.precision == "bf16" else 2)
    logits = batch * (masked_of(config, one.seq) or one.seq) * config["vocab"] * 8
    return config["layers"] * batch * one.seq * config["hidden"] * per_layer + logits


def estimate_s(one):
    """Compilation and steps of a series, guessed for an H200; batches that cannot fit take a second."""
    config, total = config_of(one), 6.0
    compile_s = {"whole": 20 + config["layers"], "blocks": 12.0, "no": 0.5}[one.compiled]
    rate = {"bf16": 300e12, "tf32": 150e12, "fp32": 35e12}[one.precision]
    for batch in one.batches:
        if activation_bytes(config, one, batch) + 18 * parameters_of(config)[0] > 140e9:
            return total + 2
        total += compile_s + max(3.0, 8 * flops_per_sequence(config, one.seq) * batch / rate)
    return total


def text(one, batch):
    return (f"{one.model} seq {one.seq} batch {batch} {one.precision} recompute {one.recompute} "
            f"compiled {one.compiled} vocab {config_of(one)['vocab']}")
