// Threads that stay: one team works on one step, and its members meet at barriers inside it.
//
// A member that waits spins for a short while and then gives its core away, because this process
// shares the machine with others. Between steps the team spins for Pool::kSpinMicroseconds, so that
// the next step of a busy engine finds it awake, and then sleeps until it is called.

#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace firsttoken {

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

// Waits until `done()`; gives the core away after some microseconds of spinning.
template <class Done>
inline void wait_until(Done done) {
    constexpr int kRounds = 2000;
    for (int round = 0; !done(); ++round) {
        if (round < kRounds)
            relax();
        else
            std::this_thread::yield();
    }
}

// All `parts` members must arrive before any goes on.
class Barrier {
  public:
    void wait(int parts) {
        const unsigned now = generation_.load(std::memory_order_acquire);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == parts) {
            arrived_.store(0, std::memory_order_relaxed);
            generation_.store(now + 1, std::memory_order_release);
            return;
        }
        wait_until([&] { return generation_.load(std::memory_order_acquire) != now; });
    }

  private:
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<unsigned> generation_{0};
};

// A pile of equal pieces of work, taken one at a time by whoever is free.
struct alignas(64) Pile {
    std::atomic<int> next{0};
    int take() { return next.fetch_add(1, std::memory_order_relaxed); }
};

class Pool {
  public:
    static constexpr int kSpinMicroseconds = 100;

    // The one pool of this process. Its threads end with the process.
    static Pool& instance() {
        static Pool* pool = new Pool;
        return *pool;
    }

    // Runs body(0) here and body(1) to body(parts - 1) on the pool's threads; returns when all are
    // done. One caller at a time: another one waits.
    void run(int parts, const std::function<void(int)>& body) {
        const std::lock_guard<std::mutex> only(callers_);
        if (parts > 1) start(parts, body);
        body(0);
        if (parts > 1)
            wait_until([&] { return working_.load(std::memory_order_acquire) == 0; });
    }

  private:
    void start(int parts, const std::function<void(int)>& body) {
        for (; num_threads_ < parts - 1; ++num_threads_) {
            std::thread(&Pool::serve, this, num_threads_ + 1, jobs_).detach();
        }
        body_ = &body;
        parts_ = parts;
        working_.store(num_threads_, std::memory_order_relaxed);
        ++jobs_;
        job_.store(jobs_, std::memory_order_seq_cst);
        if (sleeping_.load(std::memory_order_seq_cst) == 0) return;
        const std::lock_guard<std::mutex> lock(sleepers_);
        wake_up_.notify_all();
    }

    void serve(int part, unsigned done) {
        while (true) {
            while (job_.load(std::memory_order_acquire) == done) rest(done);
            ++done;
            if (part < parts_) (*body_)(part);
            working_.fetch_sub(1, std::memory_order_release);
        }
    }

    // Spins for a while and then sleeps, until there is a new job.
    void rest(unsigned done) {
        using Clock = std::chrono::steady_clock;
        const auto until = Clock::now() + std::chrono::microseconds(kSpinMicroseconds);
        while (Clock::now() < until) {
            for (int round = 0; round < 64; ++round) {
                if (job_.load(std::memory_order_acquire) != done) return;
                relax();
            }
        }
        std::unique_lock<std::mutex> lock(sleepers_);
        sleeping_.fetch_add(1, std::memory_order_seq_cst);
        wake_up_.wait(lock, [&] { return job_.load(std::memory_order_seq_cst) != done; });
        sleeping_.fetch_sub(1, std::memory_order_seq_cst);
    }

    std::mutex callers_;
    int num_threads_ = 0;
    unsigned jobs_ = 0;
    const std::function<void(int)>* body_ = nullptr;
    int parts_ = 0;
    alignas(64) std::atomic<unsigned> job_{0};
    alignas(64) std::atomic<int> working_{0};
    std::mutex sleepers_;
    std::condition_variable wake_up_;
    std::atomic<int> sleeping_{0};
};

}  // namespace firsttoken
