// SPDX-License-Identifier: Apache-2.0
// What `plan run` shows of its steps: event files read back byte by byte, the profile, the console.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/program/run/event_file.h"
#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

using nlohmann::json;
using testing::HasSubstr;

Outcome Plan(const std::string& text) {
  std::istringstream in(text);
  return RunPlan({std::istream_iterator<std::string>(in), {}});
}

// Bit by bit, apart from the table in the program.
uint32_t PlainCrc32c(const std::string& data) {
  uint32_t crc = 0xffffffffu;
  for (const char c : data) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1u) != 0 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
  }
  return crc ^ 0xffffffffu;
}
uint32_t Unmasked(uint32_t masked) { return std::rotl(masked - 0xa282ead8u, 15); }

template <class T>
T Take(std::string* bytes) {
  T value{};
  if (bytes->size() < sizeof value) throw std::runtime_error("too short");
  std::memcpy(&value, bytes->data(), sizeof value);
  bytes->erase(0, sizeof value);
  return value;
}
std::string Take(std::string* bytes, std::size_t n) {
  if (bytes->size() < n) throw std::runtime_error("too short");
  const std::string front = bytes->substr(0, n);
  bytes->erase(0, n);
  return front;
}
uint64_t TakeVarint(std::string* bytes) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = Take<uint8_t>(bytes);
    value |= uint64_t{byte & 0x7fu} << shift;
    if ((byte & 0x80u) == 0) return value;
  }
}

struct Event {
  double wall_time = 0;
  int64_t step = 0;
  std::string version;
  std::map<std::string, float> scalars;
};

void ReadValue(std::string value, Event* event) {
  std::string tag;
  float number = 0;
  while (!value.empty()) {
    const uint64_t key = TakeVarint(&value);
    if (key == (1u << 3 | 2u)) {
      tag = Take(&value, TakeVarint(&value));
    } else if (key == (2u << 3 | 5u)) {
      number = Take<float>(&value);
    } else {
      throw std::runtime_error("unknown field of a value");
    }
  }
  event->scalars[tag] = number;
}

Event ReadEvent(std::string message) {
  Event event;
  while (!message.empty()) {
    const uint64_t key = TakeVarint(&message);
    if (key == (1u << 3 | 1u)) {
      event.wall_time = Take<double>(&message);
    } else if (key == (2u << 3 | 0u)) {
      event.step = static_cast<int64_t>(TakeVarint(&message));
    } else if (key == (3u << 3 | 2u)) {
      event.version = Take(&message, TakeVarint(&message));
    } else if (key == (5u << 3 | 2u)) {
      std::string summary = Take(&message, TakeVarint(&message));
      while (!summary.empty()) {
        EXPECT_EQ(TakeVarint(&summary), 1u << 3 | 2u);
        ReadValue(Take(&summary, TakeVarint(&summary)), &event);
      }
    } else {
      throw std::runtime_error("unknown field of an event");
    }
  }
  return event;
}

std::vector<Event> ReadEvents(std::string bytes) {
  std::vector<Event> events;
  while (!bytes.empty()) {
    const std::string head = Take(&bytes, 8);
    EXPECT_EQ(Unmasked(Take<uint32_t>(&bytes)), PlainCrc32c(head));
    uint64_t length = 0;
    std::memcpy(&length, head.data(), sizeof length);
    const std::string message = Take(&bytes, length);
    EXPECT_EQ(Unmasked(Take<uint32_t>(&bytes)), PlainCrc32c(message));
    events.push_back(ReadEvent(message));
  }
  return events;
}

TEST(EventFile, CrcHasThePublishedValues) {  // RFC 3720, appendix B.4, and the usual check word
  EXPECT_EQ(cli::Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(cli::Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(cli::Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST(EventFile, MessagesReadBack) {
  const std::string frame =
      cli::RecordFrame(cli::EventMessage(12.5, 300, {{"loss", 0.25}, {"a/b", -3}}));
  const std::vector<Event> events = ReadEvents(frame);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].wall_time, 12.5);
  EXPECT_EQ(events[0].step, 300);
  EXPECT_EQ(events[0].scalars, (std::map<std::string, float>{{"loss", 0.25f}, {"a/b", -3.f}}));
}

TEST(PlanRun, WritesAnEventFile) {
  const std::string folder = ScratchFolder() + "/deep/events";
  const Outcome outcome = Plan(
      "run --model linear-20-1 --comm local --ranks 2 --dp 2 --steps 5 "
      "--json --tensorboard " +
      folder);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json record = json::parse(outcome.out);
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files.push_back(entry.path());
  ASSERT_EQ(files.size(), 1u);
  EXPECT_TRUE(files[0].filename().string().starts_with("events.out.tfevents."));
  const std::vector<Event> events = ReadEvents(ReadText(files[0]));
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  for (std::size_t s = 1; s < events.size(); ++s) {
    EXPECT_EQ(events[s].step, static_cast<int64_t>(s));
    EXPECT_EQ(events[s].scalars.at("loss"), record["steps"][s - 1]["loss"].get<float>());
    EXPECT_EQ(events[s].scalars.at("gradient_norm"),
              record["steps"][s - 1]["gradient_norm"].get<float>());
    EXPECT_GT(events[s].scalars.at("samples_per_second"), 0);
    EXPECT_GT(events[s].scalars.at("mfu"), 0);
    EXPECT_GE(events[s].wall_time, events[s - 1].wall_time);
  }
}

TEST(PlanRun, AFolderThatCannotBeHasItsMessage) {
  const std::string file = ScratchFolder() + "/plain";
  WriteText(file, "x");
  const Outcome outcome =
      Plan("run --model linear-20-1 --comm local --steps 2 --tensorboard " + file);
  EXPECT_EQ(outcome.code, 2);  // before it trains
  EXPECT_THAT(outcome.err, HasSubstr("cannot write into '" + file));
}

TEST(PlanRun, ProfileSaysWhereAStepGoes) {
  const std::string job =
      "run --model linear-20-1 --comm local --ranks 2 --dp 2 --steps 6 --profile";
  const Outcome text = Plan(job);
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("matrix products"));
  EXPECT_THAT(text.out, HasSubstr("mean of 2 ranks and 5 steps"));
  EXPECT_THAT(text.out, HasSubstr("  mem "));
  const json profile = json::parse(Plan(job + " --json").out)["profile"];
  const double kernels = profile["share_of_kernels"], messages = profile["share_of_communication"];
  EXPECT_GT(kernels, 0);
  EXPECT_GT(messages, 0);
  EXPECT_LE(kernels + messages, 1.0001);
  double sum = 0;
  for (const json& op : profile["ops"]) {
    sum += op["kernels_s"].get<double>() + op["exposed_s"].get<double>();
    EXPECT_LE(op["exposed_s"], op["in_flight_s"].get<double>() + 1e-12);
  }
  EXPECT_NEAR(sum, (kernels + messages) * profile["step_s"].get<double>(), 1e-9);
}

}  // namespace
}  // namespace orrery
