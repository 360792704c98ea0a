// SPDX-License-Identifier: Apache-2.0
// One table of loops; compiled once per instruction set, which ORRERY_ISA names.
#include "runtime/device/cpu/loops.h"

#include "runtime/device/cpu/loops/loops_elementwise.h"
#include "runtime/device/cpu/loops/loops_gemm.h"
#include "runtime/device/cpu/loops/loops_optimizer.h"
#include "runtime/device/cpu/loops/loops_rows.h"
#include "runtime/device/cpu/loops/loops_storage.h"

namespace orrery::cpu {

#define ORRERY_JOIN2(a, b) a##b
#define ORRERY_JOIN(a, b) ORRERY_JOIN2(a, b)

extern const Loops ORRERY_JOIN(kLoops, ORRERY_ISA);
const Loops ORRERY_JOIN(kLoops, ORRERY_ISA) = {
    .isa = Isa::ORRERY_JOIN(k, ORRERY_ISA),
    .name = ORRERY_ISA_NAME,
    .from_bf16 = FromBf16,
    .to_bf16 = ToBf16,
    .from_f16 = FromF16,
    .to_f16 = ToF16,
    .from_u8 = FromU8,
    .to_u8 = ToU8,
    .add = AddLoop,
    .scale = ScaleLoop,
    .nonzero = NonzeroLoop,
    .gelu = GeluLoop,
    .gelu_bwd = GeluBwdLoop,
    .relu = ReluLoop,
    .relu_bwd = ReluBwdLoop,
    .swiglu = SwigluLoop,
    .swiglu_bwd = SwigluBwdLoop,
    .tanh = TanhLoop,
    .tanh_bwd = TanhBwdLoop,
    .multiply = MultiplyLoop,
    .bias_residual = BiasResidualLoop,
    .drop_factors = DropFactorsLoop,
    .rope = RopeLoop,
    .mse = MseLoop,
    .col_sum = ColSumLoop,
    .ln_row = LnRow,
    .ln_bwd_row = LnBwdRow,
    .ln_wgrad = LnWgrad,
    .rms_row = RmsRow,
    .rms_bwd_row = RmsBwdRow,
    .rms_wgrad = RmsWgrad,
    .softmax_rows = SoftmaxRows,
    .exp_row = ExpRow,
    .score_grad_row = ScoreGradRow,
    .dot = DotLoop,
    .max_row = MaxRow,
    .sum_exp_row = SumExpRow,
    .xent_grad_row = XentGradRow,
    .sum_squares = SumSquaresLoop,
    .sgd = SgdLoop,
    .adam = AdamLoop,
    .lamb = LambLoop,
    .axpy = AxpyLoop,
    .gemm = GemmLoop,
};

}  // namespace orrery::cpu
