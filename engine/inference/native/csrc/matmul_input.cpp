// The inputs' own form: a copy, bfloat16, or 8-bit levels with a scale for every 32 inputs.

#include <cmath>

#include "matmul_layout.h"

#ifdef FT_AVX512
#include <immintrin.h>
#endif

namespace firsttoken {
namespace {

// How a chunk is scaled to levels -127..127: x = level * scale. `largest` is the greatest |x| as
// bits, which are ordered as |x| is, with infinity and NaN on top: these make the scale NaN, so
// that they show in every output. A chunk that is nearly zero becomes zero.
struct ChunkScale {
    float scale;
    float inverse;

    explicit ChunkScale(uint32_t largest) : scale(0), inverse(0) {
        constexpr float kNearlyZero = 1e-30f;  // below, 1 / scale would overflow
        const float bound = float_of(largest);
        if (largest >= 0x7f800000u) {
            scale = NAN;
        } else if (bound > kNearlyZero) {
            scale = bound / 127.0f;
            inverse = 127.0f / bound;
        }
    }
};

// Returns the sum of the levels.
int32_t quantise_chunk(const float* x, int count, InputChunk& to) {
    uint32_t largest = 0;
    for (int i = 0; i < count; ++i) {
        const uint32_t magnitude = bits_of(x[i]) & 0x7fffffffu;
        largest = magnitude > largest ? magnitude : largest;
    }
    const ChunkScale chunk(largest);
    int32_t total = 0;
    for (int i = 0; i < kChunk; ++i) {
        const bool zero = i >= count || chunk.inverse == 0;
        const int level = zero ? 0 : static_cast<int>(std::nearbyint(x[i] * chunk.inverse));
        to.levels[i] = static_cast<int8_t>(level);
        total += level;
    }
    to.scale = chunk.scale;
    return total;
}

#ifdef FT_AVX512
// The same for a whole chunk, with the same result.
int32_t quantise_whole_chunk(const float* x, InputChunk& to) {
    const __m512 low = _mm512_loadu_ps(x);
    const __m512 high = _mm512_loadu_ps(x + 16);
    const __m512i magnitude = _mm512_max_epu32(_mm512_castps_si512(_mm512_abs_ps(low)),
                                               _mm512_castps_si512(_mm512_abs_ps(high)));
    const ChunkScale chunk(_mm512_reduce_max_epu32(magnitude));
    const __m512 inverse = _mm512_set1_ps(chunk.inverse);
    // 0 * NaN would become a level too: where the inverse is 0, so are the levels.
    const __mmask16 used = chunk.inverse == 0 ? 0 : 0xffff;
    const __m512i low_levels = _mm512_maskz_cvtps_epi32(used, _mm512_mul_ps(low, inverse));
    const __m512i high_levels = _mm512_maskz_cvtps_epi32(used, _mm512_mul_ps(high, inverse));
    __m128i* levels = reinterpret_cast<__m128i*>(to.levels);
    _mm_storeu_si128(levels, _mm512_cvtepi32_epi8(low_levels));
    _mm_storeu_si128(levels + 1, _mm512_cvtepi32_epi8(high_levels));
    to.scale = chunk.scale;
    return _mm512_reduce_add_epi32(_mm512_add_epi32(low_levels, high_levels));
}
#else
int32_t quantise_whole_chunk(const float* x, InputChunk& to) {
    return quantise_chunk(x, kChunk, to);
}
#endif

void quantise_row(const PackedMatrix& matrix, const float* x, InputChunk* prepared) {
    for (int first = 0; first < matrix.k; first += kChunk, ++prepared) {
        const int width = matrix.k - first;
        const int32_t sum = width >= kChunk ? quantise_whole_chunk(x + first, *prepared)
                                            : quantise_chunk(x + first, width, *prepared);
        prepared->start = -middle_level(matrix) * sum;
        prepared->sum = prepared->scale * static_cast<float>(sum);
        prepared->padding = 0;
    }
}

void round_row(const PackedMatrix& matrix, const float* x, uint16_t* prepared) {
    int i = 0;
#ifdef FT_AVX512
    for (; i + 16 <= matrix.k; i += 16) {
        const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_loadu_ps(x + i));
        _mm256_store_si256(reinterpret_cast<__m256i*>(prepared + i), (__m256i)rounded);
    }
#endif
    for (; i < matrix.k; ++i) prepared[i] = float_to_bfloat(x[i]);
    for (; i < padded_k(matrix); ++i) prepared[i] = 0;
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
            quantise_row(matrix, from, reinterpret_cast<InputChunk*>(to));
        }
    }
}

}  // namespace firsttoken
