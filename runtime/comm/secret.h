// SPDX-License-Identifier: Apache-2.0
// Who belongs to a run: whoever knows its secret. Proofs are HMAC-SHA256 (RFC 2104), from OpenSSL.
#pragma once

#include <string>
#include <string_view>

namespace orrery::comm {

inline constexpr std::size_t kShortestSecret = 16;  // characters

// 32 hex digits that were never there before.
std::string Nonce();

// 64 hex digits. `role` keeps the proof of one message from serving as that of another.
std::string Proof(const std::string& secret, std::string_view role, std::string_view message);

// Takes as long for a wrong proof as for a right one.
bool SameProof(std::string_view a, std::string_view b);

// A host's name as others say it: at most 63 of letters, digits, '.', '-' and '_'; the rest becomes
// '?'. Empty becomes "unknown".
std::string PlainHost(std::string_view name);
std::string OwnHost();

}  // namespace orrery::comm
