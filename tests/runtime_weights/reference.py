# SPDX-License-Identifier: Apache-2.0
"""A checkpoint as transformers writes it, and the loss that transformers' model computes with it.

    reference.py FAMILY TYPE FOLDER     prints the loss of tokens.u16, which is one sample

Independent of the project: names, shapes and arithmetic follow transformers' modeling_*.py, in plain Python with
double precision. TYPE: F32, F16 or BF16.
"""
import json
import math
import os
import struct
import sys

import reference_layers
from reference_layers import *


def gpt2(tokens):
    wte, wpe = table("transformer.wte.weight", V), table("transformer.wpe.weight", 2 * T)
    x = [[a + b for a, b in zip(wte[tok], wpe[t])] for t, tok in enumerate(tokens)]
    for n in range(L):
        p = f"transformer.h.{n}."
        ln1 = layer_norm(p + "ln_1", H)
        qkv = conv1d(p + "attn.c_attn", 3 * H, H)(ln1(x))
        q, k, v = ([r[i * H : (i + 1) * H] for r in qkv] for i in range(3))
        x = add(x, conv1d(p + "attn.c_proj", H, H)(attention(heads_of(q, HEADS), heads_of(k, HEADS), heads_of(v, HEADS))))
        ln2 = layer_norm(p + "ln_2", H)
        fc = conv1d(p + "mlp.c_fc", 4 * H, H)
        x = add(x, conv1d(p + "mlp.c_proj", H, 4 * H)(gelu(fc(ln2(x)))))
    return layer_norm("transformer.ln_f", H)(x), wte, None


def llama_like(tokens, qk_norm=None, fused=False, qkv_bias=False, output_norms=False, rope=rotate_half):
    wte = table("model.embed_tokens.weight", V)
    x = [list(wte[tok]) for tok in tokens]
    for n in range(L):
        p = f"model.layers.{n}."
        normed = x if output_norms else rms_norm(p + "input_layernorm", H)(x)
        if fused:
            qkv = linear(p + "self_attn.qkv_proj", (HEADS + 2 * KV) * HD, H, False)(normed)
            a, b = HEADS * HD, (HEADS + KV) * HD
            q, k, v = [r[:a] for r in qkv], [r[a:b] for r in qkv], [r[b:] for r in qkv]
        else:
            q = linear(p + "self_attn.q_proj", HEADS * HD, H, qkv_bias)(normed)
            k = linear(p + "self_attn.k_proj", KV * HD, H, qkv_bias)(normed)
            v = linear(p + "self_attn.v_proj", KV * HD, H, qkv_bias)(normed)
        if qk_norm == "width":
            q, k = rms_norm(p + "self_attn.q_norm", HEADS * HD)(q), rms_norm(p + "self_attn.k_norm", KV * HD)(k)
        q, k, v = heads_of(q, HEADS), heads_of(k, KV), heads_of(v, KV)
        if qk_norm == "head":
            qn, kn = rms_norm(p + "self_attn.q_norm", HD), rms_norm(p + "self_attn.k_norm", HD)
            q, k = [qn(h) for h in q], [kn(h) for h in k]
        q, k = [rope(h, HD) for h in q], [rope(h, HD) for h in k]
        y = linear(p + "self_attn.o_proj", H, HEADS * HD, False)(attention(q, k, v))
        post = rms_norm(p + "post_attention_layernorm", H)
        x = add(x, post(y)) if output_norms else add(x, y)
        normed = x if output_norms else post(x)
        if fused:
            both = linear(p + "mlp.gate_up_proj", 2 * FFN, H, False)(normed)
            gate, up = [r[:FFN] for r in both], [r[FFN:] for r in both]
        else:
            gate = linear(p + "mlp.gate_proj", FFN, H, False)(normed)
            up = linear(p + "mlp.up_proj", FFN, H, False)(normed)
        inner = [[silu(a) * b for a, b in zip(g, u)] for g, u in zip(gate, up)]
        y = linear(p + "mlp.down_proj", H, FFN, False)(inner)
        x = add(x, rms_norm(p + "post_feedforward_layernorm", H)(y)) if output_norms else add(x, y)
    return rms_norm("model.norm", H)(x), new("lm_head.weight", V, H), None


