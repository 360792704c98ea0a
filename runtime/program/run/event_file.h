// SPDX-License-Identifier: Apache-2.0
// Event files as TensorBoard reads them: TFRecord frames (length, masked CRC-32C of the length,
// data, masked CRC-32C of the data) around Event messages in protobuf's wire format.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery::cli {

uint32_t Crc32c(std::string_view data);  // Castagnoli's polynomial, as RFC 3720 has it

using Scalars = std::vector<std::pair<std::string, double>>;  // tag, value

// Event{wall_time, step, summary}, and the frame around any message.
std::string EventMessage(double wall_time_s, int64_t step, const Scalars& scalars);
std::string RecordFrame(std::string_view message);

class EventFile {
 public:
  // A new file in `folder`, which is made where it is missing. Throws std::runtime_error.
  EventFile(const std::string& folder, const std::string& host);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // On disk, for readers, when it returns. Throws std::runtime_error (a full disk).
  void Write(int64_t step, const Scalars& scalars);
  const std::string& path() const { return path_; }

 private:
  void Append(const std::string& frame);
  std::string path_;
  std::FILE* file_ = nullptr;
};

}  // namespace orrery::cli
