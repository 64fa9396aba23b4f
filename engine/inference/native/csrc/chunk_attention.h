// softmax(q kᵀ · scale) v for a long chunk of one sequence, as products with matrices that are
// packed from the KV cache: q times keys gives scores, and weights times values the result.
//
// First keys and values are stored and packed, in blocks of kBlock positions, once for all queries
// of a KV head; then blocks of queries pass over them with an online softmax (Milakov and Gimelshein
// 2018, arXiv 1805.02867; in tiles: Dao et al. 2022, arXiv 2205.14135). Scores and sums are float32;
// what is multiplied has the cache's format, and where that is quantised the weights' (bfloat16 for
// all but float32).

#pragma once

#include <memory>
#include <vector>

#include "buffer.h"
#include "heads.h"
#include "matmul.h"
#include "pool.h"
#include "step.h"
#include "tile.h"

namespace firsttoken {

class ChunkAttention {
  public:
    explicit ChunkAttention(const ModelSpec& model);

    // Whether a sequence with so many new tokens is one for this kind of attention.
    static bool takes(int rows) { return rows >= kFewestRows; }

    // Lays out the work of a step; the same for every layer.
    void plan(const StepSpec& step, int num_threads);

    // Whether the step has any such chunk.
    bool has_work() const { return !packings_.empty(); }

    // One thread's share of a layer. All packing must be done before any mixing begins.
    void pack(const LayerSpec& layer, const float* qkv, const float* turns, Pile& pile);
    void mix(const LayerSpec& layer, const float* qkv, const float* turns, float* mixed, int thread,
             Pile& pile);

  private:
    static constexpr int kFewestRows = 32;
    static constexpr int kBlock = 128;    // positions that are packed as one matrix
    static constexpr int kQueries = 192;  // rows of queries of one piece of work

    // A block of positions of one sequence and KV head.
    struct Packing {
        int sequence, head, block;
    };
    // Rows from `from` to `to` of one sequence, and one KV head.
    struct Piece {
        int sequence, head, from, to;
        size_t first_place;  // of the packings of this sequence and head
    };
    struct Scratch;

    PackedMatrix keys(size_t place) const;
    PackedMatrix values(size_t place) const;
    template <class Element>
    void pack_block(const LayerSpec& layer, const Packing& packing);
    void mix_block(const LayerSpec& layer, const Piece& piece, int block, Scratch& own) const;
    void finish(const Piece& piece, const Scratch& own, float* mixed) const;

    const ModelSpec& model_;
    const Kind kind_;  // of what is packed
    const StepSpec* step_ = nullptr;
    std::vector<Packing> packings_;
    std::vector<Piece> pieces_;
    std::vector<std::shared_ptr<Scratch>> scratch_;  // of each thread
    Buffer packed_;
};

}  // namespace firsttoken
