// SPDX-License-Identifier: Apache-2.0
// Matrix products by cuBLASLt with fused bias, gelu and gelu's gradient; the algorithm is chosen once per shape.
#pragma once

#include <memory>

#include "runtime/device/cuda/products.h"

namespace orrery::cuda {

// Loads cuBLASLt. Throws InputError where that cannot be.
void LoadProducts();

// Of the current device. Throws cpu::KernelError.
std::unique_ptr<Products> MakeProducts();

}  // namespace orrery::cuda