def gpt_neox(tokens):
    wte = table("gpt_neox.embed_in.weight", V)
    x = [list(wte[tok]) for tok in tokens]
    for n in range(L):
        p = f"gpt_neox.layers.{n}."
        a = layer_norm(p + "input_layernorm", H)(x)
        qkv = linear(p + "attention.query_key_value", 3 * H, H)(a)
        q, k, v = ([[r[(3 * h + i) * HD : (3 * h + i + 1) * HD] for r in qkv] for h in range(HEADS)] for i in range(3))
        q, k = [rotate_half(h, 4) for h in q], [rotate_half(h, 4) for h in k]
        y = linear(p + "attention.dense", H, H)(attention(q, k, v))
        m = layer_norm(p + "post_attention_layernorm", H)(x)
        z = linear(p + "mlp.dense_4h_to_h", H, FFN)
        x = add(x, y, z(gelu(linear(p + "mlp.dense_h_to_4h", FFN, H)(m))))
    return layer_norm("gpt_neox.final_layer_norm", H)(x), new("embed_out.weight", V, H), None


def gptj(tokens):
    wte = table("transformer.wte.weight", V)
    x = [list(wte[tok]) for tok in tokens]
    for n in range(L):
        p = f"transformer.h.{n}."
        a = layer_norm(p + "ln_1", H)(x)
        q, k, v = (heads_of(linear(p + f"attn.{w}_proj", H, H, False)(a), HEADS) for w in "qkv")
        turn = 4
        q, k = [rotate_every_two(h, turn) for h in q], [rotate_every_two(h, turn) for h in k]
        y = linear(p + "attn.out_proj", H, H, False)(attention(q, k, v))
        z = linear(p + "mlp.fc_out", H, FFN)
        x = add(x, y, z(gelu(linear(p + "mlp.fc_in", FFN, H)(a))))
    x = layer_norm("transformer.ln_f", H)(x)
    return x, new("lm_head.weight", V, H), new("lm_head.bias", V)


def opt(tokens):
    wte = table("model.decoder.embed_tokens.weight", V)
    wpe = table("model.decoder.embed_positions.weight", 2 * T + 2)
    x = [[a + b for a, b in zip(wte[tok], wpe[t + 2])] for t, tok in enumerate(tokens)]
    for n in range(L):
        p = f"model.decoder.layers.{n}."
        a = layer_norm(p + "self_attn_layer_norm", H)(x)
        q, k, v = (heads_of(linear(p + f"self_attn.{w}_proj", H, H)(a), HEADS) for w in "qkv")
        x = add(x, linear(p + "self_attn.out_proj", H, H)(attention(q, k, v)))
        m = layer_norm(p + "final_layer_norm", H)(x)
        z = linear(p + "fc2", H, FFN)
        x = add(x, z(relu(linear(p + "fc1", FFN, H)(m))))
    return layer_norm("model.decoder.final_layer_norm", H)(x), wte, None


def phi(tokens):
    wte = table("model.embed_tokens.weight", V)
    x = [list(wte[tok]) for tok in tokens]
    for n in range(L):
        p = f"model.layers.{n}."
        a = layer_norm(p + "input_layernorm", H)(x)
        q, k, v = (heads_of(linear(p + f"self_attn.{w}_proj", H, H)(a), HEADS) for w in "qkv")
        q, k = [rotate_half(h, 4) for h in q], [rotate_half(h, 4) for h in k]
        y = linear(p + "self_attn.dense", H, H)(attention(q, k, v))
        z = linear(p + "mlp.fc2", H, FFN)
        x = add(x, y, z(gelu(linear(p + "mlp.fc1", FFN, H)(a))))
    x = layer_norm("model.final_layernorm", H)(x)
    return x, new("lm_head.weight", V, H), new("lm_head.bias", V)


