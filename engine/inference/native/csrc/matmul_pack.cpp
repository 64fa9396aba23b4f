// From row-major weights to panels. Runs once a matrix, when a model is loaded.

#include <cmath>

#include "matmul_layout.h"

namespace firsttoken {
namespace {

// To the nearest float16, ties to even. Exact for the values that quantised matrices hold.
uint16_t float_to_half(float value) {
    const uint16_t sign = static_cast<uint16_t>(bits_of(value) >> 16 & 0x8000);
    const float magnitude = std::fabs(value);
    if (!(magnitude < 65520.0f)) return sign | (magnitude == magnitude ? 0x7c00 : 0x7e00);
    if (magnitude < 0x1p-14f) {  // subnormal: a multiple of 2^-24
        return sign | static_cast<uint16_t>(std::nearbyint(magnitude * 0x1p24f));
    }
    const uint32_t bits = bits_of(magnitude) - (112u << 23);
    return sign | static_cast<uint16_t>((bits + 0xfff + (bits >> 13 & 1)) >> 13);
}

// Where level [row, column] lies among a chunk's bytes: outputs side by side in quads of inputs.
size_t quad_position(int quad, int row, int column) {
    return (static_cast<size_t>(quad) * kTile + row) * kQuad + column % kQuad;
}

void pack_chunk(const PackedMatrix& matrix, const int8_t* levels_nk, int first_row, int first_k,
                uint8_t* chunk) {
    std::memset(chunk, 0, chunk_bytes(matrix));
    for (int row = 0; row < kTile && first_row + row < matrix.n; ++row) {
        const int8_t* levels = levels_nk + static_cast<size_t>(first_row + row) * matrix.k;
        for (int column = 0; column < kChunk && first_k + column < matrix.k; ++column) {
            const int level = levels[first_k + column];
            const int quad = column / kQuad;
            if (matrix.kind == I8) {
                chunk[quad_position(quad, row, column)] = static_cast<uint8_t>(level + 128);
            } else {
                const int shifted = quad % 2 ? level << 4 : level;
                chunk[quad_position(quad / 2, row, column)] |= static_cast<uint8_t>(shifted);
            }
        }
    }
}

// One number of each of a panel's outputs, as float16; zeros beyond n.
void pack_halves(const PackedMatrix& matrix, const float* values_ng, int first_row, int group,
                 uint16_t* halves) {
    const int groups = chunks(matrix) / chunks_of_group(matrix);
    for (int row = 0; row < kTile; ++row) {
        const size_t at = static_cast<size_t>(first_row + row) * groups + group;
        halves[row] = first_row + row < matrix.n ? float_to_half(values_ng[at]) : 0;
    }
}

// Element: what a weight is stored as; `together` inputs of an output lie side by side.
template <class Element>
void pack_elements(const PackedMatrix& matrix, const Element* weight_nk, int together, void* data) {
    const int k = padded_k(matrix);
    Element* out = static_cast<Element*>(data);
    for (int panel = 0; panel < panels(matrix); ++panel) {
        for (int first = 0; first < k; first += together) {
            for (int row = panel * kTile; row < (panel + 1) * kTile; ++row) {
                for (int column = first; column < first + together; ++column) {
                    const bool inside = row < matrix.n && column < matrix.k;
                    *out++ = inside ? weight_nk[static_cast<size_t>(row) * matrix.k + column] : 0;
                }
            }
        }
    }
}

// One output's weights out of its panel, whose lane `lane` it is.
void unpack_levels(const PackedMatrix& matrix, const uint8_t* panel, int lane, float* weight) {
    const bool nibbles = matrix.kind == I4;
    float scale = 0, offset = 0;
    for (int chunk = 0; chunk < chunks(matrix); ++chunk) {
        if (chunk % chunks_of_group(matrix) == 0) {
            const uint16_t* header = reinterpret_cast<const uint16_t*>(panel);
            panel += group_header_bytes(matrix);
            scale = half_to_float(header[lane]);
            offset = matrix.has_offsets ? half_to_float(header[kTile + lane]) : 0;
        }
        for (int i = 0; i < kChunk && chunk * kChunk + i < matrix.k; ++i) {
            const int quad = i / kQuad;
            const uint8_t byte = panel[quad_position(nibbles ? quad / 2 : quad, lane, i)];
            const int level = nibbles ? byte >> (quad % 2 ? 4 : 0) & 15 : byte - 128;
            const int zero = nibbles && !matrix.has_offsets ? 8 : 0;
            weight[chunk * kChunk + i] = static_cast<float>(level - zero) * scale + offset;
        }
        panel += chunk_bytes(matrix);
    }
}

}  // namespace

int32_t column_tile(const PackedMatrix&) { return kTile; }

size_t packed_bytes(const PackedMatrix& matrix) { return panels(matrix) * panel_bytes(matrix); }

void pack_floats(const PackedMatrix& matrix, const float* weight_nk, void* data) {
    pack_elements(matrix, weight_nk, 1, data);
}

void pack_bfloats(const PackedMatrix& matrix, const uint16_t* weight_nk, void* data) {
    pack_elements(matrix, weight_nk, 2, data);
}

void unpack_rows(const PackedMatrix& matrix, const int32_t* outputs, int32_t count, float* weight) {
    for (int at = 0; at < count; ++at, weight += matrix.k) {
        const int lane = outputs[at] % kTile;
        const size_t before = outputs[at] / kTile * panel_bytes(matrix);
        const uint8_t* panel = static_cast<const uint8_t*>(matrix.data) + before;
        if (matrix.kind == F32) {
            const float* floats = reinterpret_cast<const float*>(panel);
            for (int i = 0; i < matrix.k; ++i) weight[i] = floats[i * kTile + lane];
        } else if (matrix.kind == BF16) {
            const uint16_t* pairs = reinterpret_cast<const uint16_t*>(panel);
            for (int i = 0; i < matrix.k; ++i)
                weight[i] = bfloat_to_float(pairs[(i / 2 * kTile + lane) * 2 + i % 2]);
        } else {
            unpack_levels(matrix, panel, lane, weight);
        }
    }
}

void pack_levels(const PackedMatrix& matrix, const int8_t* levels_nk, const float* scales_ng,
                 const float* offsets_ng, void* data) {
    const int per_group = chunks_of_group(matrix);
    uint8_t* out = static_cast<uint8_t*>(data);
    for (int row = 0; row < panels(matrix) * kTile; row += kTile) {
        for (int chunk = 0; chunk < chunks(matrix); ++chunk) {
            if (chunk % per_group == 0) {
                uint16_t* header = reinterpret_cast<uint16_t*>(out);
                const int group = chunk / per_group;
                pack_halves(matrix, scales_ng, row, group, header);
                if (matrix.has_offsets) {
                    pack_halves(matrix, offsets_ng, row, group, header + kTile);
                }
                out += group_header_bytes(matrix);
            }
            pack_chunk(matrix, levels_nk, row, chunk * kChunk, out);
            out += chunk_bytes(matrix);
        }
    }
}

}  // namespace firsttoken
