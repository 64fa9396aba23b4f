#include "attention.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "chunk_attention.h"
#include "heads.h"
#include "tile.h"

namespace firsttoken {

namespace {

constexpr int kRange = 256;  // positions of one piece of work

// Calls `work` with the number of vectors of a head as a constant; false for other sizes of heads.
template <class Work>
bool with_vectors(int head_dim, Work work) {
    if (head_dim % kLanes != 0) return false;
    switch (head_dim / kLanes) {
        case 1: work(std::integral_constant<int, 1>{}); return true;
        case 2: work(std::integral_constant<int, 2>{}); return true;
        case 3: work(std::integral_constant<int, 3>{}); return true;
        case 4: work(std::integral_constant<int, 4>{}); return true;
        case 5: work(std::integral_constant<int, 5>{}); return true;
        case 6: work(std::integral_constant<int, 6>{}); return true;
        case 8: work(std::integral_constant<int, 8>{}); return true;
        case 16: work(std::integral_constant<int, 16>{}); return true;
        default: return false;
    }
}

}  // namespace

struct Attention::Scratch {
    std::vector<float> queries, scores, keys, values, largest, totals, mixed;

    void fit(int rows, int dim) {
        queries.resize(size_t(rows) * dim);
        mixed.resize(size_t(rows) * dim);
        largest.resize(rows);
        totals.resize(size_t(rows) * kLanes);
        scores.resize(kMaxRowsAtOnce * kTile);
        keys.resize(size_t(kTile) * dim);
        values.resize(size_t(kTile) * dim);
    }
};

bool Attention::supports(int head_dim) {
    return with_vectors(head_dim, [](auto) {});
}

void Attention::expand_turns(const float* turns, int head_dim, float* expanded) {
    for (int i = 0; i < head_dim; i += 2) {
        expanded[i] = expanded[i + 1] = turns[i];
        expanded[head_dim + i] = -turns[i + 1];
        expanded[head_dim + i + 1] = turns[i + 1];
    }
}

void Attention::plan(const StepSpec& step, int num_threads) {
    step_ = &step;
    units_.clear();
    const int group = model_.num_heads / model_.num_kv_heads;
    size_t partials = 0;
    int counters = 0, most_rows = 0;
    for (int b = 0; b < step.num_sequences; ++b) {
        const int rows = step.first_rows[b + 1] - step.first_rows[b];
        if (ChunkAttention::takes(rows)) continue;
        const int ranges = (step.starts[b] + rows + kRange - 1) / kRange;
        most_rows = std::max(most_rows, rows * group);
        for (int h = 0; h < model_.num_kv_heads; ++h, ++counters) {
            for (int range = 0; range < ranges; ++range) {
                units_.push_back({b, h, range, ranges, counters, partials});
                if (ranges > 1) partials += size_t(rows) * group * (model_.head_dim + 2);
            }
        }
    }
    if (partials_.size() < partials) partials_.resize(partials);
    if (counters > num_counters_) {
        finished_ = std::make_unique<std::atomic<int>[]>(counters);
        num_counters_ = counters;
    }
    for (int i = 0; i < counters; ++i) finished_[i].store(0, std::memory_order_relaxed);
    while (int(scratch_.size()) < num_threads) scratch_.push_back(std::make_shared<Scratch>());
    for (auto& scratch : scratch_) scratch->fit(most_rows, model_.head_dim);
}

void Attention::work(const LayerSpec& layer, const float* qkv, const float* turns, float* mixed,
                     int thread, Pile& pile) {
    Scratch& scratch = *scratch_[thread];
    for (int i = pile.take(); i < int(units_.size()); i = pile.take()) {
        const Unit& unit = units_[i];
        const bool halves = model_.kv_kind == KV_BF16;
        with_vectors(model_.head_dim, [&](auto vectors) {
            constexpr int count = decltype(vectors)::value;
            if (halves)
                run<count, BFloat16>(layer, qkv, turns, mixed, unit, scratch);
            else
                run<count, float>(layer, qkv, turns, mixed, unit, scratch);
        });
    }
}

template <int C, class Stored>
void Attention::run(const LayerSpec& layer, const float* qkv, const float* turns, float* mixed,
                    const Unit& unit, Scratch& scratch) {
    constexpr int dim = C * kLanes;
    const int b = unit.sequence, group = model_.num_heads / model_.num_kv_heads;
    const int num_new = step_->first_rows[b + 1] - step_->first_rows[b], rows = num_new * group;
    const int start = step_->starts[b];
    const Sight sight{layer.window, model_.sinks};
    const KVLayer kv(model_, layer);
    const int begin = unit.range * kRange, end = std::min(start + num_new, begin + kRange);
    fetch_tile(kv, unit, begin, end);
    const Heads heads(model_, *step_);
    heads.write_new(layer, qkv, turns, b, unit.head, begin, begin + kRange);
    heads.rotate_queries(layer, qkv, turns, b, unit.head, 0, num_new, scratch.queries.data());

    std::fill_n(scratch.largest.data(), rows, kNone);
    std::fill_n(scratch.totals.data(), size_t(rows) * kLanes, 0.0f);
    std::fill_n(scratch.mixed.data(), size_t(rows) * dim, 0.0f);
    for (int first = begin; first < end; first += kTile) {
        Tile<C, Stored> tile;
        tile.count = std::min(kTile, end - first);
        if (!sight.reaches(start, first, tile.count)) continue;
        find_tile(kv, unit, first, scratch, tile);
        fetch_tile(kv, unit, first + kTile, end);
        for (int row = 0; row < rows; row += kMaxRowsAtOnce) {
            int at[kMaxRowsAtOnce];
            for (int r = 0; r < kMaxRowsAtOnce; ++r) at[r] = start + (row + r) / group;
            const float* queries = &scratch.queries[size_t(row) * dim];
            float* scores = scratch.scores.data();
            const Softmax state{&scratch.largest[row], &scratch.totals[size_t(row) * kLanes],
                                &scratch.mixed[size_t(row) * dim]};
            const float limit = layer.softcap;
            switch (std::min(rows - row, kMaxRowsAtOnce)) {
                case 1: attend_rows<1>(tile, sight, queries, at, first, limit, scores, state); break;
                case 2: attend_rows<2>(tile, sight, queries, at, first, limit, scores, state); break;
                case 3: attend_rows<3>(tile, sight, queries, at, first, limit, scores, state); break;
                default: attend_rows<4>(tile, sight, queries, at, first, limit, scores, state);
            }
        }
    }
    finish(unit, scratch, mixed);
}

// Where the keys and values of a tile lie: in the cache itself, or expanded from there.
template <int C, class Stored>
void Attention::find_tile(const KVLayer& kv, const Unit& unit, int first, Scratch& scratch,
                          Tile<C, Stored>& tile) const {
    for (int i = 0; i < kTile; ++i) {
        const int at = Heads(model_, *step_).slot(unit.sequence, first + std::min(i, tile.count - 1));
        const size_t place = size_t(i) * model_.head_dim;
        tile.keys[i] = kv.read<Stored>(KEYS, unit.head, at, &scratch.keys[place]);
        tile.values[i] = kv.read<Stored>(VALUES, unit.head, at, &scratch.values[place]);
    }
}

// Asks for the memory of the tile that comes next.
void Attention::fetch_tile(const KVLayer& kv, const Unit& unit, int first, int end) const {
    for (int position = first; position < std::min(end, first + kTile); ++position) {
        const int at = Heads(model_, *step_).slot(unit.sequence, position);
        kv.fetch(KEYS, unit.head, at);
        kv.fetch(VALUES, unit.head, at);
    }
}

// Writes the unit's mixed values, or keeps them until the other ranges of its head are done.
void Attention::finish(const Unit& unit, const Scratch& scratch, float* mixed) {
    const int dim = model_.head_dim, group = model_.num_heads / model_.num_kv_heads;
    const int first_row = step_->first_rows[unit.sequence];
    const int rows = (step_->first_rows[unit.sequence + 1] - first_row) * group;
    if (unit.num_ranges == 1) {
        for (int row = 0; row < rows; ++row) {
            const float total = sum(load(&scratch.totals[size_t(row) * kLanes]));
            float* to = Heads(model_, *step_).place(unit.sequence, unit.head, row, mixed);
            for (int i = 0; i < dim; i += kLanes)
                store(to + i, load(&scratch.mixed[size_t(row) * dim + i]) / total);
            change_basis(model_, to);
        }
        return;
    }
    float* partial = &partials_[unit.partial];
    for (int row = 0; row < rows; ++row, partial += dim + 2) {
        std::copy_n(&scratch.mixed[size_t(row) * dim], dim, partial);
        partial[dim] = scratch.largest[row];
        partial[dim + 1] = sum(load(&scratch.totals[size_t(row) * kLanes]));
    }
    std::atomic<int>& finished = finished_[unit.group];
    if (finished.fetch_add(1, std::memory_order_acq_rel) + 1 == unit.num_ranges) {
        finished.store(0, std::memory_order_relaxed);  // for the next layer
        merge(unit, rows, mixed);
    }
}

// Joins the ranges of a head, in order: each counts e^(its largest score - the largest of all).
void Attention::merge(const Unit& unit, int rows, float* mixed) {
    const int dim = model_.head_dim;
    const size_t stride = size_t(rows) * (dim + 2);
    const float* first = &partials_[unit.partial] - unit.range * stride;
    for (int row = 0; row < rows; ++row, first += dim + 2) {
        float top = kNone, total = 0;
        for (int range = 0; range < unit.num_ranges; ++range)
            top = std::max(top, first[range * stride + dim]);
        float* to = Heads(model_, *step_).place(unit.sequence, unit.head, row, mixed);
        std::fill_n(to, dim, 0.0f);
        for (int range = 0; range < unit.num_ranges; ++range) {
            const float* partial = first + range * stride;
            const float factor = partial[dim] == kNone ? 0.0f : std::exp(partial[dim] - top);
            total += partial[dim + 1] * factor;
            for (int i = 0; i < dim; i += kLanes)
                store(to + i, load(to + i) + load(partial + i) * factor);
        }
        for (int i = 0; i < dim; i += kLanes) store(to + i, load(to + i) / total);
        change_basis(model_, to);
    }
}

}  // namespace firsttoken
