#include "decoder.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>

#include "vec.h"

namespace firsttoken {

namespace {

constexpr int kPieces = 4;        // of a matrix for each thread, so that a slow one takes fewer
constexpr int kHeadPiece = 1024;  // outputs of the head that are made and summarised at once
constexpr int kPilesOfLayer = 7;
constexpr int kRowBlock = 128;    // rows that pass over a piece of a matrix together

// Up to this many rows, every thread prepares all of them for itself: that takes less time than
// waiting for the others.
constexpr int kFewRows = 3;

int divide_up(int value, int by) { return (value + by - 1) / by; }
int round_up(int value, int multiple) { return divide_up(value, multiple) * multiple; }

// Outputs of a matrix that a thread takes at once.
int piece_width(int outputs, int tile, int threads) {
    return round_up(divide_up(outputs, threads == 1 ? 1 : threads * kPieces), tile);
}

// y = x / sqrt(mean(x²) + eps) · weight
void normalise(const float* x, const float* weight, int width, float eps, float* y) {
    Vec squares{};
    int i = 0;
    for (; i + kLanes <= width; i += kLanes) squares += load(x + i) * load(x + i);
    float total = sum(squares);
    for (; i < width; ++i) total += x[i] * x[i];
    const float factor = 1.0f / std::sqrt(total / width + eps);
    for (i = 0; i + kLanes <= width; i += kLanes)
        store(y + i, load(x + i) * factor * load(weight + i));
    for (; i < width; ++i) y[i] = x[i] * factor * weight[i];
}

void activate(const float* gate, const float* up, int count, float* to) {
    int i = 0;
    for (; i + kLanes <= count; i += kLanes) store(to + i, silu(load(gate + i)) * load(up + i));
    if (i < count) {
        const Vec rest = silu(load_first(gate + i, count - i)) * load_first(up + i, count - i);
        std::memcpy(to + i, &rest, size_t(count - i) * sizeof(float));
    }
}

}  // namespace

// One thread's part of a step. All members go through the same phases in the same order.
class Decoder::Member {
  public:
    Member(Decoder& decoder, int thread)
        : d_(decoder), model_(decoder.model_), step_(*decoder.step_), thread_(thread),
          rows_(step_.first_rows[step_.num_sequences]) {}

    void work() {
        embed();
        barrier();
        stage_done(0);
        for (int i = 0; i < step_.num_layers; ++i) {
            attend(model_.layers[i]);
            if (i == step_.num_layers - 1) keep_sampled();
            if (rows_ == 0) return;
            multiply(model_.layers[i].o, input(model_.layers[i].o, d_.mixed_.floats()),
                     d_.x_.floats(), true);
            barrier();
            feed_forward(model_.layers[i]);
        }
        stage_done(1);
        head();
        stage_done(2);
    }

  private:
    void barrier() { d_.barrier_.wait(step_.num_threads); }

    Pile& pile() { return d_.piles_[phase_++]; }

    // This thread's share of rows: from first() to last().
    int first() const { return rows_ * thread_ / step_.num_threads; }
    int last() const { return rows_ * (thread_ + 1) / step_.num_threads; }

    void embed() {
        const size_t width = model_.hidden, dim = model_.head_dim;
        for (int b = 0; b < step_.num_sequences; ++b) {
            for (int row = step_.first_rows[b]; row < step_.first_rows[b + 1]; ++row) {
                if (row < first() || row >= last()) continue;
                float* x = d_.x_.floats() + row * width;
                const size_t at = step_.token_ids[row] * width;
                if (model_.embed_kind == TABLE_IS_HEAD)
                    unpack_rows(model_.head, &step_.token_ids[row], 1, x);
                else if (model_.embed_kind == TABLE_BF16)
                    widen(static_cast<const BFloat16*>(model_.embed) + at, x);
                else
                    widen(static_cast<const float*>(model_.embed) + at, x);
                const size_t position = step_.starts[b] + row - step_.first_rows[b];
                Attention::expand_turns(model_.turns + position * dim, model_.head_dim,
                                        d_.turns_.floats() + row * 2 * dim);
            }
        }
    }

    template <class Stored>
    void widen(const Stored* from, float* to) const {
        for (int i = 0; i < model_.hidden; ++i) to[i] = to_float(from[i]);
    }

    void attend(const LayerSpec& layer) {
        multiply(layer.qkv, normed_input(layer.qkv, layer.attn_norm), d_.qkv_.floats(), false);
        barrier();
        const float *qkv = d_.qkv_.floats(), *turns = d_.turns_.floats();
        d_.attention_.work(layer, qkv, turns, d_.mixed_.floats(), thread_, pile());
        if (d_.chunks_.has_work()) {
            d_.chunks_.pack(layer, qkv, turns, pile());
            barrier();
            d_.chunks_.mix(layer, qkv, turns, d_.mixed_.floats(), thread_, pile());
        }
        barrier();
    }

