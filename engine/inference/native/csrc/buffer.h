// Memory for numbers of one step after the other.

#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace firsttoken {

// Memory at a multiple of 64 bytes that only grows. Its contents are lost when it does.
class Buffer {
  public:
    void fit(size_t bytes) {
        if (bytes <= size_) return;
        data_.reset();
        size_ = 0;
        data_.reset(::operator new(bytes, std::align_val_t(kLine)));
        size_ = bytes;
    }
    void* data() const { return data_.get(); }
    char* bytes() const { return static_cast<char*>(data_.get()); }
    float* floats() const { return static_cast<float*>(data_.get()); }

  private:
    static constexpr size_t kLine = 64;
    struct Free {
        void operator()(void* memory) const { ::operator delete(memory, std::align_val_t(kLine)); }
    };
    std::unique_ptr<void, Free> data_;
    size_t size_ = 0;
};

}  // namespace firsttoken
