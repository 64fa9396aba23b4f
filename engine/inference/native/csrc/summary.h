// The likeliest token and the logarithm of the sum of exponentials, made piece by piece while the
// logits are still in a core's cache.

#pragma once

#include <cmath>
#include <limits>

#include "vec.h"

namespace firsttoken {

struct Summary {
    float largest;  // -inf if there is none
    int id;         // the first that has it
    float total;    // sum of e^(logit - largest); NaN if a logit is NaN or +inf
};

// Of logits `from` to `to` of one row.
inline Summary summarise(const float* logits, int from, int to) {
    constexpr float none = -std::numeric_limits<float>::infinity();
    Vec top = splat(none);
    float largest_logit = none;
    int i = from;
    for (; i + kLanes <= to; i += kLanes) top = max(load(logits + i), top);
    for (int j = i; j < to; ++j) largest_logit = logits[j] > largest_logit ? logits[j] : largest_logit;
    largest_logit = std::fmax(largest_logit, largest(top));
    int id = from;
    while (id < to - 1 && logits[id] != largest_logit) ++id;

    const float reference = largest_logit == none ? 0.0f : largest_logit;
    Vec total{};
    for (i = from; i + kLanes <= to; i += kLanes) total += exp(load(logits + i) - reference);
    if (i < to) {
        Vec rest = splat(none);
        std::memcpy(&rest, logits + i, size_t(to - i) * sizeof(float));
        total += exp(rest - reference);
    }
    return {largest_logit, id, sum(total)};
}

// Of several pieces, in the order of their ids.
inline Summary merge(const Summary* pieces, int count) {
    Summary whole = pieces[0];
    for (int i = 1; i < count; ++i)
        if (pieces[i].largest > whole.largest) {
            whole.largest = pieces[i].largest;
            whole.id = pieces[i].id;
        }
    whole.total = 0;
    const float reference = std::isinf(whole.largest) && whole.largest < 0 ? 0 : whole.largest;
    for (int i = 0; i < count; ++i)
        whole.total += pieces[i].total * std::exp(pieces[i].largest - reference);
    return whole;
}

inline float logsumexp(const Summary& whole) {
    return static_cast<float>(whole.largest + std::log(static_cast<double>(whole.total)));
}

}  // namespace firsttoken
