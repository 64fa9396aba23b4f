// One row times one panel in C++ that any compiler can vectorise: the path of machines without
// AVX-512, and what the other path is compared with.
#pragma once

#include "matmul_layout.h"

namespace firsttoken {

inline void plain_floats(const PackedMatrix& matrix, const float* panel, const float* x,
                         float* sums) {
    for (int i = 0; i < matrix.k; ++i) {
        for (int j = 0; j < kTile; ++j) sums[j] += x[i] * panel[i * kTile + j];
    }
}

inline void plain_bfloats(const PackedMatrix& matrix, const uint16_t* panel, const uint16_t* x,
                          float* sums) {
    for (int i = 0; i < padded_k(matrix); i += 2) {
        const float first = bfloat_to_float(x[i]);
        const float second = bfloat_to_float(x[i + 1]);
        for (int j = 0; j < kTile; ++j) {
            const uint16_t* pair = panel + i * kTile + 2 * j;
            sums[j] += first * bfloat_to_float(pair[0]) + second * bfloat_to_float(pair[1]);
        }
    }
}

// Exact: the largest sum of a chunk is 32 * 255 * 127.
inline void plain_chunk(const PackedMatrix& matrix, const uint8_t* weights, const int8_t* x,
                        int32_t* dots) {
    const bool nibbles = matrix.kind == I4;
    for (int quad = 0; quad < kChunk / kQuad; ++quad) {
        const uint8_t* bytes = weights + (nibbles ? quad / 2 : quad) * kTile * kQuad;
        const int shift = nibbles && quad % 2 ? 4 : 0;
        const int mask = nibbles ? 15 : 255;
        const int8_t* four = x + quad * kQuad;
        for (int j = 0; j < kTile; ++j) {
            for (int i = 0; i < kQuad; ++i) {
                dots[j] += (bytes[j * kQuad + i] >> shift & mask) * four[i];
            }
        }
    }
}

inline void plain_levels(const PackedMatrix& matrix, const uint8_t* panel, const InputChunk* x,
                         float* sums) {
    float scales[kTile];
    float offsets[kTile] = {};
    for (int chunk = 0; chunk < chunks(matrix); ++chunk, ++x) {
        if (chunk % chunks_of_group(matrix) == 0) {
            const uint16_t* header = reinterpret_cast<const uint16_t*>(panel);
            panel += group_header_bytes(matrix);
            for (int j = 0; j < kTile; ++j) {
                scales[j] = half_to_float(header[j]);
                if (!matrix.has_offsets) continue;
                offsets[j] = half_to_float(header[kTile + j]) + offset_raise(matrix) * scales[j];
            }
        }
        int32_t dots[kTile];
        for (int j = 0; j < kTile; ++j) dots[j] = x->start;
        plain_chunk(matrix, panel, x->levels, dots);
        panel += chunk_bytes(matrix);
        for (int j = 0; j < kTile; ++j) {
            sums[j] += static_cast<float>(dots[j]) * x->scale * scales[j];
            sums[j] += offsets[j] * x->sum;
        }
    }
}

inline void plain_store(const PackedMatrix& matrix, const float* sums, int first, float* y,
                        bool accumulate) {
    for (int j = 0; j < kTile && first + j < matrix.n; ++j) {
        const float sum = matrix.bias ? sums[j] + matrix.bias[first + j] : sums[j];
        y[first + j] = accumulate ? y[first + j] + sum : sum;
    }
}

inline void plain_panel(const PackedMatrix& matrix, const uint8_t* panel, const uint8_t* prepared,
                        int m, float* y, int ldy, int first, bool accumulate) {
    for (int row = 0; row < m; ++row) {
        const uint8_t* x = prepared + row * input_row_bytes(matrix);
        float sums[kTile] = {};
        if (matrix.kind == F32) {
            plain_floats(matrix, reinterpret_cast<const float*>(panel),
                         reinterpret_cast<const float*>(x), sums);
        } else if (matrix.kind == BF16) {
            plain_bfloats(matrix, reinterpret_cast<const uint16_t*>(panel),
                          reinterpret_cast<const uint16_t*>(x), sums);
        } else {
            plain_levels(matrix, panel, reinterpret_cast<const InputChunk*>(x), sums);
        }
        plain_store(matrix, sums, first, y + static_cast<size_t>(row) * ldy, accumulate);
    }
}

}  // namespace firsttoken
