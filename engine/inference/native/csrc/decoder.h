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
#include "matmul.h"
#include "pool.h"
#include "step.h"
#include "summary.h"

namespace firsttoken {

// Memory at a multiple of 64 bytes that only grows. Its contents are lost when it does.
class Buffer {
  public:
    void fit(size_t bytes);
    void* data() const { return data_.get(); }
    float* floats() const { return static_cast<float*>(data_.get()); }

  private:
    struct Free {
        void operator()(void* memory) const;
    };
    std::unique_ptr<void, Free> data_;
    size_t size_ = 0;
};

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
        Buffer normed, prepared;
    };

    void fit(int rows, int sampled, int threads);

    const ModelSpec model_;
    const StepSpec* step_ = nullptr;
    Attention attention_;
    Barrier barrier_;
    std::unique_ptr<Pile[]> piles_;
    std::vector<Own> own_;
    std::vector<Summary> summaries_;  // [n, pieces of the vocabulary]
    Buffer x_, normed_, prepared_, qkv_, mixed_, gate_up_, activated_, turns_;
};

}  // namespace firsttoken
