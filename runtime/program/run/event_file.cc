// SPDX-License-Identifier: Apache-2.0
// Bytes of event files.
#include "runtime/program/run/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace orrery::cli {
namespace {

constexpr uint32_t kReversedPolynomial = 0x82f63b78u;
constexpr uint32_t kMaskDelta = 0xa282ead8u;

constexpr std::array<uint32_t, 256> kCrcTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1u ? kReversedPolynomial : 0u);
    table[byte] = crc;
  }
  return table;
}();

uint32_t Masked(uint32_t crc) { return std::rotr(crc, 15) + kMaskDelta; }

template <class T>
std::string LittleEndian(T value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof value; ++i)
    bytes += static_cast<char>(value >> (8 * i) & 0xffu);
  return bytes;
}

// Protobuf's wire format: a key (number << 3 | type) before every value.
enum WireType : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80u; value >>= 7) bytes += static_cast<char>(value | 0x80u);
  return bytes + static_cast<char>(value);
}
std::string Key(uint64_t number, WireType type) { return Varint(number << 3 | type); }
std::string BytesField(uint64_t number, std::string_view bytes) {
  return Key(number, kBytes) + Varint(bytes.size()) + std::string(bytes);
}

double WallTime() {
  using std::chrono::system_clock;
  return std::chrono::duration<double>(system_clock::now().time_since_epoch()).count();
}

std::string WallTimeField(double seconds) {
  return Key(1, kFixed64) + LittleEndian(std::bit_cast<uint64_t>(seconds));
}

}  // namespace

uint32_t Crc32c(std::string_view data) {
  uint32_t crc = ~0u;
  for (const char c : data) crc = crc >> 8 ^ kCrcTable[(crc ^ static_cast<uint8_t>(c)) & 0xffu];
  return ~crc;
}

std::string EventMessage(double wall_time_s, int64_t step, const Scalars& scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
    summary += BytesField(1, BytesField(1, tag) + Key(2, kFixed32) + LittleEndian(bits));
  }
  return WallTimeField(wall_time_s) + Key(2, kVarint) + Varint(static_cast<uint64_t>(step)) +
         BytesField(5, summary);
}

std::string RecordFrame(std::string_view message) {
  const std::string length = LittleEndian(static_cast<uint64_t>(message.size()));
  return length + LittleEndian(Masked(Crc32c(length))) + std::string(message) +
         LittleEndian(Masked(Crc32c(message)));
}

EventFile::EventFile(const std::string& folder, const std::string& host) {
  std::error_code ignored;  // opening says what is wrong
  std::filesystem::create_directories(folder, ignored);
  const double now = WallTime();
  path_ = fmt::format("{}/events.out.tfevents.{:010}.{}.{}.0", folder, static_cast<int64_t>(now),
                      host, getpid());
  file_ = std::fopen(path_.c_str(), "wb");
  if (file_ == nullptr)
    throw std::runtime_error(fmt::format("cannot write '{}': {}", path_, std::strerror(errno)));
  Append(RecordFrame(WallTimeField(now) + BytesField(3, "brain.Event:2")));
}

EventFile::~EventFile() { std::fclose(file_); }

void EventFile::Write(int64_t step, const Scalars& scalars) {
  Append(RecordFrame(EventMessage(WallTime(), step, scalars)));
}

void EventFile::Append(const std::string& frame) {
  if (std::fwrite(frame.data(), 1, frame.size(), file_) != frame.size() || std::fflush(file_) != 0)
    throw std::runtime_error(fmt::format("cannot write '{}': {}", path_, std::strerror(errno)));
}

}  // namespace orrery::cli
