// SPDX-License-Identifier: Apache-2.0
// A benchmark program for plain PyTorch: FSDP2 or DDP around a model of Transformers, on generated tokens.
#include <fmt/format.h>

#include "model/arch/hf_tensors.h"
#include "model/base/plain_text.h"
#include "model/exchange/train_script.h"

namespace orrery::exchange {
namespace {

bool LlamaLike(const ModelSpec& model) {
  return model.norm == Norm::kRmsNorm && model.activation == Activation::kSwiglu &&
         model.positions == Positions::kRotary;
}
bool GptLike(const ModelSpec& model) {
  return model.norm == Norm::kLayerNorm && model.activation == Activation::kGelu &&
         model.positions == Positions::kLearned;
}

// As a Python dictionary, which JSON's is but for its truth values.
std::string ScalingArgument(const ModelSpec& m) {
  if (m.rope_scaling.kind == RopeScaling::Kind::kNone) return "";
  const bool truncate = m.rope_scaling.truncate;
  std::string text = HfRopeScaling(m.rope_scaling);
  if (const std::size_t at = text.find(truncate ? "true" : "false"); at != std::string::npos)
    text[at] = truncate ? 'T' : 'F';
  return "\n    rope_scaling=" + text + ",";
}

std::string ModelConfig(const ModelSpec& m) {
  if (GptLike(m))
    return fmt::format(R"sh(MODEL = dict(
    model_type="gpt2", n_layer={}, n_embd={}, n_inner={}, n_head={}, vocab_size={},
    n_positions={}, tie_word_embeddings={},
)
DROPOUTS = ("embd_pdrop", "resid_pdrop", "attn_pdrop")
)sh",
                       m.layers, m.hidden, m.ffn, m.heads, m.vocab, m.max_positions,
                       m.tied_embeddings ? "True" : "False");
  return fmt::format(R"sh(MODEL = dict(
    model_type="llama", num_hidden_layers={}, hidden_size={}, intermediate_size={},
    num_attention_heads={}, num_key_value_heads={}, head_dim={}, vocab_size={},
    max_position_embeddings={}, rope_theta={}, tie_word_embeddings={},{}
)
DROPOUTS = ("attention_dropout",)
)sh",
                     m.layers, m.hidden, m.ffn, m.heads, m.kv_heads, m.head_dim, m.vocab,
                     m.max_positions, m.rope_base, m.tied_embeddings ? "True" : "False",
                     ScalingArgument(m));
}

std::string Constant(const std::string& value) {
  double number = 0;
  const bool bare =
      value == "True" || value == "False" || ParseNumber(value, &number) == NumberFault::kNone;
  return bare ? value : "\"" + value + "\"";
}

constexpr const char* kImports = R"sh(
import os
import time

import torch
import torch.distributed as dist
)sh";

constexpr const char* kModelPart = R"sh(
HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(PRECISION)


def build_model():
    settings = dict(MODEL)
    config = AutoConfig.for_model(settings.pop("model_type"), use_cache=False, **settings)
    for name in DROPOUTS:
        setattr(config, name, DROPOUT)
    torch.manual_seed(0)
    with weights_placed():
        model = AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION)
    if RECOMPUTE:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if COMPILE:
        for layer in layers_of(model):
            layer.compile()
    return model


def layers_of(model):
    body = model.base_model
    return body.layers if hasattr(body, "layers") else body.h

)sh";

constexpr const char* kShardedParts = R"sh(
def weights_placed():
    return init_empty_weights()  # no rank ever holds the whole model


def fill(model, device):
    """Memory for the shards of this rank, with weights of a benchmark in it."""
    buffers = {name: buffer.to(device) for name, buffer in model.named_buffers()}
    model.to_empty(device=device)
    model.tie_weights()
    for name, buffer in model.named_buffers():
        buffer.copy_(buffers[name])
    for name, weight in model.named_parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=0.02)
        else:
            torch.nn.init.constant_(weight, 0 if name.endswith("bias") else 1)


def distribute(model, mesh, device):
    """Every layer is a unit of fully_shard, and what is left over is one more."""
    reduce_dtype = torch.float32 if REDUCE_DTYPE == "float32" else HALF
    policy = MixedPrecisionPolicy(param_dtype=HALF, reduce_dtype=reduce_dtype if HALF else None)
    for layer in layers_of(model):
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=RESHARD_AFTER_FORWARD)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=RESHARD_AFTER_FORWARD)
    fill(model, device)
    return model


def accumulate(model, last):
    # Each micro-batch reduces into the shards of the gradients, or the last one what all have added up.
    model.set_requires_gradient_sync(last or not REDUCE_ONCE)
    return contextlib.nullcontext()


def forward_type():
    return contextlib.nullcontext()


def make_mesh(world):
    if REPLICAS == 1:
        return init_device_mesh("cuda", (world,), mesh_dim_names=("shard",))
    shape = (REPLICAS, world // REPLICAS)
    return init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))

)sh";

constexpr const char* kReplicatedParts = R"sh(
def weights_placed():
    return contextlib.nullcontext()


