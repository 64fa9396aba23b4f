// Sixteen floats at once, in the vector extensions of GCC and Clang: AVX-512 registers where the
// target has them, and pairs or quadruples of smaller ones everywhere else.

#pragma once

#include <cstdint>
#include <cstring>

namespace firsttoken {

constexpr int kLanes = 16;
typedef float Vec __attribute__((vector_size(64)));
typedef int32_t IntVec __attribute__((vector_size(64)));
typedef uint32_t UIntVec __attribute__((vector_size(64)));
typedef uint16_t HalfVec __attribute__((vector_size(32)));

inline Vec splat(float value) { return value - Vec{}; }

template <class T, class V>
inline T bits(V value) {
    static_assert(sizeof(T) == sizeof(V));
    T same;
    std::memcpy(&same, &value, sizeof same);
    return same;
}

inline Vec load(const float* from) {
    Vec value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

inline void store(float* to, Vec value) { std::memcpy(to, &value, sizeof value); }

// bfloat16 is the upper half of a float32.
struct BFloat16 {
    uint16_t half;
};

inline Vec load(const BFloat16* from) {
    HalfVec halves;
    std::memcpy(&halves, from, sizeof halves);
    return bits<Vec>(__builtin_convertvector(halves, UIntVec) << 16);
}

// Rounds to the nearest, ties to even; a NaN stays one.
inline void store(BFloat16* to, Vec value) {
    const UIntVec raw = bits<UIntVec>(value);
    const UIntVec rounded = (raw + 0x7FFFu + ((raw >> 16) & 1u)) >> 16;
    const UIntVec is_nan = bits<UIntVec>(value != value);
    const UIntVec out = (rounded & ~is_nan) | (((raw >> 16) | 0x40u) & is_nan);
    const HalfVec halves = __builtin_convertvector(out, HalfVec);
    std::memcpy(to, &halves, sizeof halves);
}

inline float to_float(float value) { return value; }
inline float to_float(BFloat16 value) { return bits<float>(uint32_t(value.half) << 16); }

inline Vec max(Vec a, Vec b) { return a > b ? a : b; }
inline Vec min(Vec a, Vec b) { return a < b ? a : b; }

// Lanes of a (0 to 15) and b (16 to 31) in any order.
#if defined(__clang__)
#define FIRSTTOKEN_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define FIRSTTOKEN_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, IntVec{__VA_ARGS__})
#endif

struct Add {
    Vec operator()(Vec a, Vec b) const { return a + b; }
};
struct Larger {
    Vec operator()(Vec a, Vec b) const { return a > b ? a : b; }
};

// Each joins lanes of a with other lanes of a, and lanes of b with b. After `pairs` and `quads`,
// each quarter of the result holds one lane of each of four vectors; `quarters` twice, and every
// lane has been joined with all others of its vector.
template <class Join>
inline Vec pairs(Vec a, Vec b, Join join) {
    return join(
        FIRSTTOKEN_SHUFFLE(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29),
        FIRSTTOKEN_SHUFFLE(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31));
}

template <class Join>
inline Vec quads(Vec a, Vec b, Join join) {
    return join(
        FIRSTTOKEN_SHUFFLE(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29),
        FIRSTTOKEN_SHUFFLE(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31));
}

template <class Join>
inline Vec quarters(Vec a, Vec b, Join join) {
    return join(
        FIRSTTOKEN_SHUFFLE(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27),
        FIRSTTOKEN_SHUFFLE(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31));
}

template <class Join>
inline float join_all(Vec value, Join join) {
    value = pairs(value, value, join);
    value = quads(value, value, join);
    value = quarters(value, value, join);
    return quarters(value, value, join)[0];
}

inline float sum(Vec value) { return join_all(value, Add{}); }

inline float largest(Vec value) { return join_all(value, Larger{}); }

// The sums of sixteen vectors' lanes, in their order.
inline Vec sums(const Vec* of) {
    Vec four[4];
    for (int i = 0; i < 4; ++i)
        four[i] = quads(pairs(of[4 * i], of[4 * i + 1], Add{}),
                        pairs(of[4 * i + 2], of[4 * i + 3], Add{}), Add{});
    return quarters(quarters(four[0], four[1], Add{}), quarters(four[2], four[3], Add{}), Add{});
}

// Each lane's neighbour: 1, 0, 3, 2, and so on.
inline Vec swap_pairs(Vec value) {
    return FIRSTTOKEN_SHUFFLE(value, value, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
}

inline Vec load_first(const float* from, int count) {
    Vec value{};
    std::memcpy(&value, from, size_t(count) * sizeof(float));
    return value;
}

// e^x to a few units in the last place for x from -87 to 88, 0 below; NaN stays NaN.
// x = n ln 2 + r with |r| <= ln 2 / 2, and e^r by its Taylor series to the sixth power.
inline Vec exp(Vec x) {
    const Vec capped = min(max(x, splat(-87.0f)), splat(88.0f));
    const Vec scaled = capped * 1.44269504f;
    // Adding and taking away 1.5 * 2^23 rounds to the nearest integer.
    const Vec n = (scaled + 12582912.0f) - 12582912.0f;
    // ln 2 in two parts, the first with so few bits that n times it is exact.
    const Vec r = (capped - n * 0.693359375f) + n * 2.12194440e-4f;
    Vec series = splat(1.0f / 720) * r + 1.0f / 120;
    series = series * r + 1.0f / 24;
    series = series * r + 1.0f / 6;
    series = series * r + 0.5f;
    series = series * r + 1.0f;
    series = series * r + 1.0f;
    const IntVec power = __builtin_convertvector(n, IntVec) + 127;
    const Vec value = series * bits<Vec>(power << 23);
    const Vec zero = splat(0.0f);
    const Vec known = x < -87.0f ? zero : value;
    return x != x ? x : known;
}

inline Vec silu(Vec x) { return x / (exp(-x) + 1.0f); }

}  // namespace firsttoken
