// The inputs' own form: a copy, bfloat16, or 8-bit levels with a scale for every 32 inputs.

#include <cmath>

#include "matmul_layout.h"

namespace firsttoken {
namespace {

// Levels -127..127 with x = level * scale. A NaN or an infinity makes the scale NaN, so that it
// shows in every output. A chunk that is nearly zero (below 1e-30) becomes zero.
void quantise_chunk(const float* x, int count, int8_t* levels, float* scale, int32_t* sum) {
    uint32_t largest = 0;  // bits of |x| are ordered as |x| is, with infinity and NaN on top
    for (int i = 0; i < count; ++i) {
        const uint32_t magnitude = bits_of(x[i]) & 0x7fffffffu;
        largest = magnitude > largest ? magnitude : largest;
    }
    const float bound = float_of(largest);
    const bool finite = largest < 0x7f800000u;
    const float inverse = finite && bound > 1e-30f ? 127.0f / bound : 0.0f;
    *scale = finite ? (inverse > 0 ? bound / 127.0f : 0.0f) : NAN;
    int32_t total = 0;
    for (int i = 0; i < kChunk; ++i) {
        const int level = finite && i < count
                              ? static_cast<int>(std::nearbyint(x[i] * inverse)) : 0;
        levels[i] = static_cast<int8_t>(level);
        total += level;
    }
    *sum = total;
}

void quantise_row(const PackedMatrix& matrix, const float* x, void* prepared) {
    const int count = chunks(matrix);
    const QuantisedRow row = quantised_row(prepared, count);
    for (int chunk = 0; chunk < count; ++chunk) {
        const int first = chunk * kChunk;
        const int width = matrix.k - first < kChunk ? matrix.k - first : kChunk;
        quantise_chunk(x + first, width, row.levels + first, row.scales + chunk, row.sums + chunk);
        row.scaled_sums[chunk] = row.scales[chunk] * static_cast<float>(row.sums[chunk]);
    }
}

void round_row(const PackedMatrix& matrix, const float* x, uint16_t* prepared) {
    for (int i = 0; i < matrix.k; ++i) prepared[i] = float_to_bfloat(x[i]);
    for (int i = matrix.k; i < padded_k(matrix); ++i) prepared[i] = 0;
}

}  // namespace

size_t input_bytes(const PackedMatrix& matrix, int32_t m) { return m * input_row_bytes(matrix); }

void prepare_input(const PackedMatrix& matrix, const float* x, void* prepared, int32_t row_begin,
                   int32_t row_end) {
    for (size_t row = row_begin; row < static_cast<size_t>(row_end); ++row) {
        const float* from = x + row * matrix.k;
        uint8_t* to = static_cast<uint8_t*>(prepared) + row * input_row_bytes(matrix);
        if (matrix.kind == F32) {
            std::memcpy(to, from, matrix.k * sizeof(float));
        } else if (matrix.kind == BF16) {
            round_row(matrix, from, reinterpret_cast<uint16_t*>(to));
        } else {
            quantise_row(matrix, from, to);
        }
    }
}

}  // namespace firsttoken
