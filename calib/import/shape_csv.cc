// SPDX-License-Identifier: Apache-2.0
// Reads tables of kernels whose shape is one cell of "key=value, ...", as SimuMax prints them
// (MooreThreads/SimuMax, simu_tools/efficency_test: test_gemm_, test_grouped_gemm_ and test_fa_efficiency.py).
//
// FLOPs as those scripts count them: a product 2 b m n k; attention, which is causal, in full: 2 b h s^2 (dq + dv)
// forward, 5 b h s^2 (dq + dv) backward. The rate is FLOPs over the time of a call.
#include <fmt/format.h>

#include <charconv>
#include <map>
#include <sstream>

#include "calib/import/kernel_csv.h"
#include "model/base/text.h"

namespace orrery::measured {
namespace {

constexpr double kTera = 1e12;
constexpr double kMostTflops = 1e6;
constexpr int64_t kMostExtent = int64_t{1} << 40;

class ShapeRow {
 public:
  ShapeRow(const CsvTable& table, std::size_t row, Diagnostics* diagnostics)
      : table_(table), row_(row), diagnostics_(diagnostics) {
    std::istringstream shape(table_.Text(row_, "shape"));
    for (std::string part; std::getline(shape, part, ',');) {
      const std::size_t equals = part.find('=');
      if (equals != std::string::npos)
        cells_.emplace(Trim(std::string_view(part).substr(0, equals)), part.substr(equals + 1));
    }
  }

  KernelSample Read() {
    sample_.where = table_.where(row_, "shape");
    sample_.library = table_.Text(row_, "source");
    std::string op = table_.Text(row_, "op");
    const bool fp8 = op.starts_with("fp8_");
    sample_.dtype = fp8 ? "fp8" : "bf16";
    if (fp8) op.erase(0, 4);
    double flops = 0;
    if (op == "matmul") {
      flops = ReadProduct();
    } else if (op == "group_matmul") {
      flops = ReadGrouped();
    } else if (op == "sdp_fwd" || op == "sdp_bwd") {
      flops = ReadAttention(op == "sdp_bwd");
    } else {
      Complain("op", fmt::format("'{}' is no kernel of these tables", op),
               SuggestName(op, {"matmul", "group_matmul", "sdp_fwd", "sdp_bwd"}));
    }
    const double rate = table_.Number(row_, "tflops", 0, kMostTflops).value_or(0);
    if (rate <= 0) Complain("tflops", "a row without a rate", "TFLOP/s, above 0");
    if (flops > 0 && rate > 0) sample_.seconds = flops / (rate * kTera);
    return std::move(sample_);
  }

 private:
  double ReadProduct() {
    sample_.batch = Whole("b");
    sample_.m = Whole("m"), sample_.n = Whole("n"), sample_.k = Whole("k");
    sample_.op = RowMajor(Word("layout"));
    sample_.epilogue = Epilogue(Word("accumulate") == "True", Word("out_dtype"));
    return ProductFlops();
  }

  // The forward pass multiplies M tokens of each group by its weight of N x K; the keys stay the same in the others.
  double ReadGrouped() {
    sample_.kind = KernelKind::kGrouped;
    sample_.batch = Whole("ng");
    const int64_t tokens = Whole("M"), n = Whole("N"), k = Whole("K");
    const std::string stage = Word("stage");
    if (stage == "bwd_grad_act") {
      sample_.op = "nn", sample_.m = tokens, sample_.n = k, sample_.k = n;
    } else if (stage == "bwd_grad_w") {
      sample_.op = "tn", sample_.m = n, sample_.n = k, sample_.k = tokens;
    } else {
      sample_.op = "nt", sample_.m = tokens, sample_.n = n, sample_.k = k;
    }
    sample_.epilogue = Epilogue(Word("accumulate") == "True", Word("main_grad_dtype"));
    return ProductFlops();
  }

  double ReadAttention(bool backward) {
    sample_.kind = KernelKind::kAttention;
    sample_.op = backward ? "backward" : "forward";
    sample_.algorithm = "cudnn";  // what TransformerEngine takes
    sample_.causal = true;
    sample_.batch = Whole("batch");
    sample_.heads = Whole("head_num"), sample_.kv_heads = Whole("kv_head_num");
    sample_.seq_q = sample_.seq_kv = Whole("seq_len");
    const int64_t widths = Whole("qk_head_dim") + Whole("v_head_dim");
    sample_.head_dim = widths / 2;
    const auto s = static_cast<double>(sample_.seq_q);
    return (backward ? 5.0 : 2.0) * static_cast<double>(sample_.batch * sample_.heads) * s * s *
           static_cast<double>(widths);
  }

  double ProductFlops() const {
    return 2.0 * static_cast<double>(sample_.batch) * static_cast<double>(sample_.m) *
           static_cast<double>(sample_.n) * static_cast<double>(sample_.k);
  }
  static std::string Epilogue(bool accumulates, const std::string& output) {
    if (!accumulates) return "none";
    return output == "fp32" ? "accumulate_fp32" : "accumulate";
  }

  std::string Word(const std::string& key) const {
    const auto found = cells_.find(key);
    return found == cells_.end() ? "" : found->second;
  }
  // TransformerEngine names the storage of B and A by columns.
  static const char* RowMajor(const std::string& layout) {
    return layout == "TN" ? "nt" : layout == "NT" ? "tn" : "nn";
  }
  int64_t Whole(const std::string& key) {
    const std::string word = Word(key);
    int64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error == std::errc() && end == word.data() + word.size() && value > 0 &&
        value <= kMostExtent)
      return value;
    Complain("shape", fmt::format("no extent '{}' in this shape", key), key + "=4096");
    return 1;
  }
  void Complain(const char* column, const std::string& message, const std::string& hint) {
    diagnostics_->Error(table_.where(row_, column), message, hint);
  }

  const CsvTable& table_;
  std::size_t row_;
  Diagnostics* diagnostics_;
  std::map<std::string, std::string, std::less<>> cells_;
  KernelSample sample_;
};

}  // namespace

std::vector<KernelSample> ReadShapeCsv(const SourcePtr& source) {
  Diagnostics diagnostics;
  const CsvTable table = CsvTable::Parse(source, {"op", "shape", "tflops"}, &diagnostics);
  diagnostics.ThrowIfAny();
  std::vector<KernelSample> samples;
  for (std::size_t i = 0; i < table.rows(); ++i)
    samples.push_back(ShapeRow(table, i, &diagnostics).Read());
  if (samples.empty())
    diagnostics.Error({source, 0, 0}, "no timed kernel in it", "a row per kernel");
  diagnostics.ThrowIfAny();
  return samples;
}

}  // namespace orrery::measured
