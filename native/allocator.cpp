// Replays allocations and releases through PyTorch's caching allocator of GPU memory.
// Its twin in Python is htk.physics.allocator_replay.replay_pure, and the rules are explained in
// htk.physics.caching_allocator: what is done here is done there, in the same order.
#include "longs.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <new>
#include <set>
#include <stdexcept>
#include <tuple>
#include <vector>

namespace {

using Bytes = std::int64_t;

constexpr Bytes MIB = Bytes{1} << 20;
constexpr Bytes LEAST = 512, SMALL = MIB, SMALL_SEGMENT = 2 * MIB, LARGE_SEGMENT = 20 * MIB;
constexpr Bytes OWN_SEGMENT = 10 * MIB, ROUNDED = 2 * MIB;

struct TooMuch {};        // more than 64 bits hold: the twin can
struct OutOfGpuMemory {};  // no block, and no segment

Bytes add(Bytes a, Bytes b) {
    Bytes sum;
    if (__builtin_add_overflow(a, b, &sum)) throw TooMuch{};
    return sum;
}

Bytes rounded_up(Bytes size, Bytes unit) { return add(size, unit - 1) / unit * unit; }

Bytes segment_size(Bytes rounded) {
    if (rounded <= SMALL) return SMALL_SEGMENT;
    if (rounded < OWN_SEGMENT) return LARGE_SEGMENT;
    return rounded_up(rounded, ROUNDED);
}

struct Block {
    Bytes address, size;
    std::int64_t number;  // of this block among all that were ever made
    bool is_small, is_free;
    Block *before, *after;
};

struct Free {
    Bytes size, address;
    std::int64_t number;
    Block* block;
    bool operator<(const Free& other) const {
        return std::tie(size, address, number) < std::tie(other.size, other.address, other.number);
    }
};

class Allocator {
  public:
    Bytes allocated = 0, reserved = 0, peak_allocated = 0, peak_reserved = 0, allocated_at_peak = 0;
    std::int64_t segments = 0, retries = 0;

    // `capacity`, `max_split`: below 0, there is none.
    Allocator(Bytes capacity, Bytes max_split) : capacity_(capacity), max_split_(max_split) {}

    Block* malloc(Bytes size) {
        const Bytes rounded = std::max(LEAST, rounded_up(size, LEAST));
        Block* block = cached(rounded);
        if (!block) block = new_segment(rounded);
        split(block, rounded);
        block->is_free = false;
        allocated = add(allocated, block->size);
        peak_allocated = std::max(peak_allocated, allocated);
        if (reserved > peak_reserved) {
            peak_reserved = reserved;
            allocated_at_peak = allocated;
        } else if (reserved == peak_reserved) {
            allocated_at_peak = std::max(allocated_at_peak, allocated);
        }
        return block;
    }

    void free(Block* block) {
        allocated -= block->size;
        block->is_free = true;
        for (Block* neighbour : {block->before, block->after}) {
            if (!neighbour || !neighbour->is_free) continue;
            take(neighbour);
            block = neighbour == block->before ? joined(neighbour, block) : joined(block, neighbour);
        }
        keep(block);
    }

    void add_segment(Bytes address, Bytes size, bool is_small) {
        keep(made(address, size, is_small));
        reserved = add(reserved, size);
        ++segments;
        next_ = std::max(next_, add(add(address, size), ROUNDED));
    }

    // A block at an address; null where no free one holds it.
    Block* place(Bytes address, Bytes size) {
        for (auto& pool : free_) {
            for (const Free& entry : pool) {
                if (entry.address > address || add(address, size) > add(entry.address, entry.size)) continue;
                Block* block = entry.block;
                take(block);
                if (address > block->address) {
                    Block* front = block;
                    block = cut(front, address - front->address);
                    keep(front);
                }
                if (block->size > size) keep(cut(block, size));
                block->is_free = false;
                allocated = add(allocated, size);
                return block;
            }
        }
        return nullptr;
    }

    // Count peaks and retries from here on.
    void begin() {
        peak_allocated = allocated_at_peak = allocated;
        peak_reserved = reserved;
        retries = 0;
    }

