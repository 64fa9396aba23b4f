// Tiles of a few rows and one panel in AVX-512 registers: each loaded weight serves all rows of a
// tile. Sums run over k in one order and in one register an output, whatever the tile's size.
#pragma once

#include <immintrin.h>

#include "matmul_layout.h"

namespace firsttoken {

constexpr int kLanes = 16;
constexpr int kHalves = kTile / kLanes;    // registers across a panel
constexpr size_t kStride = kTile * kQuad;  // bytes of a panel that are used together
constexpr int kStep = 4;                   // strides between two calls of a prefetcher
// Rows of a tile: as many as keep the multipliers busy and have registers, of which levels need
// twice as many.
constexpr int kFloatRows = 8;
constexpr int kLevelRows = 4;

// Fetches the next panel while this one is multiplied, each tile a share of it, so that memory is
// not idle when several tiles use one panel. A single tile reads so steadily that the processor
// fetches ahead by itself, and better. Two tiles want the next panel in the second cache, where it
// does not push out the one in use; with more, a share is small (measured on Zen 4).
class Prefetcher {
  public:
    Prefetcher(const uint8_t* next, int tiles) : at_(next), tiles_(tiles) {}

    // Called when `lines` lines of this tile's own panel are about to be read.
    void lines(int lines) {
        if (tiles_ == 1) return;
        const int share = (lines + tiles_ - 1) / tiles_;
        for (int i = 0; i < share; ++i, at_ += kLine) {
            if (tiles_ == 2) {
                _mm_prefetch(reinterpret_cast<const char*>(at_), _MM_HINT_T1);
            } else {
                _mm_prefetch(reinterpret_cast<const char*>(at_), _MM_HINT_T0);
            }
        }
    }

  private:
    const uint8_t* at_;
    int tiles_;
};

// Everything a tile needs: its panel, its rows of prepared inputs, and where its sums go.
struct TileWork {
    const PackedMatrix& matrix;
    const uint8_t* panel;
    const uint8_t* x;
    size_t x_stride;
    float* y;
    size_t y_stride;
    int column;
    bool accumulate;
    Prefetcher prefetcher;

    template <class T>
    T input(int row, size_t byte) const {
        return *reinterpret_cast<const T*>(x + row * x_stride + byte);
    }
};

template <int R>
using Sums = __m512[R][kHalves];

template <int R>
inline void tile_floats(TileWork& work, Sums<R>& sums) {
    const uint8_t* panel = work.panel;
    for (int i = 0; i < work.matrix.k; ++i, panel += kStride) {
        if (i % kStep == 0) work.prefetcher.lines(2 * kStep);
        const __m512 first = _mm512_load_ps(panel);
        const __m512 second = _mm512_load_ps(panel + kLine);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
            const __m512 input = _mm512_set1_ps(work.input<float>(r, i * sizeof(float)));
            sums[r][0] = _mm512_fmadd_ps(input, first, sums[r][0]);
            sums[r][1] = _mm512_fmadd_ps(input, second, sums[r][1]);
        }
    }
}

template <int R>
inline void tile_bfloats(TileWork& work, Sums<R>& sums) {
    const uint8_t* panel = work.panel;
    const int pairs = padded_k(work.matrix) / 2;
    for (int i = 0; i < pairs; ++i, panel += kStride) {
        if (i % kStep == 0) work.prefetcher.lines(2 * kStep);
        const __m512bh first = (__m512bh)_mm512_load_si512(panel);
        const __m512bh second = (__m512bh)_mm512_load_si512(panel + kLine);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
            const int32_t pair = work.input<int32_t>(r, i * sizeof(int32_t));
            const __m512bh input = (__m512bh)_mm512_set1_epi32(pair);
            sums[r][0] = _mm512_dpbf16_ps(sums[r][0], input, first);
            sums[r][1] = _mm512_dpbf16_ps(sums[r][1], input, second);
        }
    }
}

template <int R>
inline void dot_quad(const TileWork& work, size_t at, __m512i first, __m512i second,
                     __m512i (&dots)[R][kHalves]) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
        const __m512i four = _mm512_set1_epi32(work.input<int32_t>(r, at));
        dots[r][0] = _mm512_dpbusd_epi32(dots[r][0], first, four);
        dots[r][1] = _mm512_dpbusd_epi32(dots[r][1], second, four);
    }
}

template <int R, bool kNibbles>
inline void dot_chunk(const TileWork& work, const uint8_t* weights, size_t at,
                      __m512i (&dots)[R][kHalves]) {
    const __m512i low = _mm512_set1_epi8(15);
#pragma GCC unroll 8
    for (int quad = 0; quad < kChunk / kQuad; quad += kNibbles ? 2 : 1, weights += kStride) {
        const __m512i first = _mm512_load_si512(weights);
        const __m512i second = _mm512_load_si512(weights + kLine);
        const size_t now = at + quad * kQuad;
        if constexpr (kNibbles) {
            dot_quad<R>(work, now, _mm512_and_si512(first, low), _mm512_and_si512(second, low),
                        dots);
            dot_quad<R>(work, now + kQuad, _mm512_and_si512(_mm512_srli_epi16(first, 4), low),
                        _mm512_and_si512(_mm512_srli_epi16(second, 4), low), dots);
        } else {
            dot_quad<R>(work, now, first, second, dots);
        }
    }
}

inline __m512 load_halves(const uint8_t* halves) {
    return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(halves)));
}

// Scales and offsets of a group for a panel's outputs.
struct GroupHeader {
    __m512 scale[kHalves];
    __m512 offset[kHalves];

