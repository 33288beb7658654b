// Streams of bounded depth and the processes that share them, for the C simulation.
//
// Each process is a thread, but only one runs at a time: it holds the baton until a stream it needs is empty or full,
// then hands it to the next process that can go on. The order is fixed, so a run repeats exactly; when none can go on,
// that is a deadlock and the run fails with what each of them waits for, where an unbounded stream would have hidden it.
#ifndef FASTCAR_STREAM_SIMULATION_H
#define FASTCAR_STREAM_SIMULATION_H

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace fastcar {

class SimulationError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

class Simulation {
public:
    void spawn(std::string name, std::function<void()> body) {
        processes_.push_back(std::make_unique<Process>());
        processes_.back()->name = std::move(name);
        processes_.back()->body = std::move(body);
    }

    // Runs every process to its end. SimulationError on a deadlock, or what a process threw.
    void run() {
        for (size_t index = 0; index < processes_.size(); index++) {
            processes_[index]->thread = std::thread([this, index] { enter(index); });
        }
        {
            std::unique_lock<std::mutex> lock(mutex_);
            current_ = 0;
            processes_[0]->wake.notify_one();
            finished_.wait(lock, [this] { return done_ == processes_.size(); });
        }
        for (auto& process : processes_) process->thread.join();
        if (!error_.empty()) throw SimulationError(error_);
    }

    // Called by a stream: the running process cannot go on until `ready`. Returns when it can.
    void wait(const std::string& stream, const char* why, const std::function<bool()>& ready) {
        std::unique_lock<std::mutex> lock(mutex_);
        const size_t self = active_index();
        processes_[self]->waits = stream + " " + why;
        processes_[self]->ready = &ready;
        pass_on(self);
        processes_[self]->wake.wait(lock, [this, self] { return current_ == self || !error_.empty(); });
        processes_[self]->ready = nullptr;  // it ends with this call
        if (!error_.empty()) throw SimulationError(error_);
    }

    static Simulation*& active() {
        static thread_local Simulation* simulation = nullptr;
        return simulation;
    }

private:
    struct Process {
        std::string name;
        std::function<void()> body;
        std::thread thread;
        std::condition_variable wake;
        std::string waits;
        const std::function<bool()>* ready = nullptr;  // of one that waits
        bool done = false;
    };

    static size_t& active_index() {
        static thread_local size_t index = 0;
        return index;
    }

    void enter(size_t index) {
        active() = this;
        active_index() = index;
        {
            std::unique_lock<std::mutex> lock(mutex_);
            processes_[index]->wake.wait(lock, [this, index] { return current_ == index || !error_.empty(); });
        }
#ifdef FASTCAR_FLUSH_SUBNORMALS
        __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);  // flush results, read operands as zero
#endif
        try {
            if (error_.empty()) processes_[index]->body();
        } catch (const std::exception& error) {
            std::unique_lock<std::mutex> lock(mutex_);
            if (error_.empty()) fail(processes_[index]->name + ": " + error.what());
        }
        std::unique_lock<std::mutex> lock(mutex_);
        processes_[index]->done = true;
        done_++;
        pass_on(index);
        finished_.notify_one();
    }

    void pass_on(size_t from) {
        for (size_t step = 1; step <= processes_.size(); step++) {
            const size_t next = (from + step) % processes_.size();
            const Process& process = *processes_[next];
            if (!process.done && (process.ready == nullptr || (*process.ready)())) {
                current_ = next;
                processes_[next]->wake.notify_one();
                return;
            }
        }
        if (done_ < processes_.size() && error_.empty()) fail(deadlock());
    }

    void fail(const std::string& error) {
        error_ = error;
        for (auto& process : processes_) process->wake.notify_one();
    }

    std::string deadlock() const {
        std::string text = "deadlock:";
        for (const auto& process : processes_) {
            if (!process->done) text += " " + process->name + " waits for " + process->waits + ";";
        }
        return text;
    }

    std::vector<std::unique_ptr<Process>> processes_;
    std::mutex mutex_;
    std::condition_variable finished_;
    std::string error_;
    size_t current_ = SIZE_MAX;
    size_t done_ = 0;
};

// A stream of the depth describe() gave it. Outside of a Simulation (a test bench that fills it, runs a kernel, then
// looks) the depth is not enforced, and reading an empty stream is an error.
template <typename T>
class stream {
public:
    stream() : items_(16) {}
    stream(const stream&) = delete;
    stream& operator=(const stream&) = delete;

    void describe(std::string name, size_t depth) {
        name_ = std::move(name);
        items_.assign(depth, T());
        head_ = size_ = 0;
    }

    T read() {
        while (size_ == 0) {
            Simulation* simulation = Simulation::active();
            if (simulation == nullptr) throw SimulationError("read of the empty stream " + name_);
            simulation->wait(name_, "(empty)", [this] { return size_ > 0; });
        }
        T item = items_[head_];
        if (++head_ == items_.size()) head_ = 0;
        size_--;
        return item;
    }

    void write(const T& item) {
        while (size_ == items_.size()) {
            Simulation* simulation = Simulation::active();
            if (simulation == nullptr) {
                grow();
            } else {
                simulation->wait(name_, "(full)", [this] { return size_ < items_.size(); });
            }
        }
        const size_t tail = head_ + size_;
        items_[tail < items_.size() ? tail : tail - items_.size()] = item;
        size_++;
    }

    bool empty() const { return size_ == 0; }
    size_t size() const { return size_; }
    const std::string& label() const { return name_; }

private:
    void grow() {
        std::vector<T> larger(items_.size() * 2);
        for (size_t index = 0; index < size_; index++) larger[index] = items_[(head_ + index) % items_.size()];
        items_.swap(larger);
        head_ = 0;
    }

    std::string name_ = "stream";
    std::vector<T> items_;
    size_t head_ = 0;
    size_t size_ = 0;
};

// Name and depth of a stream; in hardware the STREAM pragma beside the call says the same.
template <typename T>
void describe(stream<T>& stream, const std::string& name, int depth) {
    stream.describe(name, (size_t)depth);
}

// Data left in a stream at the end is data some process should have taken.
template <typename... T>
void expect_drained(const stream<T>&... streams) {
    for (const auto& [name, size] : {std::pair<std::string, size_t>(streams.label(), streams.size())...}) {
        if (size > 0) throw SimulationError(std::to_string(size) + " items left in stream " + name);
    }
}

}  // namespace fastcar

#endif
