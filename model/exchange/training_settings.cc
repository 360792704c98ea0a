// SPDX-License-Identifier: Apache-2.0
// The table of such settings.
#include "model/exchange/training_settings.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "model/base/plain_text.h"
#include "model/exchange/spellings.h"

namespace orrery::exchange {
namespace {

constexpr const char *kShape = "--lr-schedule", *kEnd = "--lr-end", *kLength = "--lr-steps";

struct Row {
  unsigned targets;
  const char* key;
  const char* flag;
};
constexpr Row kRows[] = {
    {kMegatron, "lr", "--lr"},
    {kMegatron, "lr-decay-style", kShape},
    {kMegatron, "lr-warmup-iters", "--warmup"},
    {kMegatron, "min-lr", kEnd},
    {kMegatron, "lr-decay-iters", kLength},
    {kMegatron, "train-iters", "--steps"},
    {kMegatron, "weight-decay", "--weight-decay"},
    {kMegatron, "clip-grad", "--clip-norm"},
    {kMegatron, "seed", "--seed"},
    {kBridge, "optimizer.lr", "--lr"},
    {kBridge, "scheduler.lr_decay_style", kShape},
    {kBridge, "scheduler.lr_warmup_iters", "--warmup"},
    {kBridge, "optimizer.min_lr", kEnd},
    {kBridge, "scheduler.lr_decay_iters", kLength},
    {kBridge, "train.train_iters", "--steps"},
    {kBridge, "optimizer.weight_decay", "--weight-decay"},
    {kBridge, "optimizer.clip_grad", "--clip-norm"},
    {kBridge, "rng.seed", "--seed"},
    {kDeepSpeed, "optimizer.params.lr", "--lr"},
    {kDeepSpeed, "optimizer.params.weight_decay", "--weight-decay"},
    {kDeepSpeed, "gradient_clipping", "--clip-norm"},
    {kAccelerate, "args.learning_rate", "--lr"},
    {kAccelerate, "args.lr_scheduler_type", kShape},
    {kAccelerate, "args.warmup_steps", "--warmup"},
    {kAccelerate, "args.max_steps", "--steps"},
    {kAccelerate, "args.weight_decay", "--weight-decay"},
    {kAccelerate, "args.max_grad_norm", "--clip-norm"},
    {kAccelerate, "args.seed", "--seed"},
    {kTitan | kTitanToml, "optimizer.lr", "--lr"},
    {kTitan | kTitanToml, "lr_scheduler.warmup_steps", "--warmup"},
    {kTitan | kTitanToml, "training.steps", "--steps"},
    {kTitan | kTitanToml, "training.max_norm", "--clip-norm"},
};

// Schedules as they are spelled there. A line is a polynomial of power 1, and a warm-up is of the run's own.
constexpr std::pair<std::string_view, const char*> kShapes[] = {
    {"constant", "constant"},
    {"constant_with_warmup", "constant"},
    {"cosine", "cosine"},
    {"linear", "polynomial"},
};

// "": a run has none of it.
std::string TextFor(const Row& row, const std::string& value) {
  if (row.flag == kShape) {
    const auto shape =
        std::ranges::find_if(kShapes, [&](const auto& known) { return known.first == value; });
    return shape == std::end(kShapes) ? "" : shape->second;
  }
  double number = 0;
  return ParseNumber(value, &number) == NumberFault::kNone && number >= 0 ? value : "";
}

}  // namespace

Values TrainingOf(const SettingIndex& settings, Target target) {
  Values values;
  // Megatron's and the Trainer's rate falls in a line unless it is told otherwise.
  for (const auto& [key, shape] : {std::pair{"lr", "lr-decay-style"},
                                   std::pair{"args.learning_rate", "args.lr_scheduler_type"}}) {
    const bool own = target == (key == std::string_view("lr") ? kMegatron : kAccelerate);
    if (own && !settings.Peek(key).empty() && settings.Peek(shape).empty())
      values.emplace(kShape, Value{"polynomial", settings.Find(key)->where, shape});
  }
  for (const Row& row : kRows) {
    if ((row.targets & target) == 0) continue;
    const std::string value = TextFor(row, settings.Peek(row.key));
    if (value.empty()) continue;
    const auto shape = values.find(kShape);
    const bool falls = shape != values.end() && shape->second.text != "constant";
    // Where a rate falls to means nothing to one that stays.
    if ((row.flag == kEnd || row.flag == kLength) && !falls) continue;
    const Setting* setting = settings.Find(row.key);
    values.insert_or_assign(row.flag, Value{value, setting->where, setting->key});
    // It falls until the last step unless the file says when.
    if (row.flag == std::string_view("--steps") && falls)
      values.emplace(kLength, Value{value, setting->where, setting->key});
  }
  return values;
}

}  // namespace orrery::exchange
