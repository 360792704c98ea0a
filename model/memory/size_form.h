// SPDX-License-Identifier: Apache-2.0
// Bytes as a function of micro-batch size and shards: sample x micro_batch + fixed + shard / dp.
#pragma once

#include <algorithm>
#include <vector>

namespace orrery {

struct SizeForm {
  double sample = 0;  // bytes per sample of a micro-batch
  double fixed = 0;   // bytes
  double shard = 0;   // bytes over all shards of the sharding group

  double At(double micro_batch, double dp) const {
    return sample * micro_batch + fixed + shard / dp;
  }
  SizeForm& operator+=(const SizeForm& o) {
    sample += o.sample, fixed += o.fixed, shard += o.shard;
    return *this;
  }
  SizeForm& operator-=(const SizeForm& o) {
    sample -= o.sample, fixed -= o.fixed, shard -= o.shard;
    return *this;
  }
  friend SizeForm operator+(SizeForm a, const SizeForm& b) { return a += b; }
  friend SizeForm operator-(SizeForm a, const SizeForm& b) { return a -= b; }
  friend SizeForm operator*(SizeForm a, double f) {
    return {a.sample * f, a.fixed * f, a.shard * f};
  }
  friend SizeForm Min(const SizeForm& a, const SizeForm& b) {
    return {std::min(a.sample, b.sample), std::min(a.fixed, b.fixed), std::min(a.shard, b.shard)};
  }
  bool operator==(const SizeForm&) const = default;
  bool Covers(const SizeForm& o) const {
    return sample >= o.sample && fixed >= o.fixed && shard >= o.shard;
  }
};

// The largest of several forms; only those that some argument can select are kept.
class MaxForm {
 public:
  void Add(const SizeForm& form) {
    for (const SizeForm& known : forms_) {
      if (known.Covers(form)) return;
    }
    std::erase_if(forms_, [&](const SizeForm& known) { return form.Covers(known); });
    forms_.push_back(form);
  }
  void Add(const MaxForm& other) {
    for (const SizeForm& form : other.forms_) Add(form);
  }
  double At(double micro_batch, double dp) const {
    double most = 0;
    for (const SizeForm& form : forms_) most = std::max(most, form.At(micro_batch, dp));
    return most;
  }
  const std::vector<SizeForm>& forms() const { return forms_; }

 private:
  std::vector<SizeForm> forms_;
};

}  // namespace orrery
