// y = x W^T + b for a few rows of x: matrices packed once, multiplied many times.
//
// Legend: m rows of x (tokens), n rows of W (outputs), k columns (inputs). W is cut into panels of
// column_tile outputs; a thread takes a range of panels, so that all threads together read every
// weight once. Nothing here allocates, locks or starts a thread.
//
// A row's result depends on that row alone: not on m, not on the other rows, not on how the outputs
// are divided among threads. All additions over k have one fixed order.
#pragma once

#include <cstddef>
#include <cstdint>

namespace firsttoken {

enum Kind : int32_t {
    F32 = 0,   // float32 weights and inputs
    BF16 = 1,  // bfloat16 weights and inputs, float32 sums
    I8 = 2,    // 8-bit levels (-128..127); inputs in 8 bits, one scale for 32 of them
    I4 = 3,    // 4-bit levels (0..15), two in a byte; inputs as for I8
};

// group: weights that share a scale, a multiple of 32 that divides k, or k itself; only I8 and I4.
// has_offsets: w = level * scale + offset, with an offset for each group. Without them
// w = level * scale for I8 and (level - 8) * scale for I4. Scales and offsets are float16 and lie
// among the levels.
struct PackedMatrix {
    int32_t kind;
    int32_t n;
    int32_t k;
    int32_t group;
    int32_t has_offsets;
    int32_t reserved;
    const void* data;   // packed_bytes() bytes, at a multiple of 64
    const float* bias;  // n floats, or null
};

extern "C" {

// Outputs in a panel: where a range of outputs may begin.
int32_t column_tile(const PackedMatrix& matrix);

size_t packed_bytes(const PackedMatrix& matrix);

// Fill `data` (packed_bytes() bytes) from row-major weights. `matrix.data` is not read.
void pack_floats(const PackedMatrix& matrix, const float* weight_nk, void* data);      // F32
void pack_bfloats(const PackedMatrix& matrix, const uint16_t* weight_nk, void* data);  // BF16
void pack_levels(const PackedMatrix& matrix, const int8_t* levels_nk, const float* scales_ng,
                 const float* offsets_ng, void* data);  // I8, I4; offsets null without has_offsets

// The weights of `count` outputs as float32, [count, k].
void unpack_rows(const PackedMatrix& matrix, const int32_t* outputs, int32_t count, float* weight);

// Bytes that prepare_input writes for m rows. What it writes depends on the matrix's kind and k
// only: matrices that share both (gate and up; q, k and v) can share one prepared input.
size_t input_bytes(const PackedMatrix& matrix, int32_t m);

// Rounds or quantises rows row_begin..row_end of x [m, k] into their places in `prepared` (at a
// multiple of 64). All rows must be there before matmul_part begins.
void prepare_input(const PackedMatrix& matrix, const float* x, void* prepared, int32_t row_begin,
                   int32_t row_end);

// y[:, n_begin:n_end] = x W^T + b, or += if accumulate. Rows of y are ldy floats apart and column 0
// of y is output 0. n_begin: a multiple of column_tile; n_end: one too, or n.
void matmul_part(const PackedMatrix& matrix, const void* prepared, int32_t m, float* y, int32_t ldy,
                 int32_t n_begin, int32_t n_end, bool accumulate);

// What was compiled: "avx512" or "plain".
const char* matmul_path();

}  // extern "C"
}  // namespace firsttoken
