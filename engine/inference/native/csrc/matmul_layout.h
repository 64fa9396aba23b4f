// How packed weights and prepared inputs lie in memory; known to the packing and to all kernels.
#pragma once

#include <cstring>

#include "matmul.h"

// FT_PLAIN: leave the vector path out, to compare it with the plain one.
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && \
    defined(__AVX512BF16__) && defined(__AVX512VNNI__) && !defined(FT_PLAIN)
#define FT_AVX512
#endif

namespace firsttoken {

constexpr int kTile = 32;   // outputs in a panel: two vectors of 16 float32
constexpr int kChunk = 32;  // inputs that share one 8-bit scale
constexpr int kQuad = 4;    // inputs that one 8-bit multiply-add takes for each output
constexpr size_t kLine = 64;

// A panel holds, in the order in which a kernel reads:
//   F32   for each input:          32 floats
//   BF16  for each pair of inputs: 32 outputs x 2 bfloat16
//   I8    for each group: 32 scales [, 32 offsets] as float16, then for each quad of inputs
//         32 outputs x 4 bytes, which are level + 128 (unsigned: the multiply-add wants it so)
//   I4    the same with 32 x 4 bytes for two quads: the first in the low four bits
// Inputs beyond k and outputs beyond n are zeros, as are the inputs' own levels beyond k.

constexpr size_t round_up(size_t value, size_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

inline bool is_quantised(const PackedMatrix& matrix) { return matrix.kind >= I8; }

// The stored level that is taken off every stored level before it is multiplied. For I4 that is so
// with offsets as well, so that a prepared input suits both: there an offset is raised by
// middle_level * scale to make up for it.
inline int middle_level(const PackedMatrix& matrix) { return matrix.kind == I8 ? 128 : 8; }

inline float offset_raise(const PackedMatrix& matrix) { return matrix.kind == I4 ? 8.0f : 0.0f; }

inline int padded_k(const PackedMatrix& matrix) {
    const int multiple = is_quantised(matrix) ? kChunk : matrix.kind == BF16 ? 2 : 1;
    return static_cast<int>(round_up(matrix.k, multiple));
}

inline int panels(const PackedMatrix& matrix) { return (matrix.n + kTile - 1) / kTile; }

inline int chunks(const PackedMatrix& matrix) { return padded_k(matrix) / kChunk; }

inline int chunks_of_group(const PackedMatrix& matrix) {
    return (matrix.group + kChunk - 1) / kChunk;
}

inline size_t chunk_bytes(const PackedMatrix& matrix) {
    return kTile * kChunk / (matrix.kind == I4 ? 2 : 1);
}

// Scales and offsets in front of a group's levels.
inline size_t group_header_bytes(const PackedMatrix& matrix) {
    return kTile * sizeof(uint16_t) * (matrix.has_offsets ? 2 : 1);
}

inline size_t panel_bytes(const PackedMatrix& matrix) {
    const size_t k = padded_k(matrix);
    if (matrix.kind == F32) return k * kTile * sizeof(float);
    if (matrix.kind == BF16) return k * kTile * sizeof(uint16_t);
    const size_t groups = chunks(matrix) / chunks_of_group(matrix);
    return groups * group_header_bytes(matrix) + chunks(matrix) * chunk_bytes(matrix);
}

// A prepared row holds its k numbers in F32 and BF16, and these in I8 and I4.
struct InputChunk {
    int8_t levels[kChunk];
    float scale;
    int32_t start;  // what dot products of stored levels begin with: -middle_level * sum of levels
    float sum;      // of levels, times the scale
    int32_t padding;
};

inline size_t input_row_bytes(const PackedMatrix& matrix) {
    const size_t k = padded_k(matrix);
    if (matrix.kind == F32) return round_up(k * sizeof(float), kLine);
    if (matrix.kind == BF16) return round_up(k * sizeof(uint16_t), kLine);
    return round_up(chunks(matrix) * sizeof(InputChunk), kLine);
}

inline uint32_t bits_of(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline float float_of(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline float bfloat_to_float(uint16_t half) { return float_of(static_cast<uint32_t>(half) << 16); }

// To the nearest bfloat16, ties to even; a NaN stays one, and a subnormal number becomes zero: so
// does the processor's own instruction.
inline uint16_t float_to_bfloat(float value) {
    const uint32_t bits = bits_of(value);
    if ((bits & 0x7f800000u) == 0) return static_cast<uint16_t>(bits >> 16 & 0x8000);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Any finite float16: its exponent is moved from a bias of 15 to one of 127 by a multiplication,
// which also makes normal numbers of subnormal ones.
inline float half_to_float(uint16_t half) {
    const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fff) << 13;
    const float value = float_of(magnitude) * 0x1p112f;
    return half & 0x8000 ? -value : value;
}

}  // namespace firsttoken
