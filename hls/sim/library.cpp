// The C simulation as a shared library: the engine behind a C interface.
#include <mutex>

#include "../engine/engine.h"
#include "library.h"

using namespace fastcar;

namespace {

std::mutex one_engine;  // its on-chip memories are static, as there is one of them in hardware

void copy_text(const std::string& text, char* target, size_t size) {
    const size_t length = std::min(text.size(), size - 1);
    std::copy_n(text.data(), length, target);
    target[length] = '\0';
}

}  // namespace

static_assert(sizeof(beat_t) == BEAT_BYTES, "host memory is read as beats");

int fastcar_run(void* const addresses[], const void* control, void* report, char* error, size_t error_size) {
    std::lock_guard<std::mutex> lock(one_engine);
    Control registers;
    std::memcpy(&registers, control, sizeof(Control));
    const auto at = [addresses](int argument) { return static_cast<beat_t*>(addresses[argument]); };
    try {
        Report result;
        fastcar_engine(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7), at(8), at(9), at(10), registers,
                       &result);
        std::memcpy(report, &result, sizeof(Report));
    } catch (const std::exception& failure) {
        copy_text(failure.what(), error, error_size);
        return 1;
    }
    return 0;
}
