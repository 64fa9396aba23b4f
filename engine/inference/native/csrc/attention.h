// softmax(q kᵀ · scale) v over the paged KV cache, for new tokens that are few in their sequence: a
// longer chunk is work for ChunkAttention.
//
// Work is split by sequence, KV head and ranges of kRange positions. Ranges are counted from the
// text's beginning, so a sequence's numbers do not depend on its batch mates or on the number of
// threads. Each range is an online softmax (Milakov and Gimelshein 2018, arXiv 1805.02867); whoever
// finishes the last range of a head merges them in order.

#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "kv.h"
#include "pool.h"
#include "step.h"
#include "tile.h"

namespace firsttoken {

class Attention {
  public:
    explicit Attention(const ModelSpec& model) : model_(model) {}

    // Lays out the work of a step; the same for every layer.
    void plan(const StepSpec& step, int num_threads);

    // Whether this size of head is supported.
    static bool supports(int head_dim);

    // One thread's share of a layer: rotates q and k, stores k and v, and writes the mixed values
    // [t, h * g * d]. `qkv` is [t, (h * g + 2 h) * d], `turns` [t, 2, d] as made by expand_turns.
    void work(const LayerSpec& layer, const float* qkv, const float* turns, float* mixed,
              int thread, Pile& pile);

    // Cosines twice each, then sines with the sign of what they multiply: [2, d] of one position.
    static void expand_turns(const float* turns, int head_dim, float* expanded);

  private:
    struct Unit {
        int sequence, head, range, num_ranges;
        int group;         // of all units of this sequence and head: counts who has finished
        size_t partial;    // where its partial results lie, if it has several ranges
    };
    struct Scratch;
    template <int C, class Stored>
    void run(const LayerSpec& layer, const float* qkv, const float* turns, float* mixed,
             const Unit& unit, Scratch& scratch);
    template <int C, class Stored>
    void find_tile(const KVLayer& kv, const Unit& unit, int first, Scratch& scratch,
                   Tile<C, Stored>& tile) const;
    void fetch_tile(const KVLayer& kv, const Unit& unit, int first, int end) const;
    void finish(const Unit& unit, const Scratch& scratch, float* mixed);
    void merge(const Unit& unit, int rows, float* mixed);

    const ModelSpec& model_;
    const StepSpec* step_ = nullptr;
    std::vector<Unit> units_;
    std::vector<float> partials_;
    std::unique_ptr<std::atomic<int>[]> finished_;
    int num_counters_ = 0;
    std::vector<std::shared_ptr<Scratch>> scratch_;
};

}  // namespace firsttoken
