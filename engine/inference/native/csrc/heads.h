// What every kind of attention does with the heads of a step's rows: norm, rotation, and where their
// keys, values and results go.

#pragma once

#include <algorithm>
#include <cmath>

#include "kv.h"
#include "step.h"
#include "vec.h"

namespace firsttoken {

constexpr int kMaxHeadDim = 256;

class Heads {
  public:
    Heads(const ModelSpec& model, const StepSpec& step) : model_(model), step_(step) {}

    int group() const { return model_.num_heads / model_.num_kv_heads; }
    int rows(int sequence) const {
        return step_.first_rows[sequence + 1] - step_.first_rows[sequence];
    }
    int start(int sequence) const { return step_.starts[sequence]; }

    int slot(int sequence, int position) const {
        const int* table = step_.blocks + step_.first_blocks[sequence];
        return table[position / model_.block_size] * model_.block_size +
               position % model_.block_size;
    }

    // Stores the new keys and values of one KV head that stand at positions `from` to `to`.
    void write_new(const LayerSpec& layer, const float* qkv, const float* turns, int sequence,
                   int head, int from, int to) const {
        const int dim = model_.head_dim, begin = start(sequence);
        const KVLayer kv(model_, layer);
        alignas(64) float key[kMaxHeadDim], value[kMaxHeadDim];
        from = std::max(from, begin);
        to = std::min(to, begin + rows(sequence));
        for (int position = from; position < to; ++position) {
            const size_t row = step_.first_rows[sequence] + position - begin;
            const float* of_key = qkv + row * width() + size_t(model_.num_heads + head) * dim;
            std::copy(of_key, of_key + dim, key);
            if (layer.k_norm != nullptr) normalise(key, layer.k_norm);
            rotate(key, turns + row * 2 * dim);
            const float* of_value = of_key + size_t(model_.num_kv_heads) * dim;
            std::copy(of_value, of_value + dim, value);
            change_basis(model_, key);
            change_basis(model_, value);
            const int at = slot(sequence, position);
            kv.write(KEYS, head, at, key);
            kv.write(VALUES, head, at, value);
        }
    }

    // Queries of one KV head, scaled and rotated, of rows `from` to `to` of the sequence:
    // [rows * g, d].
    void rotate_queries(const LayerSpec& layer, const float* qkv, const float* turns, int sequence,
                        int head, int from, int to, float* queries) const {
        const int dim = model_.head_dim;
        const int first = step_.first_rows[sequence];
        for (int row = first + from; row < first + to; ++row) {
            const float* of_row = qkv + size_t(row) * width() + size_t(head) * group() * dim;
            for (int g = 0; g < group(); ++g, of_row += dim, queries += dim) {
                std::copy(of_row, of_row + dim, queries);
                if (layer.q_norm != nullptr) normalise(queries, layer.q_norm);
                rotate(queries, turns + size_t(row) * 2 * dim);
                change_basis(model_, queries);
                for (int i = 0; i < dim; i += kLanes)
                    store(queries + i, load(queries + i) * layer.scale);
            }
        }
    }

    // Where the mixed values of a row of queries of one KV head go.
    float* place(int sequence, int head, int query, float* mixed) const {
        const size_t token = step_.first_rows[sequence] + query / group();
        const size_t at = token * model_.num_heads + size_t(head) * group() + query % group();
        return mixed + at * model_.head_dim;
    }

  private:
    // Numbers of a row of qkv.
    size_t width() const {
        return size_t(model_.num_heads + 2 * model_.num_kv_heads) * model_.head_dim;
    }

    // y = norm(x) · weight over one head, in place.
    void normalise(float* x, const float* weight) const {
        const int dim = model_.head_dim;
        Vec squares{};
        for (int i = 0; i < dim; i += kLanes) squares += load(x + i) * load(x + i);
        const Vec factor = splat(1.0f / std::sqrt(sum(squares) / dim + model_.norm_eps));
        for (int i = 0; i < dim; i += kLanes)
            store(x + i, load(x + i) * factor * load(weight + i));
    }

    // Turns neighbours (a, b) to (a cos - b sin, a sin + b cos).
    void rotate(float* x, const float* expanded) const {
        const int dim = model_.head_dim;
        for (int i = 0; i < dim; i += kLanes) {
            const Vec pairs = load(x + i);
            store(x + i, pairs * load(expanded + i) + swap_pairs(pairs) * load(expanded + dim + i));
        }
    }

    const ModelSpec& model_;
    const StepSpec& step_;
};

}  // namespace firsttoken