    GroupHeader(const PackedMatrix& matrix, const uint8_t* header) {
        const __m512 raise = _mm512_set1_ps(offset_raise(matrix));
        for (int h = 0; h < kHalves; ++h) {
            const uint8_t* halves = header + h * kLanes * sizeof(uint16_t);
            scale[h] = load_halves(halves);
            if (!matrix.has_offsets) continue;
            offset[h] = _mm512_fmadd_ps(raise, scale[h], load_halves(halves + kLine));
        }
    }
};

template <int R, bool kNibbles, bool kOffsets>
inline void tile_levels(TileWork& work, Sums<R>& sums) {
    constexpr size_t bytes = kNibbles ? kTile * kChunk / 2 : kTile * kChunk;
    const PackedMatrix& matrix = work.matrix;
    const int per_group = chunks_of_group(matrix);
    const uint8_t* panel = work.panel;
    size_t at = 0;  // of the chunk in a row of inputs
    for (int groups = chunks(matrix) / per_group; groups > 0; --groups) {
        const GroupHeader header(matrix, panel);
        panel += group_header_bytes(matrix);
        for (int left = per_group; left > 0; --left, panel += bytes, at += sizeof(InputChunk)) {
            work.prefetcher.lines(bytes / kLine + 1);
            __m512i dots[R][kHalves];
#pragma GCC unroll 16
            for (int r = 0; r < R; ++r) {
                const int32_t start = work.input<int32_t>(r, at + offsetof(InputChunk, start));
                dots[r][0] = dots[r][1] = _mm512_set1_epi32(start);
            }
            dot_chunk<R, kNibbles>(work, panel, at, dots);
#pragma GCC unroll 16
            for (int r = 0; r < R; ++r) {
                const float scale = work.input<float>(r, at + offsetof(InputChunk, scale));
                const float sum = work.input<float>(r, at + offsetof(InputChunk, sum));
                for (int h = 0; h < kHalves; ++h) {
                    const __m512 dot = _mm512_cvtepi32_ps(dots[r][h]);
                    sums[r][h] = _mm512_fmadd_ps(_mm512_mul_ps(dot, _mm512_set1_ps(scale)),
                                                 header.scale[h], sums[r][h]);
                    if (!kOffsets) continue;
                    sums[r][h] =
                        _mm512_fmadd_ps(header.offset[h], _mm512_set1_ps(sum), sums[r][h]);
                }
            }
        }
    }
}

template <int R>
inline void store_tile(const TileWork& work, const Sums<R>& sums) {
    for (int h = 0; h < kHalves; ++h) {
        const int column = work.column + h * kLanes;
        const int width = work.matrix.n - column;
        if (width <= 0) return;
        const __mmask16 mask = width >= kLanes ? 0xffff : (1u << width) - 1;
        const float* bias = work.matrix.bias;
        const __m512 added =
            bias ? _mm512_maskz_loadu_ps(mask, bias + column) : _mm512_setzero_ps();
        for (int r = 0; r < R; ++r) {
            float* out = work.y + r * work.y_stride + column;
            __m512 sum = _mm512_add_ps(sums[r][h], added);
            if (work.accumulate) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, out));
            _mm512_mask_storeu_ps(out, mask, sum);
        }
    }
}

template <int R>
void multiply_tile(TileWork work) {
    const PackedMatrix& matrix = work.matrix;
    Sums<R> sums;
    for (int r = 0; r < R; ++r) sums[r][0] = sums[r][1] = _mm512_setzero_ps();
    if (matrix.kind == F32) {
        tile_floats<R>(work, sums);
    } else if (matrix.kind == BF16) {
        tile_bfloats<R>(work, sums);
    } else if constexpr (R <= kLevelRows) {
        const bool nibbles = matrix.kind == I4;
        if (nibbles && matrix.has_offsets) tile_levels<R, true, true>(work, sums);
        if (nibbles && !matrix.has_offsets) tile_levels<R, true, false>(work, sums);
        if (!nibbles && matrix.has_offsets) tile_levels<R, false, true>(work, sums);
        if (!nibbles && !matrix.has_offsets) tile_levels<R, false, false>(work, sums);
    }
    store_tile<R>(work, sums);
}

template <int R>
void multiply_rows(const TileWork& work, int rows) {
    if (rows == R) {
        multiply_tile<R>(work);
    } else if constexpr (R > 1) {
        multiply_rows<R - 1>(work, rows);
    }
}

// m rows times one panel, in tiles of nearly equal height. `next`: the panel after this one.
inline void avx512_panel(const PackedMatrix& matrix, const uint8_t* panel, const uint8_t* next,
                         const uint8_t* prepared, int m, float* y, int ldy, int column,
                         bool accumulate) {
    const int most = is_quantised(matrix) ? kLevelRows : kFloatRows;
    const int tiles = (m + most - 1) / most;
    const size_t share = round_up(panel_bytes(matrix) / tiles, kLine);
    const size_t stride = input_row_bytes(matrix);
    for (int tile = 0, row = 0; tile < tiles; ++tile) {
        const int rows = (m - row + tiles - tile - 1) / (tiles - tile);
        const TileWork work{matrix, panel, prepared + row * stride, stride,
                            y + static_cast<size_t>(row) * ldy, static_cast<size_t>(ldy), column,
                            accumulate, Prefetcher(next + tile * share, tiles)};
        multiply_rows<kFloatRows>(work, rows);
        row += rows;
    }
}

}  // namespace firsttoken
