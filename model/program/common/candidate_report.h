// SPDX-License-Identifier: Apache-2.0
// One assessed layout: everything that `predict` prints, and its JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "model/program/common/job.h"

namespace orrery::report {

// A layout in one line: its step time with the interval, tokens per second, memory.
std::string Brief(const std::string& layout, const Prediction& prediction);

// What `plan predict` found out.
struct PredictReport {
  Prediction candidate;  // of a whole optimizer step
  StepTime micro_step;   // forward and backward of one micro-batch: as the software's timer
                         // prints it if the window is kMicrostep, else sustained
  Window window = Window::kStep;  // the one asked for
  // Seconds of a micro-step in the long run and by the software's timer: they differ where that does
  // not wait for the device. NaN: not known.
  double sustained_s = 0, printed_s = 0;
};

std::string PredictionText(const Job& job, const PredictReport& prediction);
nlohmann::ordered_json PredictionJson(const Job& job, const PredictReport& prediction);

// The record that predictions and simulations share, key by key; a simulation has no interval and
// no micro-step: NaN, which becomes null.
nlohmann::ordered_json RecordJson(const Job& job, const PredictReport& prediction,
                                  const std::string& schema, const std::string& engine);

// The nearest published runs as a table, each with its distance; "" where none is known.
std::string NearestText(const Prediction& candidate);

// Of a simulated step that is more than kEnginesDiffer from its closed form: "2.28 s simulated, 2.05 s in closed form.
// Largest difference: contention (+0.2 s); ..."; else "".
std::string EngineDifference(const Prediction& candidate);

// What the time of a step leaves open, as `plan predict` prints it: a label and the words.
struct Note {
  const char* label;
  std::string words;
};
// How its engine may be wrong: not simulated and why, engines that differ, contention that the closed form leaves out.
std::vector<Note> EngineNotes(const Job& job, const Prediction& candidate);
// Of those and of what was never calibrated: "engines differ: ...; not calibrated: 64 nodes: calibrated on 1 to 32".
std::string NotesText(const Job& job, const Prediction& candidate);

// Layout, times, throughput, memory and price, keys in SI units. `dp` in `strategy` is the whole data-parallel degree,
// `dp_outer` the part of it that only replicates ZeRO shards, as the flags mean them.
nlohmann::ordered_json CandidateJson(const Prediction& candidate);

// The layout, or the title of the plan text in its place.
std::string LayoutWords(const Job& job, const Prediction& prediction);
// "38.1 % = 3.04e17 model FLOP / (17.9 s x 16 GPUs x 100 TFLOP/s in bf16)"
std::string MfuFormula(const Job& job, const Prediction& candidate);
// What an MFU counts that a causal mask leaves out, where that is much: a clause to put behind it; else "".
std::string MaskedNote(const Prediction& candidate);
// Where the peak in that formula comes from.
std::string PeakSource(const Job& job);

}  // namespace orrery::report
