// How the KV cache stores keys and values of one layer: the one place that knows its formats.
//
// KV_INT8 and KV_INT4: one float16 scale for the d numbers of a slot and head. INT4 keeps two levels
// in a byte, number i low and i + d / 2 high, and everything in another basis (see change_basis).

#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "step.h"
#include "vec.h"

namespace firsttoken {

enum Which { KEYS = 0, VALUES = 1 };

inline float half_bits_to_float(uint16_t half) {
    // Its exponent has a bias of 15 instead of 127; multiplying also makes normal numbers of
    // subnormal ones. Infinities and NaN, which have all exponent bits, become so again.
    const float magnitude = bits<float>(uint32_t(half & 0x7FFF) << 13) * 0x1p112f;
    const bool finite = (half & 0x7C00) != 0x7C00;
    const uint32_t special = 0x7F800000u | uint32_t(half & 0x3FF) << 13;
    const float value = finite ? magnitude : bits<float>(special);
    return half & 0x8000 ? -value : value;
}

// To the nearest, ties to even.
inline uint16_t float_to_half_bits(float value) {
    const uint32_t raw = bits<uint32_t>(value);
    const uint16_t sign = raw >> 16 & 0x8000;
    const float magnitude = std::fabs(value);
    if (magnitude != magnitude) return sign | 0x7E00;
    if (magnitude >= 65520.0f) return sign | 0x7C00;  // rounds beyond the largest
    if (magnitude < 0x1p-14f) {
        // A multiple of 2^-24: the sum's own rounding is the one that is wanted.
        return sign | uint16_t(bits<uint32_t>(magnitude + 0.5f) - bits<uint32_t>(0.5f));
    }
    const uint32_t rounded = (raw & 0x7FFFFFFF) + 0xFFF + (raw >> 13 & 1);
    return sign | uint16_t((rounded >> 13) - (112 << 10));
}

// The basis of KV_INT4, in which no dimension stands out: a product with blocks of a Hadamard
// matrix, as large as the power of 2 in d. It is its own inverse. Any other format: nothing.
inline void change_basis(const ModelSpec& model, float* x) {
    if (model.kv_kind != KV_INT4) return;
    const int dim = model.head_dim, side = dim & -dim;
    for (int step = 1; step < side; step *= 2)
        for (int block = 0; block < dim; block += 2 * step)
            for (int i = block; i < block + step; ++i) {
                const float a = x[i], b = x[i + step];
                x[i] = a + b;
                x[i + step] = a - b;
            }
    const float length = 1.0f / std::sqrt(static_cast<float>(side));
    for (int i = 0; i < dim; ++i) x[i] *= length;
}

// The cache of one layer.
class KVLayer {
  public:
    KVLayer(const ModelSpec& model, const LayerSpec& layer) : model_(model), layer_(layer) {}

    // The d numbers of a slot and head: where they are, or expanded into `to`.
    template <class Stored>
    const Stored* read(Which which, int head, int slot, [[maybe_unused]] float* to) const {
        const char* from = at(which, head, slot);
        if constexpr (std::is_same_v<Stored, float>) {
            if (model_.kv_kind != KV_F32) {
                const float scale = half_bits_to_float(*scale_at(which, head, slot));
                expand(reinterpret_cast<const int8_t*>(from), scale, to);
                return to;
            }
        }
        return reinterpret_cast<const Stored*>(from);
    }

    // Asks for the memory of a slot.
    void fetch(Which which, int head, int slot) const {
        const char* from = at(which, head, slot);
        for (int64_t i = 0; i < model_.slot_stride; i += 64) __builtin_prefetch(from + i);
    }

    // Stores d numbers, which are in the cache's basis.
    void write(Which which, int head, int slot, const float* from) const {
        char* to = at(which, head, slot);
        if (model_.kv_kind == KV_BF16)
            copy(from, reinterpret_cast<BFloat16*>(to));
        else if (model_.kv_kind == KV_F32)
            copy(from, reinterpret_cast<float*>(to));
        else if (model_.kv_kind == KV_INT8)
            round_to_int8(from, reinterpret_cast<int8_t*>(to), scale_at(which, head, slot));
        else
            round_to_int4(from, reinterpret_cast<int8_t*>(to), scale_at(which, head, slot));
    }

  private:
    char* at(Which which, int head, int slot) const {
        return layer_.kv + which * model_.kind_stride + head * model_.head_stride +
               slot * model_.slot_stride;
    }

    uint16_t* scale_at(Which which, int head, int slot) const {
        const size_t row = size_t(which) * model_.num_kv_heads + head;
        return layer_.kv_scales + row * model_.num_slots + slot;
    }

    template <class From, class To>
    void copy(const From* from, To* to) const {
        for (int i = 0; i < model_.head_dim; i += kLanes) store(to + i, load(from + i));
    }

    void expand(const int8_t* from, float scale, float* to) const {
        const int half = model_.head_dim / 2;
        if (model_.kv_kind == KV_INT8) {
            for (int i = 0; i < 2 * half; ++i) to[i] = scale * from[i];
            return;
        }
        for (int i = 0; i < half; ++i) {
            const int level = from[i];
            to[i] = scale * (((level & 15) ^ 8) - 8);  // the low half-byte with its sign
            to[half + i] = scale * (level >> 4);
        }
    }

    // A level for every number; the scale is a float16 so large that none is beyond the last one.
    void round_to_int8(const float* from, int8_t* to, uint16_t* scale) const {
        float largest = 0;
        for (int i = 0; i < model_.head_dim; ++i)
            largest = from[i] != from[i] ? from[i] : std::fmax(largest, std::fabs(from[i]));
        const float wanted = largest * ((1 + 0x1p-11f) / 127);
        *scale = float_to_half_bits(wanted < 0x1p-24f ? 0x1p-24f : wanted);
        const float step = half_bits_to_float(*scale);
        for (int i = 0; i < model_.head_dim; ++i)
            to[i] = static_cast<int8_t>(level_of(from[i], step, -127, 127));
    }

    // The number furthest from 0 is level -8, so the scale has the other sign.
    void round_to_int4(const float* from, int8_t* to, uint16_t* scale) const {
        float furthest = from[0];
        for (int i = 1; i < model_.head_dim; ++i) {
            const float a = std::fabs(from[i]), b = std::fabs(furthest);
            if (a > b || a != a || (a == b && from[i] < furthest)) furthest = from[i];
        }
        *scale = float_to_half_bits(furthest / -8);
        if ((*scale & 0x7FFF) == 0) *scale = 1;  // 2^-24
        const float step = half_bits_to_float(*scale);
        const int half = model_.head_dim / 2;
        for (int i = 0; i < half; ++i) {
            const int low = level_of(from[i], step, -8, 7);
            const int high = level_of(from[half + i], step, -8, 7);
            to[i] = static_cast<int8_t>((low & 15) | high * 16);
        }
    }

    static int level_of(float value, float step, int lowest, int highest) {
        const float level = std::nearbyint(value / step);
        // A NaN is no level; the scale tells of it.
        if (!(level > lowest)) return lowest;
        return level > highest ? highest : static_cast<int>(level);
    }

    const ModelSpec& model_;
    const LayerSpec& layer_;
};

}  // namespace firsttoken