  private:
    Bytes capacity_, max_split_, next_ = 0;
    std::int64_t made_ = 0;
    std::set<Free> free_[2];  // of the large and of the small pool
    std::deque<Block> blocks_;
    std::vector<Block*> spare_;  // of blocks that were joined to others, or given back

    Block* made(Bytes address, Bytes size, bool is_small) {
        Block* block;
        if (spare_.empty()) {
            blocks_.emplace_back();
            block = &blocks_.back();
        } else {
            block = spare_.back();
            spare_.pop_back();
        }
        *block = {address, size, made_++, is_small, true, nullptr, nullptr};
        return block;
    }

    static Free entry(Block* block) { return {block->size, block->address, block->number, block}; }
    void take(Block* block) { free_[block->is_small].erase(entry(block)); }
    void keep(Block* block) { free_[block->is_small].insert(entry(block)); }

    Block* cached(Bytes rounded) {
        const bool is_small = rounded <= SMALL;
        const auto found = free_[is_small].lower_bound({rounded, std::numeric_limits<Bytes>::min(), 0, nullptr});
        if (found == free_[is_small].end()) return nullptr;
        if (max_split_ >= 0 && !is_small) {
            if (rounded < max_split_ && max_split_ <= found->size) return nullptr;
            if (rounded >= max_split_ && found->size >= add(rounded, LARGE_SEGMENT)) return nullptr;
        }
        Block* block = found->block;
        free_[is_small].erase(found);
        return block;
    }

    Block* new_segment(Bytes rounded) {
        const Bytes size = segment_size(rounded);
        if (capacity_ >= 0 && add(reserved, size) > capacity_) {
            give_back();
            ++retries;
            if (add(reserved, size) > capacity_) throw OutOfGpuMemory{};
        }
        Block* block = made(next_, size, rounded <= SMALL);
        next_ = add(add(next_, size), ROUNDED);
        reserved = add(reserved, size);
        ++segments;
        return block;
    }

    void split(Block* block, Bytes rounded) {
        const Bytes rest = block->size - rounded;
        const bool splits = block->is_small ? rest >= LEAST
                                            : rest > SMALL && (max_split_ < 0 || rounded < max_split_);
        if (splits) keep(cut(block, rounded));
    }

    // Cut a block after so many bytes; returns the one behind.
    Block* cut(Block* block, Bytes size) {
        Block* behind = made(block->address + size, block->size - size, block->is_small);
        behind->before = block;
        behind->after = block->after;
        if (block->after) block->after->before = behind;
        block->after = behind;
        block->size = size;
        return behind;
    }

    Block* joined(Block* first, Block* second) {
        first->size += second->size;
        first->after = second->after;
        if (second->after) second->after->before = first;
        first->is_free = true;
        spare_.push_back(second);
        return first;
    }

