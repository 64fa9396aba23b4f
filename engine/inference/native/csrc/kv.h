// How the KV cache stores keys and values of one layer: the one place that knows its formats.

#pragma once

#include "step.h"
#include "vec.h"

namespace firsttoken {

enum Which { KEYS = 0, VALUES = 1 };

// The cache of one layer.
class KVLayer {
  public:
    KVLayer(const ModelSpec& model, const LayerSpec& layer) : model_(model), data_(layer.kv) {}

    // `count` slots of a head from `slot` on as floats, [count, d].
    void read(Which which, int head, int slot, int count, float* to) const {
        for (int i = 0; i < count; ++i, to += model_.head_dim) {
            const char* from = at(which, head, slot + i);
            if (model_.kv_kind == KV_BF16)
                copy(reinterpret_cast<const BFloat16*>(from), to);
            else
                copy(reinterpret_cast<const float*>(from), to);
        }
    }

    void write(Which which, int head, int slot, const float* from) const {
        char* to = at(which, head, slot);
        if (model_.kv_kind == KV_BF16)
            copy(from, reinterpret_cast<BFloat16*>(to));
        else
            copy(from, reinterpret_cast<float*>(to));
    }

  private:
    char* at(Which which, int head, int slot) const {
        return data_ + which * model_.kind_stride + head * model_.head_stride +
               slot * model_.slot_stride;
    }

    template <class From, class To>
    void copy(const From* from, To* to) const {
        for (int i = 0; i < model_.head_dim; i += kLanes) store(to + i, load(from + i));
    }

    const ModelSpec& model_;
    char* const data_;
};

}  // namespace firsttoken