    // Beyond the last keys and values, only rows that give logits are of use to anyone.
    void keep_sampled() {
        if (step_.num_sampled == rows_) return;
        if (thread_ == 0) {
            for (int i = 0; i < step_.num_sampled; ++i) {
                move_row(d_.x_.floats(), step_.sample_rows[i], i, model_.hidden);
                move_row(d_.mixed_.floats(), step_.sample_rows[i], i,
                         model_.num_heads * model_.head_dim);
            }
        }
        rows_ = step_.num_sampled;
        barrier();
    }

    static void move_row(float* rows, int from, int to, int width) {
        if (from != to)
            std::copy_n(rows + size_t(from) * width, width, rows + size_t(to) * width);
    }

    void feed_forward(const LayerSpec& layer) {
        const void* prepared = normed_input(layer.gate_up, layer.mlp_norm);
        const int half = model_.intermediate;
        if (half % column_tile(layer.gate_up) == 0) {
            // Whoever makes some outputs of the gate makes the same ones of the other half too.
            in_pieces(half, column_tile(layer.gate_up), [&](int from, int to) {
                in_row_blocks([&](int row, int rows) {
                    gated_piece(layer.gate_up, prepared, row, rows, from, to);
                });
            });
        } else {
            multiply(layer.gate_up, prepared, d_.gate_up_.floats(), false);
            barrier();
            for (size_t row = first(); row < size_t(last()); ++row) {
                const float* gate = d_.gate_up_.floats() + row * 2 * half;
                activate(gate, gate + half, half, d_.activated_.floats() + row * half);
            }
        }
        barrier();
        multiply(layer.down, input(layer.down, d_.activated_.floats()), d_.x_.floats(), true);
        barrier();
    }

    // silu(gate) * up (Shazeer 2020, arXiv 2002.05202) of `rows` rows from `row` on, outputs `from`
    // to `to`, while both halves are in this core's cache.
    void gated_piece(const PackedMatrix& matrix, const void* prepared, int row, int rows, int from,
                     int to) {
        const int half = model_.intermediate, width = to - from;
        const void* x = prepared_row(matrix, prepared, row);
        float* gate = d_.own_[thread_].gate_up.floats();
        float* up = gate + width;
        // Column 0 of what is multiplied is the matrix's first output, not the piece's.
        matmul_part(matrix, x, rows, gate - from, 2 * width, from, to, false);
        matmul_part(matrix, x, rows, up - (half + from), 2 * width, half + from, half + to, false);
        float* activated = d_.activated_.floats() + size_t(row) * half + from;
        for (int i = 0; i < rows; ++i, gate += 2 * width, activated += half)
            activate(gate, gate + width, width, activated);
    }

    void head() {
        const PackedMatrix& head = model_.head;
        const void* prepared = normed_input(head, model_.final_norm);
        const int pieces = divide_up(head.n, kHeadPiece);
        Pile& work = pile();
        for (int piece = work.take(); piece < pieces; piece = work.take()) {
            const int from = piece * kHeadPiece, to = std::min(head.n, from + kHeadPiece);
            in_row_blocks([&](int row, int rows) {
                matmul_part(head, prepared_row(head, prepared, row), rows,
                            step_.logits + size_t(row) * head.n, head.n, from, to, false);
            });
            for (int row = 0; row < rows_; ++row) {
                float* logits = step_.logits + size_t(row) * head.n;
                hide_unknown(logits, from, to);
                d_.summaries_[size_t(row) * pieces + piece] = summarise(logits, from, to);
            }
        }
        barrier();
        for (int row = first(); row < last(); ++row) {
            const Summary whole = merge(&d_.summaries_[size_t(row) * pieces], pieces);
            step_.likeliest[row] = whole.id;
            step_.logsumexp[row] = logsumexp(whole);
        }
    }

    // Ids that no text has are never chosen.
    void hide_unknown(float* logits, int from, int to) const {
        constexpr float never = -std::numeric_limits<float>::infinity();
        const int32_t* end = model_.holes + model_.num_holes;
        for (const int32_t* hole = std::lower_bound(model_.holes, end, from);
             hole < end && *hole < to; ++hole)
            logits[*hole] = never;
        for (int id = std::max(from, model_.num_tokens); id < to; ++id) logits[id] = never;
    }

    const void* normed_input(const PackedMatrix& matrix, const float* weight) {
        float* normed = d_.own_[thread_].normed.floats();
        return prepared_rows(matrix, [&](size_t row) {
            normalise(d_.x_.floats() + row * model_.hidden, weight, model_.hidden, model_.norm_eps,
                      normed);
            return normed;
        });
    }

    const void* input(const PackedMatrix& matrix, const float* from) {
        return prepared_rows(matrix, [&](size_t row) { return from + row * matrix.k; });
    }

    // Rows as the matrix wants them. With many rows, this thread makes only its own share of them.
    template <class RowOf>
    const void* prepared_rows(const PackedMatrix& matrix, RowOf row_of) {
        const bool few = rows_ <= kFewRows;
        void* prepared = few ? d_.own_[thread_].prepared.data() : d_.prepared_.data();
        for (int row = few ? 0 : first(); row < (few ? rows_ : last()); ++row)
            prepare_input(matrix, row_of(row), prepared_row(matrix, prepared, row), 0, 1);
        if (!few) barrier();
        return prepared;
    }