    void give_back() {
        for (auto& pool : free_) {
            for (auto at = pool.begin(); at != pool.end();) {
                if (at->block->before || at->block->after) {
                    ++at;
                    continue;
                }
                reserved -= at->size;
                --segments;
                spare_.push_back(at->block);
                at = pool.erase(at);
            }
        }
    }
};

enum class Result { done, too_much, no_such_key, no_memory };

struct Recording {
    Bytes rest;                       // allocated before, and freed by no event
    Longs segments;                   // that were there: address, bytes, whether of the small pool
    Longs before;                     // blocks that were: key, bytes, address, whether it lies there
    Longs keys, sizes;                // of each event: bytes above 0 allocate, any frees what the key holds
    std::size_t count;                // of keys
    std::int64_t failed = 0, blocks = 0;
};

bool has_segments(const Recording& events) {
    for (Py_ssize_t k = 0; k < events.segments.size(); k += 3)
        if (events.segments.data()[k + 1] <= 0) return false;
    return true;
}

bool names_keys(const Recording& events) {
    const auto is_key = [&](std::int64_t key) { return static_cast<std::uint64_t>(key) < events.count; };
    for (Py_ssize_t k = 0; k < events.before.size(); k += 4)
        if (!is_key(events.before.data()[k])) return false;
    return std::all_of(events.keys.data(), events.keys.data() + events.keys.size(), is_key);
}

// A block, or null and one more that failed.
Block* allocated(Allocator& memory, Bytes size, std::int64_t& failed) {
    try {
        return memory.malloc(size);
    } catch (const OutOfGpuMemory&) {
        ++failed;
        return nullptr;
    }
}

void begin(Allocator& memory, Recording& events, std::vector<Block*>& held) {
    if (events.rest > 0 && allocated(memory, events.rest, events.failed)) ++events.blocks;
    for (Py_ssize_t k = 0; k < events.segments.size(); k += 3) {
        const std::int64_t* segment = events.segments.data() + k;
        memory.add_segment(segment[0], segment[1], segment[2] != 0);
    }
    for (Py_ssize_t k = 0; k < events.before.size(); k += 4) {
        const std::int64_t* block = events.before.data() + k;
        if (block[1] <= 0) continue;
        Block* found = block[3] ? memory.place(block[2], block[1]) : nullptr;
        if (!found) found = allocated(memory, block[1], events.failed);
        if (!found) continue;
        events.blocks += !held[block[0]];
        held[block[0]] = found;
    }
    memory.begin();
}

Result replayed(Allocator& memory, Recording& events) {
    try {
        if (!names_keys(events)) return Result::no_such_key;
        std::vector<Block*> held(events.count, nullptr);
        begin(memory, events, held);
        for (Py_ssize_t k = 0; k < events.keys.size(); ++k) {
            Block*& own = held[events.keys.data()[k]];
            if (own) memory.free(own);
            own = nullptr;
            if (events.sizes.data()[k] <= 0) continue;
            ++events.blocks;
            own = allocated(memory, events.sizes.data()[k], events.failed);
        }
    } catch (const TooMuch&) {
        return Result::too_much;
    } catch (const std::bad_alloc&) {
        return Result::no_memory;
    } catch (const std::length_error&) {
        return Result::no_memory;
    }
    return Result::done;
}

PyObject* replay(PyObject*, PyObject* args) {
    Recording events;
    PyObject *of_segments, *of_before, *of_keys, *of_sizes;
    long long rest, count, capacity, max_split;
    if (!PyArg_ParseTuple(args, "LOOOOLLL", &rest, &of_segments, &of_before, &of_keys, &of_sizes, &count,
                          &capacity, &max_split))
        return nullptr;
    if (!events.segments.take(of_segments, PyBUF_SIMPLE) || !events.before.take(of_before, PyBUF_SIMPLE) ||
        !events.keys.take(of_keys, PyBUF_SIMPLE) || !events.sizes.take(of_sizes, PyBUF_SIMPLE))
        return nullptr;
    if (events.segments.size() % 3 || events.before.size() % 4 || events.keys.size() != events.sizes.size() ||
        count < 0) {
        PyErr_SetString(PyExc_ValueError, "arrays of one recording differ in length");
        return nullptr;
    }
    if (!has_segments(events)) {
        PyErr_SetString(PyExc_ValueError, "a segment without bytes");
        return nullptr;
    }
    events.rest = rest;
    events.count = static_cast<std::size_t>(count);
    Allocator memory(capacity, max_split);
    Result result = Result::done;
    Py_BEGIN_ALLOW_THREADS;
    result = replayed(memory, events);
    Py_END_ALLOW_THREADS;
    if (result == Result::no_memory) return PyErr_NoMemory();
    if (result == Result::no_such_key) PyErr_SetString(PyExc_IndexError, "an event of a block without a number");
    if (result == Result::too_much) PyErr_SetString(PyExc_OverflowError, "more bytes than 64 bits count");
    if (result != Result::done) return nullptr;
    return Py_BuildValue("LLLLLLL", static_cast<long long>(memory.peak_allocated),
                         static_cast<long long>(memory.peak_reserved),
                         static_cast<long long>(memory.allocated_at_peak),
                         static_cast<long long>(memory.segments), static_cast<long long>(memory.retries),
                         static_cast<long long>(events.failed), static_cast<long long>(events.blocks));
}

PyMethodDef methods[] = {
    {"replay", replay, METH_VARARGS, "Replay allocations and releases; what was allocated and reserved."},
    {nullptr, nullptr, 0, nullptr}};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "_allocator", nullptr, -1, methods,
                      nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__allocator() { return PyModule_Create(&module); }