def distribute(model, mesh, device):
    return DistributedDataParallel(model.to(device), device_ids=[device.index],
                                   bucket_cap_mb=BUCKET_MB, gradient_as_bucket_view=True)


def accumulate(model, last):
    # Gradients are reduced with the last micro-batch.
    return contextlib.nullcontext() if last else model.no_sync()


def forward_type():
    return torch.autocast("cuda", dtype=HALF) if HALF else contextlib.nullcontext()


def make_mesh(world):
    return None

)sh";

constexpr const char* kOptimizer = R"sh(
def make_optimizer(model):
    kind = getattr(torch.optim, OPTIMIZER)
    options = dict(lr=1e-4) if OPTIMIZER == "SGD" else dict(lr=1e-4, fused=True)
    return kind(model.parameters(), **options)

)sh";

constexpr const char* kShardedOptimizer = R"sh(
def make_optimizer(model):
    kind = getattr(torch.optim, OPTIMIZER)
    return ZeroRedundancyOptimizer(model.parameters(), optimizer_class=kind, lr=1e-4)

)sh";

constexpr const char* kMain = R"sh(
def train_step(model, optimizer, batches, world, scaler):
    for i, tokens in enumerate(batches):
        with accumulate(model, i + 1 == len(batches)), forward_type():
            loss = model(input_ids=tokens, labels=tokens).loss / len(batches)
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    return loss


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank, world = dist.get_rank(), dist.get_world_size()
    if PRECISION == "tf32":
        torch.set_float32_matmul_precision("high")
    per_pass = MICRO_BATCH * world
    if world != NODES * GPUS_PER_NODE or GLOBAL_BATCH % per_pass:
        raise SystemExit(f"{world} ranks: the layout is for {NODES * GPUS_PER_NODE}")
    model = distribute(build_model(), make_mesh(world), device)
    optimizer = make_optimizer(model)
    scaler = torch.amp.GradScaler("cuda", enabled=PRECISION == "fp16")
    generator = torch.Generator(device).manual_seed(rank)
    shape = (MICRO_BATCH, SEQ_LEN)
    for step in range(1, int(os.environ.get("STEPS", "50")) + 1):
        batches = [torch.randint(MODEL["vocab_size"], shape, device=device, generator=generator)
                   for _ in range(GLOBAL_BATCH // per_pass)]
        torch.cuda.synchronize()
        begin = time.perf_counter()
        loss = train_step(model, optimizer, batches, world, scaler)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        if rank == 0:
            peak = torch.cuda.max_memory_allocated() / 2**30
            print(f"step {step} loss {loss.item() * len(batches):.4f} step_time {seconds:.4f} s "
                  f"tokens/s {GLOBAL_BATCH * SEQ_LEN / seconds:.0f} peak {peak:.2f} GiB", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
)sh";

std::string Program(const Bundle& bundle) {
  const bool fsdp = bundle.target == kFsdp;
  std::string text = Comments(bundle, "#");
  text += "import contextlib";
  text += kImports;
  if (fsdp) {
    text +=
        "from accelerate import init_empty_weights\n"
        "from torch.distributed.device_mesh import init_device_mesh\n"
        "from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard\n";
  } else {
    text += "from torch.nn.parallel import DistributedDataParallel\n";
  }
  const bool sharded = !bundle.Get("SHARDED_OPTIMIZER").empty();
  if (sharded) text += "from torch.distributed.optim import ZeroRedundancyOptimizer\n";
  text += "from transformers import AutoConfig, AutoModelForCausalLM\n";
  text += "\n" + ModelConfig(bundle.layout.model);
  for (const Setting& setting : bundle.settings.settings) {
    const bool nodes = setting.key == "NNODES";
    text += fmt::format("{} = {}\n", nodes ? "NODES" : setting.key, Constant(setting.value));
  }
  if (fsdp && bundle.Get("RESHARD_AFTER_FORWARD").empty()) text += "RESHARD_AFTER_FORWARD = True\n";
  if (fsdp && bundle.Get("REDUCE_DTYPE").empty()) text += "REDUCE_DTYPE = \"float32\"\n";
  if (fsdp && bundle.Get("REDUCE_ONCE").empty()) text += "REDUCE_ONCE = False\n";
  if (fsdp && bundle.Get("REPLICAS").empty()) text += "REPLICAS = 1\n";
  if (!fsdp && bundle.Get("BUCKET_MB").empty()) text += "BUCKET_MB = 25\n";
  return text + kModelPart + (fsdp ? kShardedParts : kReplicatedParts) +
         (sharded ? kShardedOptimizer : kOptimizer) + kMain;
}

}  // namespace

bool TorchHasModel(const ModelSpec& model) {
  return model.family == Family::kDecoder && (LlamaLike(model) || GptLike(model));
}

std::vector<File> TorchFiles(const Bundle& bundle) {
  std::string script = ScriptHead(bundle) + R"sh(
export STEPS
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
)sh";
  script += ScriptTail(bundle, "\"$here/train.py\"");
  return {{"train.py", Program(bundle), false}, {"train.sh", script, true}};
}

}  // namespace orrery::exchange
