#include "chunk_attention.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace firsttoken {

namespace {

Kind kind_of(const ModelSpec& model) {
    if (model.kv_kind == KV_F32) return F32;
    if (model.kv_kind == KV_BF16) return BF16;
    // A quantised cache is expanded to what the model computes in.
    return model.layers[0].qkv.kind == F32 ? F32 : BF16;
}

inline void convert(const float* from, int count, float* to) { std::copy_n(from, count, to); }

inline void convert(const float* from, int count, uint16_t* to) {
    for (int i = 0; i < count; i += kLanes)
        store(reinterpret_cast<BFloat16*>(to + i), load(from + i));
}

// The d numbers of a slot and head as they are packed.
template <class Element>
const Element* read_row(const ModelSpec& model, const KVLayer& kv, Which which, int head, int slot,
                        float* wide, Element* to) {
    if constexpr (std::is_same_v<Element, uint16_t>) {
        if (model.kv_kind == KV_BF16)
            return &kv.read<BFloat16>(which, head, slot, nullptr)->half;
    }
    convert(kv.read<float>(which, head, slot, wide), model.head_dim, to);
    return to;
}

}  // namespace

struct ChunkAttention::Scratch {
    std::vector<float> queries, scores, mixed, largest, totals;
    std::vector<int> at;  // positions of the rows of queries
    Buffer prepared_queries, prepared_weights;
};

ChunkAttention::ChunkAttention(const ModelSpec& model) : model_(model), kind_(kind_of(model)) {}

PackedMatrix ChunkAttention::keys(size_t place) const {
    const int dim = model_.head_dim;
    PackedMatrix matrix{kind_, kBlock, dim, dim, 0, 0, nullptr, nullptr};
    const size_t both = packed_bytes(matrix) + packed_bytes(values(0));
    matrix.data = packed_.bytes() + place * both;
    return matrix;
}

PackedMatrix ChunkAttention::values(size_t place) const {
    const int dim = model_.head_dim;
    PackedMatrix matrix{kind_, dim, kBlock, kBlock, 0, 0, nullptr, nullptr};
    const PackedMatrix of_keys{kind_, kBlock, dim, dim, 0, 0, nullptr, nullptr};
    const size_t before = packed_bytes(of_keys);
    matrix.data = packed_.bytes() + place * (before + packed_bytes(matrix)) + before;
    return matrix;
}

void ChunkAttention::plan(const StepSpec& step, int num_threads) {
    step_ = &step;
    packings_.clear();
    pieces_.clear();
    const Heads heads(model_, step);
    const int tokens = std::max(1, kQueries / heads.group());
    for (int b = 0; b < step.num_sequences; ++b) {
        const int rows = heads.rows(b);
        if (!takes(rows)) continue;
        const int blocks = (heads.start(b) + rows + kBlock - 1) / kBlock;
        for (int head = 0; head < model_.num_kv_heads; ++head) {
            // The last rows see the most, so they come first, and the shortest work ends a layer.
            for (int to = rows; to > 0; to -= tokens)
                pieces_.push_back({b, head, std::max(0, to - tokens), to, packings_.size()});
            for (int block = 0; block < blocks; ++block)
                packings_.push_back({b, head, block});
        }
    }
    if (packings_.empty()) return;
    packed_.fit(packings_.size() * (packed_bytes(keys(0)) + packed_bytes(values(0))));
    while (int(scratch_.size()) < num_threads) scratch_.push_back(std::make_shared<Scratch>());
    const size_t rows = size_t(tokens) * heads.group();
    for (auto& own : scratch_) {
        own->queries.resize(rows * model_.head_dim);
        own->mixed.resize(rows * model_.head_dim);
        own->scores.resize(rows * kBlock);
        own->largest.resize(rows);
        own->totals.resize(rows * kLanes);
        own->at.resize(rows);
        own->prepared_queries.fit(input_bytes(keys(0), rows));
        own->prepared_weights.fit(input_bytes(values(0), rows));
    }
}

void ChunkAttention::pack(const LayerSpec& layer, const float* qkv, const float* turns,
                          Pile& pile) {
    const Heads heads(model_, *step_);
    const Sight sight{layer.window, model_.sinks};
    for (int i = pile.take(); i < int(packings_.size()); i = pile.take()) {
        const Packing& packing = packings_[i];
        const int first = packing.block * kBlock;
        heads.write_new(layer, qkv, turns, packing.sequence, packing.head, first, first + kBlock);
        if (!sight.reaches(heads.start(packing.sequence), first, kBlock)) continue;
        if (kind_ == BF16)
            pack_block<uint16_t>(layer, packing);
        else
            pack_block<float>(layer, packing);
    }
}

