// One step of a decoder of the Llama family, by a team of threads.
//
//     x = embed[token]
//     for each layer:   x = x + Wo · attention(norm(x) · Wqkv, rotated)
//                       x = x + Wdown · (silu(gate) * up),   gate, up = norm(x) · Wgate_up
//     logits = norm(x) · Whead
//
// All arithmetic between the matrices is float32. A matrix rounds or quantises its own input.

#pragma once

#include <memory>
#include <vector>

#include "attention.h"
#include "buffer.h"
#include "chunk_attention.h"
#include "matmul.h"
#include "pool.h"
#include "step.h"
#include "summary.h"

namespace firsttoken {

class Decoder {
  public:
    // `model` is copied; what it points to must outlive the decoder.
    explicit Decoder(const ModelSpec& model);

    // Runs one step: stores its keys and values, and fills in the step's logits.
    void run(const StepSpec& step);

  private:
    class Member;
    // What one thread needs to prepare a few rows without waiting for the others.
    struct Own {
        Buffer normed, prepared, gate_up;
    };

    void fit(int rows, int sampled, int threads);

    const ModelSpec model_;
    const StepSpec* step_ = nullptr;
    Attention attention_;
    ChunkAttention chunks_;
    Barrier barrier_;
    std::unique_ptr<Pile[]> piles_;
    std::vector<Own> own_;
    std::vector<Summary> summaries_;  // [n, pieces of the vocabulary]
    Buffer x_, prepared_, qkv_, mixed_, gate_up_, activated_, turns_;
};

}  // namespace firsttoken
