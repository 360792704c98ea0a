// SPDX-License-Identifier: Apache-2.0
// zlib, in pieces.
#include "model/program/simulate/gzip_stream.h"

#include <zlib.h>

#include <algorithm>
#include <ostream>
#include <vector>

#include "model/base/check.h"

namespace orrery::report {
namespace {

constexpr int kGzipWindow = 15 + 16;  // largest window, gzip header
constexpr int kGzipMemory = 8;        // zlib's default
constexpr int kGzipLevel = 4;         // traces repeat themselves: more effort gains little
constexpr std::size_t kGzipPiece = std::size_t{1} << 16;

}  // namespace

struct GzipBuffer::State {
  z_stream stream{};
  std::vector<char> piece = std::vector<char>(kGzipPiece);
};

GzipBuffer::GzipBuffer(std::ostream* out) : out_(*out), state_(std::make_unique<State>()) {
  const int status = deflateInit2(&state_->stream, kGzipLevel, Z_DEFLATED, kGzipWindow, kGzipMemory,
                                  Z_DEFAULT_STRATEGY);
  ORRERY_CHECK(status == Z_OK, "zlib: {}", status);
}

GzipBuffer::~GzipBuffer() { deflateEnd(&state_->stream); }

bool GzipBuffer::Deflate(const char* data, std::size_t size, bool last) {
  z_stream& stream = state_->stream;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data));
  stream.avail_in = static_cast<uInt>(size);
  int status = Z_OK;
  do {
    stream.next_out = reinterpret_cast<Bytef*>(state_->piece.data());
    stream.avail_out = static_cast<uInt>(kGzipPiece);
    status = deflate(&stream, last ? Z_FINISH : Z_NO_FLUSH);
    ORRERY_CHECK(status != Z_STREAM_ERROR, "zlib: {}", status);
    out_.write(state_->piece.data(), static_cast<std::streamsize>(kGzipPiece - stream.avail_out));
  } while (stream.avail_out == 0 || (last && status != Z_STREAM_END));
  return out_.good();
}

bool GzipBuffer::Finish() { return Deflate(nullptr, 0, true); }

GzipBuffer::int_type GzipBuffer::overflow(int_type character) {
  if (traits_type::eq_int_type(character, traits_type::eof()))
    return traits_type::not_eof(character);
  const char one = traits_type::to_char_type(character);
  return Deflate(&one, 1, false) ? character : traits_type::eof();
}

std::streamsize GzipBuffer::xsputn(const char* data, std::streamsize size) {
  constexpr std::streamsize kMost = std::streamsize{1} << 30;
  for (std::streamsize done = 0; done < size;) {
    const std::streamsize now = std::min(size - done, kMost);
    if (!Deflate(data + done, static_cast<std::size_t>(now), false)) return done;
    done += now;
  }
  return size;
}

}  // namespace orrery::report