// In the layout of matmul_layout.h: a key is an output of its matrix, a value an input.
template <class Element>
void ChunkAttention::pack_block(const LayerSpec& layer, const Packing& packing) {
    constexpr int together = std::is_same_v<Element, uint16_t> ? 2 : 1;
    const int dim = model_.head_dim, tile = column_tile(keys(0));
    const Heads heads(model_, *step_);
    const KVLayer kv(model_, layer);
    const size_t place = &packing - packings_.data();
    Element* to_keys = static_cast<Element*>(const_cast<void*>(keys(place).data));
    Element* to_values = static_cast<Element*>(const_cast<void*>(values(place).data));
    const int first = packing.block * kBlock;
    const int end = heads.start(packing.sequence) + heads.rows(packing.sequence);
    alignas(64) float wide[kMaxHeadDim];
    alignas(64) Element own[2][kMaxHeadDim];
    for (int i = 0; i < kBlock; ++i) {
        const Element *key = own[0], *value = own[1];
        if (first + i < end) {
            const int slot = heads.slot(packing.sequence, first + i);
            key = read_row(model_, kv, KEYS, packing.head, slot, wide, own[0]);
            value = read_row(model_, kv, VALUES, packing.head, slot, wide, own[1]);
        } else {
            std::fill_n(own[0], dim, Element(0));
            std::fill_n(own[1], dim, Element(0));
        }
        Element* column = to_keys + size_t(i / tile) * tile * dim + i % tile * together;
        for (int c = 0; c < dim; c += together, column += tile * together)
            std::copy_n(key + c, together, column);
        Element* row = to_values + size_t(i / together) * tile * together + i % together;
        for (int c = 0; c < dim; c += tile, row += tile * kBlock) {
            const int width = std::min(tile, dim - c);
            for (int j = 0; j < width; ++j) row[j * together] = value[c + j];
        }
    }
}

void ChunkAttention::mix(const LayerSpec& layer, const float* qkv, const float* turns, float* mixed,
                         int thread, Pile& pile) {
    const Heads heads(model_, *step_);
    const Sight sight{layer.window, model_.sinks};
    Scratch& own = *scratch_[thread];
    for (int i = pile.take(); i < int(pieces_.size()); i = pile.take()) {
        const Piece& piece = pieces_[i];
        const int start = heads.start(piece.sequence), rows = (piece.to - piece.from) * heads.group();
        heads.rotate_queries(layer, qkv, turns, piece.sequence, piece.head, piece.from, piece.to,
                             own.queries.data());
        prepare_input(keys(0), own.queries.data(), own.prepared_queries.data(), 0, rows);
        for (int row = 0; row < rows; ++row) own.at[row] = start + piece.from + row / heads.group();
        std::fill_n(own.largest.data(), rows, kNone);
        std::fill_n(own.totals.data(), size_t(rows) * kLanes, 0.0f);
        std::fill_n(own.mixed.data(), size_t(rows) * model_.head_dim, 0.0f);
        for (int block = 0; block * kBlock < start + piece.to; ++block)
            if (sight.reaches(start + piece.from, block * kBlock, kBlock))
                mix_block(layer, piece, block, own);
        finish(piece, own, mixed);
    }
}

// mixed = mixed * factors + weights · values, for one block of positions.
void ChunkAttention::mix_block(const LayerSpec& layer, const Piece& piece, int block,
                               Scratch& own) const {
    const Heads heads(model_, *step_);
    const Sight sight{layer.window, model_.sinks};
    const int dim = model_.head_dim, rows = (piece.to - piece.from) * heads.group();
    const int first = block * kBlock;
    const int count = std::min(kBlock, heads.start(piece.sequence) + piece.to - first);
    const PackedMatrix of_keys = keys(piece.first_place + block);
    const PackedMatrix of_values = values(piece.first_place + block);
    const int tile = column_tile(of_keys), width = (count + tile - 1) / tile * tile;
    float* scores = own.scores.data();
    matmul_part(of_keys, own.prepared_queries.data(), rows, scores, kBlock, 0, width, false);
    for (int row = 0; row < rows; ++row, scores += kBlock) {
        const float factor =
            weigh(scores, width, sight, own.at[row], first, count, layer.softcap, &own.largest[row],
                  &own.totals[size_t(row) * kLanes]);
        std::fill(scores + width, scores + kBlock, 0.0f);
        if (factor == 1) continue;
        float* sums = &own.mixed[size_t(row) * dim];
        for (int i = 0; i < dim; i += kLanes) store(sums + i, load(sums + i) * factor);
    }
    prepare_input(of_values, own.scores.data(), own.prepared_weights.data(), 0, rows);
    matmul_part(of_values, own.prepared_weights.data(), rows, own.mixed.data(), dim, 0, dim, true);
}

void ChunkAttention::finish(const Piece& piece, const Scratch& own, float* mixed) const {
    const Heads heads(model_, *step_);
    const int dim = model_.head_dim, group = heads.group();
    const int rows = (piece.to - piece.from) * group;
    for (int row = 0; row < rows; ++row) {
        const float total = sum(load(&own.totals[size_t(row) * kLanes]));
        float* to = heads.place(piece.sequence, piece.head, piece.from * group + row, mixed);
        for (int i = 0; i < dim; i += kLanes)
            store(to + i, load(&own.mixed[size_t(row) * dim + i]) / total);
        change_basis(model_, to);
    }
}

}  // namespace firsttoken