def starcoder2(tokens):
    wte = table("model.embed_tokens.weight", V)
    x = [list(wte[tok]) for tok in tokens]
    for n in range(L):
        p = f"model.layers.{n}."
        a = layer_norm(p + "input_layernorm", H)(x)
        q = heads_of(linear(p + "self_attn.q_proj", HEADS * HD, H)(a), HEADS)
        k, v = (heads_of(linear(p + f"self_attn.{w}_proj", KV * HD, H)(a), KV) for w in "kv")
        q, k = [rotate_half(h, HD) for h in q], [rotate_half(h, HD) for h in k]
        x = add(x, linear(p + "self_attn.o_proj", H, H)(attention(q, k, v)))
        m = layer_norm(p + "post_attention_layernorm", H)(x)
        z = linear(p + "mlp.c_proj", H, FFN)
        x = add(x, z(gelu(linear(p + "mlp.c_fc", FFN, H)(m))))
    return layer_norm("model.norm", H)(x), wte, None


def gpt_bigcode(tokens):
    wte, wpe = table("transformer.wte.weight", V), table("transformer.wpe.weight", 2 * T)
    x = [[a + b for a, b in zip(wte[tok], wpe[t])] for t, tok in enumerate(tokens)]
    for n in range(L):
        p = f"transformer.h.{n}."
        qkv = linear(p + "attn.c_attn", H + 2 * HD, H)(layer_norm(p + "ln_1", H)(x))
        q, k, v = [r[:H] for r in qkv], [r[H : H + HD] for r in qkv], [r[H + HD :] for r in qkv]
        x = add(x, linear(p + "attn.c_proj", H, H)(attention(heads_of(q, HEADS), [k], [v])))
        m = layer_norm(p + "ln_2", H)(x)
        z = linear(p + "mlp.c_proj", H, FFN)
        x = add(x, z(gelu(linear(p + "mlp.c_fc", FFN, H)(m))))
    return layer_norm("transformer.ln_f", H)(x), wte, None


def gemma(tokens, generation=1, linear_scaling=1):
    wte = table("model.embed_tokens.weight", V)
    x = [[a * H**0.5 for a in wte[tok]] for tok in tokens]
    norm = lambda name, width=H: rms_norm(name, width, 1.0)
    for n in range(L):
        p = f"model.layers.{n}."
        a = norm(p + "input_layernorm")(x)
        q = heads_of(linear(p + "self_attn.q_proj", HEADS * HD, H, False)(a), HEADS)
        k, v = (heads_of(linear(p + f"self_attn.{w}_proj", KV * HD, H, False)(a), KV) for w in "kv")
        windowed = generation > 1 and n % 2 == 0
        base = 100.0 if generation == 3 and windowed else 10000.0
        if generation == 3:
            qn, kn = norm(p + "self_attn.q_norm", HD), norm(p + "self_attn.k_norm", HD)
            q, k = [qn(h) for h in q], [kn(h) for h in k]
        scaled = lambda f: f if windowed else f / linear_scaling
        q, k = [rotate_half(h, HD, base, scaled) for h in q], [rotate_half(h, HD, base, scaled) for h in k]
        context = attention(q, k, v, scale=HD**-0.5 if generation == 1 else 12**-0.5, window=3 if windowed else T,
                            cap=0.7 if generation == 2 else None)
        y = linear(p + "self_attn.o_proj", H, HEADS * HD, False)(context)
        post = norm(p + "post_attention_layernorm")
        x = add(x, y if generation == 1 else post(y))
        m = post(x) if generation == 1 else norm(p + "pre_feedforward_layernorm")(x)
        gate = gelu(linear(p + "mlp.gate_proj", FFN, H, False)(m))
        up = linear(p + "mlp.up_proj", FFN, H, False)(m)
        y = linear(p + "mlp.down_proj", H, FFN, False)([[a * b for a, b in zip(g, u)] for g, u in zip(gate, up)])
        x = add(x, y if generation == 1 else norm(p + "post_feedforward_layernorm")(y))
    return norm("model.norm")(x), wte, None


