// SPDX-License-Identifier: Apache-2.0
// A stream buffer that compresses what is written to it, as it comes.
#pragma once

#include <iosfwd>
#include <memory>
#include <streambuf>

namespace orrery::report {

class GzipBuffer : public std::streambuf {
 public:
  explicit GzipBuffer(std::ostream* out);  // must outlive it
  ~GzipBuffer() override;

  // Writes what is left; false when `out` has failed. Nothing may be written afterwards.
  bool Finish();

 protected:
  int_type overflow(int_type character) override;
  std::streamsize xsputn(const char* data, std::streamsize size) override;

 private:
  struct State;  // of zlib
  bool Deflate(const char* data, std::size_t size, bool last);

  std::ostream& out_;
  std::unique_ptr<State> state_;
};

}  // namespace orrery::report
