// Two clocks: when the ports have fetched what they were told to, and when the executor has used it.
#ifndef FASTCAR_TIMELINE_H
#define FASTCAR_TIMELINE_H

#include <algorithm>
#include <deque>

#include "account.h"

namespace fastcar {

class Timeline {
public:
    Timeline(const Timing& timing, const Parallelism& engine) : timing_(timing), engine_(engine) {}

    // The decision that gated fetches wait for is known now.
    void decide() { decided_ = now_; }

    void run(const Work& work) {
        now_ += (double)work.before;
        int64_t most = 0;
        int64_t sum = 0;
        for (int64_t beats : work.beats) {
            most = std::max(most, beats);
            sum += beats;
        }
        if (work.gated) fetched_ = std::max(fetched_, decided_ + (double)timing_.read_latency);
        consume(most, sum, work.clocks);
        if (most == 0) now_ += (double)work.clocks;
        now_ += (double)(work.after + timing_.operation);
        fetched_ += (double)(work.reads + work.writes) / timing_.ddr_rate;
    }

    double now() const { return now_; }
    double stalls() const { return stalls_; }
    void advance(double clocks) {
        now_ += clocks;
        fetched_ = std::max(fetched_, now_);
    }

private:
    static constexpr int64_t CHUNK = 32;  // beats of a port simulated at once

    struct Used {
        int64_t beats;
        double time;
    };

    // Beats of the longest port, all ports' sum, and the clocks their use takes when none is missing.
    void consume(int64_t most, int64_t sum, int64_t clocks) {
        for (int64_t done = 0; done < most; done += CHUNK) {
            const int64_t beats = std::min(CHUNK, most - done);
            const double share = (double)beats / (double)most;
            const double fetch = std::max((double)beats / engine_.port_width, share * (double)sum / timing_.ddr_rate);
            requested_ += beats;
            // the chunk's last beat fits once the beat a FIFO's depth before it was used
            while (!used_.empty() && used_.front().beats < requested_ - engine_.fifo_beats) used_.pop_front();
            const double room = requested_ > engine_.fifo_beats && !used_.empty() ? used_.front().time : 0.0;
            fetched_ = std::max(fetched_, room) + fetch;
            const double ready = now_ + share * (double)clocks;  // beats are used as they arrive
            now_ = std::max(ready, fetched_);
            stalls_ += now_ - ready;
            used_.push_back({requested_, now_});
        }
    }

    const Timing& timing_;
    const Parallelism& engine_;
    double now_ = 0;
    double fetched_ = 0;
    double decided_ = 0;
    double stalls_ = 0;
    int64_t requested_ = 0;
    std::deque<Used> used_;
};

}  // namespace fastcar

#endif