def bloom(tokens):
    wte = table("transformer.word_embeddings.weight", V)
    x = layer_norm("transformer.word_embeddings_layernorm", H)([list(wte[tok]) for tok in tokens])
    slopes = [2.0 ** (-8.0 * (h + 1) / HEADS) for h in range(HEADS)]
    for n in range(L):
        p = f"transformer.h.{n}."
        qkv = linear(p + "self_attention.query_key_value", 3 * H, H)(layer_norm(p + "input_layernorm", H)(x))
        q, k, v = ([[r[(3 * h + i) * HD : (3 * h + i + 1) * HD] for r in qkv] for h in range(HEADS)] for i in range(3))
        x = add(x, linear(p + "self_attention.dense", H, H)(attention(q, k, v, slopes)))
        m = layer_norm(p + "post_attention_layernorm", H)(x)
        up, down = linear(p + "mlp.dense_h_to_4h", 4 * H, H), linear(p + "mlp.dense_4h_to_h", H, 4 * H)
        x = add(x, down(gelu(up(m))))
    return layer_norm("transformer.ln_f", H)(x), wte, None


def granite(tokens):
    wte = table("model.embed_tokens.weight", V)
    x = [[6.0 * a for a in wte[tok]] for tok in tokens]
    scaled = lambda y: [[0.22 * a for a in v] for v in y]
    for n in range(L):
        p = f"model.layers.{n}."
        a = rms_norm(p + "input_layernorm", H)(x)
        q = heads_of(linear(p + "self_attn.q_proj", HEADS * HD, H, False)(a), HEADS)
        k, v = (heads_of(linear(p + f"self_attn.{w}_proj", KV * HD, H, False)(a), KV) for w in "kv")
        q, k = [rotate_half(h, HD) for h in q], [rotate_half(h, HD) for h in k]
        x = add(x, scaled(linear(p + "self_attn.o_proj", H, HEADS * HD, False)(attention(q, k, v, scale=0.25))))
        m = rms_norm(p + "post_attention_layernorm", H)(x)
        gate, up = linear(p + "mlp.gate_proj", FFN, H, False)(m), linear(p + "mlp.up_proj", FFN, H, False)(m)
        inner = [[silu(a) * b for a, b in zip(g, u)] for g, u in zip(gate, up)]
        x = add(x, scaled(linear(p + "mlp.down_proj", H, FFN, False)(inner)))
    x = [[a / 8.0 for a in v] for v in rms_norm("model.norm", H)(x)]  # the logits, that is
    return x, new("lm_head.weight", V, H), None


def nemotron(tokens):
    wte = table("model.embed_tokens.weight", V)
    x = [list(wte[tok]) for tok in tokens]
    for n in range(L):
        p = f"model.layers.{n}."
        a = layer_norm(p + "input_layernorm", H, 1.0)(x)
        q = heads_of(linear(p + "self_attn.q_proj", HEADS * HD, H, False)(a), HEADS)
        k, v = (heads_of(linear(p + f"self_attn.{w}_proj", KV * HD, H, False)(a), KV) for w in "kv")
        q, k = [rotate_half(h, 4) for h in q], [rotate_half(h, 4) for h in k]
        x = add(x, linear(p + "self_attn.o_proj", H, H, False)(attention(q, k, v)))
        m = layer_norm(p + "post_attention_layernorm", H, 1.0)(x)
        inner = [[a * a for a in v] for v in relu(linear(p + "mlp.up_proj", FFN, H, False)(m))]
        x = add(x, linear(p + "mlp.down_proj", H, FFN, False)(inner))
    return layer_norm("model.norm", H, 1.0)(x), new("lm_head.weight", V, H), None


