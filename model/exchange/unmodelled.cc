// SPDX-License-Identifier: Apache-2.0
// Settings that change a job in a way that plans do not model.
#include <algorithm>
#include <iterator>

#include "model/base/plain_text.h"
#include "model/exchange/spellings.h"

namespace orrery::exchange {
namespace {

struct Unmodelled {
  Target target;
  const char* part;  // the key begins so
  const char* what;
  double but = -1;  // with this number it is as plans have it
};
constexpr Unmodelled kUnmodelled[] = {
    {kMegatron, "fp4-param", "weights held in 4 bits"},
    {kMegatron, "softmax-type", "another softmax"},
    {kMegatron, "no-rope-freq", "layers without positions"},
    {kMegatron, "cuda-graph", "CUDA graphs"},
    {kMegatron, "enable-cuda-graph", "CUDA graphs"},
    {kMegatron, "moe-", "mixtures of experts"},
    {kMegatron, "use-precision-aware-optimizer", "states of the optimizer in other types"},
    {kMegatron, "fine-grained-activation-offloading", "offloading of activations by modules"},
    {kMegatron, "fp32-residual-connection", "residuals in fp32"},
    {kMegatron, "rampup-batch-size", "a batch that grows"},
    {kDeepSpeed, "zero_optimization.offload_param", "weights on NVMe, or other choices of offload"},
    {kDeepSpeed, "zero_optimization.offload_optimizer",
     "states on NVMe, or other choices of offload"},
    {kDeepSpeed, "zero_optimization.zero_quantized", "quantised collectives"},
    {kDeepSpeed, "zero_hpz", "a second shard of the weights in each node"},
    {kDeepSpeed, "sparse_attention", "sparse attention"},
    {kDeepSpeed, "compression_training", "compression"},
    {kAccelerate, "deepspeed_config.offload", "offloading"},
    {kDeepSpeed, "zero_optimization.reduce_bucket_size", "another size of buckets", 5e8},
    {kMegatron, "ddp-bucket-size", "another size of buckets"},
    {kBridge, "ddp.bucket_size", "another size of buckets"},
    {kTitan, "compile.", "compiled kernels"},
    {kTitanToml, "compile.", "compiled kernels"},
    {kTitanToml, "model.converters", "a conversion of the model"},
    {kTitanToml, "quantize.linear.float8.recipe_name", "fp8 with scales by rows"},
};

}  // namespace

const char* NotModelled(Target target, const Setting& setting) {
  double number = 0;
  const bool known = ParseNumber(setting.value, &number) == NumberFault::kNone;
  const auto row = std::ranges::find_if(kUnmodelled, [&](const Unmodelled& what) {
    return what.target == target && setting.key.starts_with(what.part) && !Off(setting.value) &&
           !(known && number == what.but);
  });
  return row == std::end(kUnmodelled) ? nullptr : row->what;
}

}  // namespace orrery::exchange