    static void* prepared_row(const PackedMatrix& matrix, void* prepared, int row) {
        return static_cast<char*>(prepared) + input_bytes(matrix, row);
    }
    static const void* prepared_row(const PackedMatrix& matrix, const void* prepared, int row) {
        return static_cast<const char*>(prepared) + input_bytes(matrix, row);
    }

    void multiply(const PackedMatrix& matrix, const void* prepared, float* y, bool accumulate) {
        in_pieces(matrix.n, column_tile(matrix), [&](int from, int to) {
            in_row_blocks([&](int row, int rows) {
                matmul_part(matrix, prepared_row(matrix, prepared, row), rows,
                            y + size_t(row) * matrix.n, matrix.n, from, to, accumulate);
            });
        });
    }

    template <class Work>
    void in_row_blocks(Work work) {
        for (int row = 0; row < rows_; row += kRowBlock)
            work(row, std::min(kRowBlock, rows_ - row));
    }

    template <class Work>
    void in_pieces(int count, int tile, Work work) {
        const int width = piece_width(count, tile, step_.num_threads);
        Pile& left = pile();
        for (int from = left.take() * width; from < count; from = left.take() * width)
            work(from, std::min(count, from + width));
    }

    void stage_done(int stage) {
        if (thread_ != 0) return;
        const auto now = Clock::now();
        step_.stages[stage] = std::chrono::duration<double>(now - last_).count();
        last_ = now;
    }

    using Clock = std::chrono::steady_clock;

    Decoder& d_;
    const ModelSpec& model_;
    const StepSpec& step_;
    const int thread_;
    int rows_;  // that are still of use
    int phase_ = 0;
    Clock::time_point last_ = Clock::now();
};

Decoder::Decoder(const ModelSpec& model)
    : model_(model), attention_(model_), chunks_(model_),
      piles_(new Pile[size_t(model.num_layers) * kPilesOfLayer + 1]) {}

void Decoder::run(const StepSpec& step) {
    step_ = &step;
    fit(step.first_rows[step.num_sequences], step.num_sampled, step.num_threads);
    attention_.plan(step, step.num_threads);
    chunks_.plan(step, step.num_threads);
    for (int i = 0; i < step.num_layers * kPilesOfLayer + 1; ++i)
        piles_[i].next.store(0, std::memory_order_relaxed);
    Pool::instance().run(step.num_threads, [this](int thread) { Member(*this, thread).work(); });
}

void Decoder::fit(int rows, int sampled, int threads) {
    const size_t t = rows, few = std::min(rows, kFewRows), size = sizeof(float);
    const size_t queries = size_t(model_.num_heads) * model_.head_dim;
    const size_t heads = queries + 2 * size_t(model_.num_kv_heads) * model_.head_dim;
    size_t prepared = input_bytes(model_.head, rows), prepared_few = input_bytes(model_.head, few);
    for (int i = 0; i < model_.num_layers; ++i) {
        const LayerSpec& layer = model_.layers[i];
        for (const PackedMatrix* matrix : {&layer.qkv, &layer.o, &layer.gate_up, &layer.down}) {
            prepared = std::max(prepared, input_bytes(*matrix, rows));
            prepared_few = std::max(prepared_few, input_bytes(*matrix, few));
        }
    }
    x_.fit(t * model_.hidden * size);
    prepared_.fit(prepared);
    qkv_.fit(t * heads * size);
    mixed_.fit(t * queries * size);
    const int half = model_.intermediate, tile = column_tile(model_.layers[0].gate_up);
    const size_t piece = size_t(std::min(rows, kRowBlock)) * 2 * piece_width(half, tile, threads);
    if (half % tile != 0) gate_up_.fit(t * 2 * half * size);
    activated_.fit(t * model_.intermediate * size);
    turns_.fit(t * 2 * model_.head_dim * size);
    own_.resize(std::max(own_.size(), size_t(threads)));
    for (Own& own : own_) {
        own.normed.fit(model_.hidden * size);
        own.prepared.fit(prepared_few);
        own.gate_up.fit(piece * size);
    }
    summaries_.resize(size_t(sampled) * divide_up(model_.head.n, kHeadPiece));
}

}  // namespace firsttoken

using firsttoken::Decoder;

extern "C" {

// A decoder of this model, or null where it is not supported or there is no memory.
Decoder* firsttoken_new(const firsttoken::ModelSpec* model) {
    if (!firsttoken::Attention::supports(model->head_dim)) return nullptr;
    try {
        return new Decoder(*model);
    } catch (const std::exception&) {
        return nullptr;
    }
}

void firsttoken_free(Decoder* decoder) { delete decoder; }

// 0, or 1 where there was no memory or no thread.
int firsttoken_step(Decoder* decoder, const firsttoken::StepSpec* step) {
    try {
        decoder->run(*step);
        return 0;
    } catch (const std::exception&) {
        return 1;
    }
}
}
