// SPDX-License-Identifier: Apache-2.0
// UTF-8 by RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
#include "model/base/plain_text.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace orrery {
namespace {

// Most text by far is printable ASCII: eight bytes at once, each 0x20 to 0x7E. Adding 1 sets the high bit of 0x7F; of bytes
// below 0x80 subtracting 0x20 borrows from the high bit that is set before for those below 0x20 alone, so no byte disturbs
// another.
constexpr std::size_t kEight = sizeof(uint64_t);
bool ArePrintable(const char* text) {
  constexpr uint64_t kOnes = 0x0101010101010101, kHigh = 0x80 * kOnes;
  uint64_t bytes = 0;
  std::memcpy(&bytes, text, kEight);
  if ((bytes & kHigh) != 0) return false;
  return ((bytes + kOnes) & kHigh) == 0 && (~((bytes | kHigh) - 0x20 * kOnes) & kHigh) == 0;
}

template <class T>
NumberFault ParseWhole(std::string_view text, T* value) {
  const std::size_t sign = !text.empty() && text[0] == '-' ? 1 : 0;
  const bool starts = text.size() > sign && (IsDigit(text[sign]) || text[sign] == '.');
  if (!starts) return NumberFault::kMalformed;
  T parsed{};
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  if (status == std::errc::invalid_argument || rest != text.data() + text.size()) {
    return NumberFault::kMalformed;
  }
  if (status != std::errc()) return NumberFault::kOutOfRange;
  *value = parsed;
  return NumberFault::kNone;
}

}  // namespace

std::size_t Utf8Length(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto continues = [&](std::size_t i, unsigned low = 0x80, unsigned high = 0xBF) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return continues(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const unsigned low = lead == 0xE0 ? 0xA0 : 0x80, high = lead == 0xED ? 0x9F : 0xBF;
    return continues(1, low, high) && continues(2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const unsigned low = lead == 0xF0 ? 0x90 : 0x80, high = lead == 0xF4 ? 0x8F : 0xBF;
    return continues(1, low, high) && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

std::string_view WithoutByteOrderMark(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  return text;
}

bool CheckPlainText(const SourcePtr& source, Diagnostics* diagnostics) {
  const std::string_view text = source->text;
  int line = 1;
  std::size_t line_start = 0;
  for (std::size_t i = 0; i < text.size();) {
    if (i + kEight <= text.size() && ArePrintable(text.data() + i)) {
      i += kEight;
      continue;
    }
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0x20 && byte < 0x7F) {
      ++i;
      continue;
    }
    const std::size_t length = Utf8Length(text.substr(i));
    const bool control =
        (byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7F;
    if (length == 0 || control) {
      diagnostics->Error({source, line, static_cast<int>(i - line_start) + 1},
                         control ? fmt::format("not a text file: control character 0x{:02x}", byte)
                                 : fmt::format("not UTF-8 text: byte 0x{:02x}", byte),
                         "save the file as UTF-8 text");
      return false;
    }
    i += length;
    if (byte == '\n') {
      ++line;
      line_start = i;
    }
  }
  return true;
}

NumberFault ParseInteger(std::string_view text, int64_t* value) { return ParseWhole(text, value); }

NumberFault ParseNumber(std::string_view text, double* value) {
  const NumberFault fault = ParseWhole(text, value);
  return fault == NumberFault::kNone && !std::isfinite(*value) ? NumberFault::kOutOfRange : fault;
}

}  // namespace orrery
