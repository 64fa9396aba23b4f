// What Python hands over, mirrored field by field in engine/inference/native/abi.py.
//
// Shapes: t rows (tokens of all sequences of a step) · b sequences · h KV heads · g query heads per
// KV head · d head_dim · s slots of the KV cache · v vocabulary · n rows that give logits.

#pragma once

#include <cstdint>

#include "matmul.h"

namespace firsttoken {

// How the KV cache stores its numbers.
enum KVKind : int32_t { KV_F32 = 0, KV_BF16 = 1, KV_INT8 = 2, KV_INT4 = 3 };

// How the embedding table stores its numbers.
enum TableKind : int32_t { TABLE_F32 = 0, TABLE_BF16 = 1, TABLE_IS_HEAD = 2 };

struct LayerSpec {
    PackedMatrix qkv, o, gate_up, down;
    const float* attn_norm;  // [hidden]
    const float* mlp_norm;   // [hidden]
    const float* q_norm;     // [d], or null: none
    const float* k_norm;     // [d], or null: none
    char* kv;                // number 0 of the key of head 0 in slot 0
    uint16_t* kv_scales;     // float16 [2, h, s], or null: none
    float scale;             // of the scores
    float softcap;           // cap * tanh(score / cap); 0: none
    int32_t window;          // positions that a token sees, itself included; 0: all before it
    int32_t reserved;
};

struct ModelSpec {
    const LayerSpec* layers;
    const void* embed;        // [v, hidden], or null: rows of the head
    const float* turns;       // [max_positions, d / 2, 2]: cosine, sine
    const float* final_norm;  // [hidden]
    const int32_t* holes;     // ids that no text has, ascending: their logits are -inf
    PackedMatrix head;
    // Bytes from the keys to the values, from one head to the next, and from one slot to the next.
    int64_t kind_stride, head_stride, slot_stride;
    int32_t num_layers, hidden, num_heads, num_kv_heads, head_dim, intermediate;
    int32_t num_tokens;  // ids from here on have the logit -inf
    int32_t num_holes;
    int32_t embed_kind, kv_kind, block_size;
    int32_t sinks;  // first positions that stay visible beyond a window
    int32_t num_slots;
    float norm_eps;
};

struct StepSpec {
    const int32_t* token_ids;    // [t]
    const int32_t* first_rows;   // [b + 1]: where each sequence's rows begin
    const int32_t* starts;       // [b]: position of each sequence's first row
    const int32_t* first_blocks; // [b]: where each sequence's blocks begin in `blocks`
    const int32_t* blocks;       // block tables, one after the other
    const int32_t* sample_rows;  // [n], ascending
    float* logits;               // [n, head.n]
    int32_t* likeliest;          // [n]: the first id with the largest logit
    float* logsumexp;            // [n]: ln of the sum of e^logit; NaN if a logit is NaN or +inf
    double* stages;              // [3]: seconds of embed, layers, logits
    int32_t num_sequences, num_sampled, num_threads;
    int32_t num_layers;          // the first ones, 1 to the model's: the rest is left out
};

}  // namespace firsttoken
