// SPDX-License-Identifier: Apache-2.0
// Calls OpenSSL's libcrypto.
#include "runtime/comm/secret.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "runtime/comm/communicator.h"

namespace orrery::comm {
namespace {

std::string Hex(const unsigned char* bytes, std::size_t n) {
  std::string text;
  for (std::size_t i = 0; i < n; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

}  // namespace

std::string Nonce() {
  std::array<unsigned char, 16> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1)
    throw CommError("the system gives no random numbers");
  return Hex(bytes.data(), bytes.size());
}

std::string Proof(const std::string& secret, std::string_view role, std::string_view message) {
  const std::string text = fmt::format("{}\n{}", role, message);
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned int n = 0;
  if (HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), bytes.data(),
           &n) == nullptr)
    throw CommError("libcrypto has no HMAC-SHA256");
  return Hex(bytes.data(), n);
}

bool SameProof(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string PlainHost(std::string_view name) {
  constexpr std::size_t kMost = 63;  // of a label (RFC 1035); what a record has room for
  std::string plain(name.substr(0, kMost));
  const auto strange = [](char c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return !letter && !(c >= '0' && c <= '9') && c != '.' && c != '-' && c != '_';
  };
  std::replace_if(plain.begin(), plain.end(), strange, '?');
  return plain.empty() ? "unknown" : plain;
}

std::string OwnHost() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return PlainHost(name);
}

}  // namespace orrery::comm