def falcon(tokens, groups=1, norms=1, bias=False):
    """Rows of query_key_value by group of heads: queries, a key, a value. norms: 1 or 2 of a parallel block; 0: serial."""
    wte = table("transformer.word_embeddings.weight", V)
    x = [list(wte[tok]) for tok in tokens]
    share = HEADS // groups
    for n in range(L):
        p = f"transformer.h.{n}."
        a = layer_norm(p + ("ln_attn" if norms == 2 else "input_layernorm"), H)(x)
        qkv = linear(p + "self_attention.query_key_value", (HEADS + 2 * groups) * HD, H, bias)(a)
        rows = heads_of(qkv, HEADS + 2 * groups)
        rows = [rows[g * (share + 2) : (g + 1) * (share + 2)] for g in range(groups)]
        q, k, v = [h for g in rows for h in g[:share]], [g[share] for g in rows], [g[share + 1] for g in rows]
        q, k = [rotate_half(h, HD) for h in q], [rotate_half(h, HD) for h in k]
        y = linear(p + "self_attention.dense", H, H, bias)(attention(q, k, v))
        if norms == 0:
            x = add(x, y)
            y = None
        m = a if norms == 1 else layer_norm(p + ("ln_mlp" if norms == 2 else "post_attention_layernorm"), H)(x)
        up, down = linear(p + "mlp.dense_h_to_4h", FFN, H, bias), linear(p + "mlp.dense_4h_to_h", H, FFN, bias)
        z = down(gelu(up(m)))
        x = add(x, y, z) if y else add(x, z)
    return layer_norm("transformer.ln_f", H)(x), wte, None


FALCON = dict(model_type="falcon", vocab_size=V, hidden_size=H, ffn_hidden_size=FFN, num_hidden_layers=L,
              num_attention_heads=HEADS, max_position_embeddings=2 * T, layer_norm_epsilon=EPS, activation="gelu_new")
LLAMA = dict(vocab_size=V, hidden_size=H, intermediate_size=FFN, num_hidden_layers=L, num_attention_heads=HEADS,
             num_key_value_heads=KV, max_position_embeddings=2 * T, rms_norm_eps=EPS)
GEMMA3 = LLAMA | dict(head_dim=HD, query_pre_attn_scalar=12, sliding_window=3, sliding_window_pattern=2,
                      rope_theta=10000, rope_local_base_freq=100)
FAMILIES = {
    "gpt2": (gpt2, dict(vocab_size=V, n_embd=H, n_layer=L, n_head=HEADS, n_positions=2 * T, layer_norm_epsilon=EPS)),
    "llama": (llama_like, LLAMA),
    "qwen2": (lambda t: llama_like(t, qkv_bias=True), LLAMA | dict(tie_word_embeddings=False)),
    "qwen3": (lambda t: llama_like(t, "head"), LLAMA | dict(head_dim=HD, tie_word_embeddings=False)),
    "olmo2": (lambda t: llama_like(t, "width", output_norms=True), LLAMA),
    "phi3": (lambda t: llama_like(t, fused=True), LLAMA),
    "mistral": (llama_like, LLAMA | dict(sliding_window=None)),
    "phi": (phi, dict(vocab_size=V, hidden_size=H, intermediate_size=FFN, num_hidden_layers=L, num_attention_heads=HEADS,
                      max_position_embeddings=2 * T, partial_rotary_factor=0.5, layer_norm_eps=EPS)),
    "starcoder2": (starcoder2, dict(vocab_size=V, hidden_size=H, intermediate_size=FFN, num_hidden_layers=L,
                                    num_attention_heads=HEADS, num_key_value_heads=KV, max_position_embeddings=2 * T,
                                    norm_epsilon=EPS)),
    "gpt_bigcode": (gpt_bigcode, dict(vocab_size=V, n_embd=H, n_inner=FFN, n_layer=L, n_head=HEADS, n_positions=2 * T,
                                      layer_norm_epsilon=EPS)),
    "gpt_neox": (gpt_neox, dict(vocab_size=V, hidden_size=H, intermediate_size=FFN, num_hidden_layers=L,
                                num_attention_heads=HEADS, rotary_pct=0.5, max_position_embeddings=2 * T,
                                hidden_act="gelu_new", layer_norm_eps=EPS)),
    "gptj": (gptj, dict(vocab_size=V, n_embd=H, n_inner=FFN, n_layer=L, n_head=HEADS, n_positions=2 * T, rotary_dim=4,
                        layer_norm_epsilon=EPS)),
    "gemma": (gemma, LLAMA | dict(head_dim=HD)),
    "gemma2": (lambda t: gemma(t, 2), LLAMA | dict(head_dim=HD, query_pre_attn_scalar=12, sliding_window=3,
                                                   attn_logit_softcapping=0.7, final_logit_softcapping=None)),
    "gemma3_text": (lambda t: gemma(t, 3), GEMMA3),
    "gemma3_of_linear": (lambda t: gemma(t, 3, 4), GEMMA3 | dict(
        model_type="gemma3_text", rope_scaling=dict(rope_type="linear", factor=4))),
    "llama_of_llama3": (
        lambda t: llama_like(t, rope=lambda x, turn: rotate_half(x, turn, scaled=llama3_frequency)),
        LLAMA | dict(model_type="llama", rope_scaling=dict(
            rope_type="llama3", factor=4, low_freq_factor=0.5, high_freq_factor=4, original_max_position_embeddings=64))),
    "llama_of_yarn": (
        lambda t: llama_like(t, rope=lambda x, turn: rotate_half(
            x, turn, scaled=lambda f: yarn_frequency(f, turn), magnify=0.1 * math.log(4) + 1)),
        LLAMA | dict(model_type="llama", rope_scaling=dict(
            rope_type="yarn", factor=4, beta_fast=4, beta_slow=0.5, original_max_position_embeddings=64))),
    "bloom": (bloom, dict(vocab_size=V, hidden_size=H, n_layer=L, n_head=HEADS, seq_length=2 * T,
                          layer_norm_epsilon=EPS)),
    "granite": (granite, LLAMA | dict(embedding_multiplier=6, logits_scaling=8, residual_multiplier=0.22,
                                      attention_multiplier=0.25)),
    "nemotron": (nemotron, dict(vocab_size=V, hidden_size=H, intermediate_size=FFN, num_hidden_layers=L,
                                num_attention_heads=HEADS, num_key_value_heads=KV, max_position_embeddings=2 * T,
                                norm_eps=EPS)),
    "falcon": (falcon, FALCON),
    "falcon_of_groups": (lambda t: falcon(t, groups=KV, norms=2),
                         FALCON | dict(new_decoder_architecture=True, num_kv_heads=KV)),
    "falcon_serial": (lambda t: falcon(t, groups=HEADS, norms=0, bias=True),
                      FALCON | dict(multi_query=False, parallel_attn=False, bias=True)),
    "opt": (opt, dict(vocab_size=V, hidden_size=H, ffn_dim=FFN, num_hidden_layers=L, num_attention_heads=HEADS,
                      max_position_embeddings=2 * T, word_embed_proj_dim=H)),
}


