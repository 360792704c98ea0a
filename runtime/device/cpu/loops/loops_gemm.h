// SPDX-License-Identifier: Apache-2.0
// Plain blocked matrix product (Goto and van de Geijn 2008) for builds without oneDNN.
//
// A block of op(B) and one of op(A) are packed into panels of kPanel columns and kTile rows; a small kernel with its sums
// in registers multiplies them. Every element of C is summed over k in the same order whatever the other rows are.
#pragma once

#include "runtime/device/cpu/loops.h"
#include "runtime/device/cpu/loops/loops_math.h"

namespace orrery::cpu {
namespace {

constexpr int64_t kTile = 6, kPanel = 32;
static_assert(kGemmRows % kTile == 0 && kGemmColumns % kPanel == 0);

inline int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }

// [blocks][k][width] from `count` lines of depth k; element (line, p) is at x[line * line_step + p * depth_step].
void PackPanels(const float* x, int64_t line_step, int64_t depth_step, int64_t count, int64_t k,
                int64_t width, float* packed) {
  for (int64_t first = 0; first < count; first += width) {
    for (int64_t p = 0; p < k; ++p, packed += width) {
      for (int64_t i = 0; i < width; ++i)
        packed[i] = first + i < count ? x[(first + i) * line_step + p * depth_step] : 0.0f;
    }
  }
}

// c[rows, columns] = alpha a b + beta c for one tile.
void Tile(const float* a, const float* b, int64_t k, float alpha, float beta, float* c, int64_t ldc,
          int64_t rows, int64_t columns) {
  float sum[kTile][kPanel] = {};
  for (int64_t p = 0; p < k; ++p) {
    for (int64_t i = 0; i < kTile; ++i)
      for (int64_t j = 0; j < kPanel; ++j) sum[i][j] += a[p * kTile + i] * b[p * kPanel + j];
  }
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j)
      c[i * ldc + j] = alpha * sum[i][j] + (beta == 0.0f ? 0.0f : beta * c[i * ldc + j]);
  }
}

void GemmBlock(const GemmArgs& g, const float* a, const float* b, int64_t k, float beta, int64_t i0,
               int64_t j0) {
  const int64_t rows = Least(kGemmRows, g.m - i0), columns = Least(kGemmColumns, g.n - j0);
  for (int64_t j = 0; j < columns; j += kPanel) {
    for (int64_t i = 0; i < rows; i += kTile) {
      Tile(a + i * k, b + j * k, k, g.alpha, beta, g.c + (i0 + i) * g.ldc + j0 + j, g.ldc,
           Least(kTile, rows - i), Least(kPanel, columns - j));
    }
  }
}

void GemmLoop(const GemmArgs& g, float* pack) {
  float *pack_a = pack, *pack_b = pack + kGemmDepth * kGemmRows;
  const int64_t a_row = g.ta ? 1 : g.lda, a_depth = g.ta ? g.lda : 1;
  const int64_t b_column = g.tb ? g.ldb : 1, b_depth = g.tb ? 1 : g.ldb;
  for (int64_t j = 0; j < g.n; j += kGemmColumns) {
    for (int64_t p = 0; p < g.k; p += kGemmDepth) {
      const int64_t k = Least(kGemmDepth, g.k - p);
      PackPanels(g.b + j * b_column + p * b_depth, b_column, b_depth, Least(kGemmColumns, g.n - j),
                 k, kPanel, pack_b);
      for (int64_t i = 0; i < g.m; i += kGemmRows) {
        PackPanels(g.a + i * a_row + p * a_depth, a_row, a_depth, Least(kGemmRows, g.m - i), k,
                   kTile, pack_a);
        GemmBlock(g, pack_a, pack_b, k, p == 0 ? g.beta : 1.0f, i, j);
      }
    }
  }
}

}  // namespace
}  // namespace orrery::cpu
