# SPDX-License-Identifier: Apache-2.0
"""The models of scenarios/models as plain PyTorch modules: GPT-2, BERT and llama styles, with their loss.

Parameters are fp32; bf16 runs under autocast, as nanoGPT trains. `forward(tokens, targets)` gives the loss.
"""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Norm(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(config["hidden"]))
        rms = config["norm"] == "rms-norm"
        self.shift = None if rms else nn.Parameter(torch.zeros(config["hidden"]))

    def forward(self, x):
        if self.shift is not None:
            return functional.layer_norm(x, x.shape[-1:], self.gain, self.shift)
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.gain


def rotate(x, angles):
    """Rotary positions on [batch, heads, seq, dim], pairs (i, i + dim/2)."""
    a, b = x.float().chunk(2, -1)
    cos, sin = angles
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1).to(x.dtype)


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, bias = config["hidden"], config["linear_bias"]
        self.heads, self.kv_heads = config["heads"], config["kv_heads"]
        self.dim = hidden // self.heads
        self.causal, self.post_norm = config["family"] == "decoder", config["post_norm"]
        self.gated = config["activation"] == "swiglu"
        self.qkv = nn.Linear(hidden, (self.heads + 2 * self.kv_heads) * self.dim, bias=bias)
        self.out = nn.Linear(hidden, hidden, bias=bias)
        self.up = nn.Linear(hidden, config["ffn"] * (2 if self.gated else 1), bias=bias)
        self.down = nn.Linear(config["ffn"], hidden, bias=bias)
        self.norm1, self.norm2 = Norm(config), Norm(config)

    def attend(self, x, angles):
        batch, seq, _ = x.shape
        width = [count * self.dim for count in (self.heads, self.kv_heads, self.kv_heads)]
        q, k, v = (part.view(batch, seq, -1, self.dim).transpose(1, 2) for part in self.qkv(x).split(width, -1))
        if angles is not None:
            q, k = rotate(q, angles), rotate(k, angles)
        options = {"enable_gqa": True} if self.kv_heads != self.heads else {}
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal, **options)
        return self.out(y.transpose(1, 2).reshape(batch, seq, -1))

    def feed(self, x):
        x = self.up(x)
        if self.gated:
            gate, up = x.chunk(2, -1)
            return self.down(functional.silu(gate) * up)
        return self.down(functional.gelu(x, approximate="tanh"))

    def forward(self, x, angles):
        if self.post_norm:
            x = self.norm1(x + self.attend(x, angles))
            return self.norm2(x + self.feed(x))
        x = x + self.attend(self.norm1(x), angles)
        return x + self.feed(self.norm2(x))


class Network(nn.Module):
    def __init__(self, config, recompute=False):
        super().__init__()
        self.config, self.recompute = config, recompute
        hidden, vocab = config["hidden"], config["vocab"]
        self.embed = nn.Embedding(vocab, hidden)
        learned = config["positions"] == "learned"
        self.places = nn.Embedding(config["max_positions"], hidden) if learned else None
        self.types = nn.Embedding(config["token_types"], hidden) if config["token_types"] else None
        self.embed_norm = Norm(config) if config["embedding_norm"] else None
        self.blocks = nn.ModuleList(Block(config) for _ in range(config["layers"]))
        self.last_norm = None if config["post_norm"] else Norm(config)
        self.transform = nn.Linear(hidden, hidden) if config["head_transform"] else None
        self.transform_norm = Norm(config) if config["head_transform"] else None
        self.head = nn.Linear(hidden, vocab, bias=config["head_bias"])
        if config["tied_embeddings"]:
            self.head.weight = self.embed.weight
        self.pooler = nn.Linear(hidden, hidden) if config["pooler"] else None
        self.apply(_initialise)

    def angles(self, seq, device):
        if self.places is not None:
            return None
        dim = self.config["hidden"] // self.config["heads"]
        rates = 10000.0 ** (-torch.arange(0, dim, 2, device=device).float() / dim)
        phase = torch.outer(torch.arange(seq, device=device).float(), rates)
        return phase.cos(), phase.sin()

    def start(self, tokens):
        x = self.embed(tokens)
        if self.places is not None:
            x = x + self.places.weight[: tokens.shape[1]]
        if self.types is not None:
            x = x + self.types.weight[0]
        return x if self.embed_norm is None else self.embed_norm(x)

    def loss(self, x, targets, masked):
        """Cross-entropy at all positions, or at `masked` ones (an index into the flattened positions)."""
        pooled = None
        if self.pooler is not None:
            pooled = torch.tanh(self.pooler(x[:, 0])).float().mean()
        x = x.flatten(0, 1)
        if masked is not None:
            x = x[masked]
        if self.last_norm is not None:
            x = self.last_norm(x)
        if self.transform is not None:
            x = self.transform_norm(functional.gelu(self.transform(x), approximate="tanh"))
        loss = functional.cross_entropy(self.head(x).float(), targets)
        return loss if pooled is None else loss + 0.0 * pooled

    def forward(self, tokens, targets, masked=None):
        x, angles = self.start(tokens), self.angles(tokens.shape[1], tokens.device)
        for block in self.blocks:
            x = checkpoint(block, x, angles, use_reentrant=False) if self.recompute else block(x, angles)
        return self.loss(x, targets, masked)


def _initialise(module):
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
