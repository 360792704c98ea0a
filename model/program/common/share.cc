// SPDX-License-Identifier: Apache-2.0
// Reads "25%" and "0.25".
#include "model/program/common/share.h"

#include "model/base/plain_text.h"

namespace orrery::cli {

std::optional<double> ParseShare(std::string_view text) {
  const bool percent = text.ends_with('%');
  if (percent) text.remove_suffix(1);
  while (percent && text.ends_with(' ')) text.remove_suffix(1);
  double share = 0;
  if (ParseNumber(text, &share) != NumberFault::kNone) return std::nullopt;
  return share * (percent ? 0.01 : 1);
}

}  // namespace orrery::cli
