// One tile of keys and values, and the online softmax over it.

#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "vec.h"

namespace firsttoken {

constexpr int kTile = 32;  // positions that are read at once
constexpr int kMaxRowsAtOnce = 4;
constexpr float kNone = -std::numeric_limits<float>::infinity();

inline Vec cap(Vec scores, float limit) {
    // tanh y = 1 - 2 / (e^2y + 1)
    return splat(limit) - 2 * limit / (exp(scores * (2 / limit)) + 1.0f);
}

// Queries of one KV head over a tile of keys and values of `Stored` numbers, C vectors each.
template <int C, class Stored>
struct Tile {
    // Of every position; beyond `count`, those of the last one, whose scores nobody looks at.
    const Stored* keys[kTile];
    const Stored* values[kTile];
    int count;

    // Scores of R rows of queries, [R, kTile].
    template <int R>
    void score(const float* queries, float* scores) const {
        // Queries stay in registers where there are enough of them.
        constexpr int width = divisor(C, 16 / R);
        for (int first = 0; first < count; first += kLanes) {
            Vec total[R] = {};
            for (int from = 0; from < C; from += width) {
                Vec query[R][width], products[R][kLanes];
                for (int r = 0; r < R; ++r)
                    for (int c = 0; c < width; ++c)
                        query[r][c] = load(queries + (r * C + from + c) * kLanes);
                for (int i = 0; i < kLanes; ++i) {
                    const Stored* key = keys[first + i] + from * kLanes;
                    Vec part = load(key), product[R];
                    for (int r = 0; r < R; ++r) product[r] = query[r][0] * part;
                    for (int c = 1; c < width; ++c) {
                        part = load(key + c * kLanes);
                        for (int r = 0; r < R; ++r) product[r] += query[r][c] * part;
                    }
                    for (int r = 0; r < R; ++r) products[r][i] = product[r];
                }
                for (int r = 0; r < R; ++r) total[r] += sums(products[r]);
            }
            for (int r = 0; r < R; ++r) store(scores + r * kTile + first, total[r]);
        }
    }

    // mixed [R, 16 C] = mixed * factors + weights [R, kTile] · values
    template <int R>
    void mix(const float* weights, const float* factors, float* mixed) const {
        constexpr int width = divisor(C, 24 / R);
        for (int from = 0; from < C; from += width) {
            Vec total[R][width];
            for (int r = 0; r < R; ++r)
                for (int c = 0; c < width; ++c)
                    total[r][c] = load(mixed + (r * C + from + c) * kLanes) * factors[r];
            for (int i = 0; i < count; ++i) {
                const Stored* value = values[i] + from * kLanes;
                for (int c = 0; c < width; ++c) {
                    const Vec part = load(value + c * kLanes);
                    for (int r = 0; r < R; ++r) total[r][c] += part * weights[r * kTile + i];
                }
            }
            for (int r = 0; r < R; ++r)
                for (int c = 0; c < width; ++c)
                    store(mixed + (r * C + from + c) * kLanes, total[r][c]);
        }
    }

  private:
    // The largest divisor of `of` that is not above `limit`.
    static constexpr int divisor(int of, int limit) {
        int found = 1;
        for (int i = 2; i <= limit; ++i)
            if (of % i == 0) found = i;
        return found;
    }
};

// What the rows of one unit have seen so far: the largest score, the sum of weights, and the
// weighted sum of values.
struct Softmax {
    float* largest;  // [rows]
    float* totals;   // [rows, 16], to be summed
    float* mixed;    // [rows, d]
};

// Which positions a row sees.
struct Sight {
    int window, sinks;

    // Scores of positions from `first` on: -inf where a row at `at` does not see them, and where
    // they are not among the first `count`.
    Vec hide(Vec scores, int at, int first, int count) const {
        const IntVec lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
        const IntVec position = lane + first;
        IntVec seen = (position <= at) & (lane < count);
        if (window != 0) seen &= (position > at - window) | (position < sinks);
        return seen ? scores : splat(kNone);
    }
    bool sees_all(int at, int first, int last) const {
        return last <= at && (window == 0 || first > at - window || last < sinks);
    }
    // Whether any row from `at` on sees any position from `first` on, `count` of them.
    bool reaches(int at, int first, int count) const {
        return window == 0 || first < sinks || first + count > at - window + 1;
    }
};

// `width` scores to weights of one row, of which `count` are of positions: hides what the row does
// not see, and moves its softmax on. Returns the factor for what was summed before.
inline float weigh(float* scores, int width, const Sight& sight, int at, int first, int count,
                   float softcap, float* largest_score, float* totals) {
    const bool all = count == width && sight.sees_all(at, first, first + width - 1);
    Vec top = splat(kNone);
    for (int i = 0; i < width; i += kLanes) {
        Vec score = load(scores + i);
        if (softcap != 0) score = cap(score, softcap);
        if (!all) score = sight.hide(score, at, first + i, count - i);
        store(scores + i, score);
        top = max(score, top);
    }
    const float before = *largest_score;
    const float now = std::max(before, largest(top));
    *largest_score = now;
    // Where a row has seen nothing yet, there is nothing to weigh against.
    const float reference = now == kNone ? 0.0f : now;
    Vec total{};
    for (int i = 0; i < width; i += kLanes) {
        const Vec weight = exp(load(scores + i) - reference);
        store(scores + i, weight);
        total += weight;
    }
    const float factor = before == kNone ? 0.0f : std::exp(before - now);
    store(totals, load(totals) * factor + total);
    return factor;
}

template <int R, int C, class Stored>
void attend_rows(const Tile<C, Stored>& tile, const Sight& sight, const float* queries, const int* at,
                 int first, float softcap, float* scores, Softmax state) {
    float factors[R];
    tile.template score<R>(queries, scores);
    for (int r = 0; r < R; ++r)
        factors[r] = weigh(scores + r * kTile, kTile, sight, at[r], first, tile.count, softcap,
                           state.largest + r, state.totals + r * kLanes);
    tile.template mix<R>(scores, factors, state.mixed);
}

}  // namespace firsttoken