def write_safetensors(path, names):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name in names:
        shape, values = TENSORS[name]
        if reference_layers.TYPE == "BF16":
            raw = b"".join(struct.pack("<f", v)[2:] for v in values)
        else:
            raw = struct.pack(f"<{len(values)}{'e' if reference_layers.TYPE == 'F16' else 'f'}", *values)
        header[name] = {"dtype": reference_layers.TYPE, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def main():
    family, reference_layers.TYPE, folder = sys.argv[1:]
    model, config = FAMILIES[family]
    if family == "opt":  # whose configuration has no key for it
        reference_layers.EPS = 1e-5
    tokens = [rng.randrange(V) for _ in range(T + 1)]
    x, head, bias = model(tokens[:-1])
    loss = 0.0
    for v, label in zip(x, tokens[1:]):
        logits = [sum(a * b for a, b in zip(v, row)) for row in head]
        if bias:
            logits = [a + b for a, b in zip(logits, bias)]
        top = max(logits)
        loss += math.log(sum(math.exp(a - top) for a in logits)) + top - logits[label]
    names = sorted(TENSORS)
    half = len(names) // 2
    write_safetensors(os.path.join(folder, "model-00001-of-00002.safetensors"), names[:half])
    write_safetensors(os.path.join(folder, "model-00002-of-00002.safetensors"), names[half:])
    index = {n: f"model-0000{1 if i < half else 2}-of-00002.safetensors" for i, n in enumerate(names)}
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {}, "weight_map": index}, f)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump({"model_type": family, **config}, f)
    with open(os.path.join(folder, "tokens.u16"), "wb") as f:
        f.write(struct.pack(f"<{T + 1}H", *tokens))
    print(repr(loss / T))


main()
