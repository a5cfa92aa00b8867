// Orders rows by columns of integers: a radix sort, which is stable and needs no comparisons.
// Its twin in Python is htk.base.columns.order.ordered_pure.
#include "longs.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>

namespace {

constexpr int DIGIT = 11;  // bits: counters of 2,048 values stay in the first cache
constexpr std::size_t MOVES = 4;  // a row, before digits are faster
constexpr std::uint64_t VALUES = std::uint64_t{1} << DIGIT;

template <typename Key>
struct Row {
    Key key;
    std::uint32_t row;
};

enum class Result { done, no_such_row, no_memory };

// Sort what is nearly in order by moving each row to its place; false if that takes too many moves.
template <typename Key>
bool sort_by_moves(Row<Key>* rows, std::size_t many) {
    std::size_t left = MOVES * many;
    for (std::size_t k = 1; k < many; ++k) {
        const Row<Key> row = rows[k];
        std::size_t target = k;
        while (target > 0 && rows[target - 1].key > row.key && left > 0) {
            rows[target] = rows[target - 1];
            --target;
            --left;
        }
        rows[target] = row;
        if (left == 0) return false;  // what has been moved is in order among itself
    }
    return true;
}

// Sort by digits of the keys that begin at `low`, the last digits first.
template <typename Key, int Passes>
Result sort_by_digits(const std::int64_t* keys, std::int64_t low, std::int64_t* rows, std::size_t many) {
    std::unique_ptr<Row<Key>[]> from(new (std::nothrow) Row<Key>[many]);
    std::unique_ptr<std::array<std::size_t, VALUES>[]> counts(
        new (std::nothrow) std::array<std::size_t, VALUES>[Passes]());
    if (!from || !counts) return Result::no_memory;
    for (std::size_t k = 0; k < many; ++k) {
        const auto key = static_cast<Key>(static_cast<std::uint64_t>(keys[rows[k]]) -
                                          static_cast<std::uint64_t>(low));
        from[k] = {key, static_cast<std::uint32_t>(rows[k])};
        for (int pass = 0; pass < Passes; ++pass)
            ++counts[pass][(static_cast<std::uint64_t>(key) >> (DIGIT * pass)) & (VALUES - 1)];
    }
    std::unique_ptr<Row<Key>[]> to;
    const bool in_order = sort_by_moves(from.get(), many);
    if (!in_order) to.reset(new (std::nothrow) Row<Key>[many]);
    if (!in_order && !to) return Result::no_memory;
    for (int pass = 0; pass < Passes && !in_order; ++pass) {
        auto& next = counts[pass];
        if (*std::max_element(next.begin(), next.end()) == many) continue;  // all alike
        std::size_t before = 0;
        for (auto& count : next) {
            const std::size_t own = count;
            count = before;
            before += own;
        }
        for (std::size_t k = 0; k < many; ++k) {
            const auto digit = (static_cast<std::uint64_t>(from[k].key) >> (DIGIT * pass)) & (VALUES - 1);
            to[next[digit]++] = from[k];
        }
        std::swap(from, to);
    }
    for (std::size_t k = 0; k < many; ++k) rows[k] = from[k].row;
    return Result::done;
}

Result sorted(const std::int64_t* keys, std::size_t count, std::int64_t* rows, std::size_t many) {
    std::int64_t low = std::numeric_limits<std::int64_t>::max();
    std::int64_t high = std::numeric_limits<std::int64_t>::min(), last = high;
    bool in_order = true;
    for (std::size_t k = 0; k < many; ++k) {
        if (static_cast<std::uint64_t>(rows[k]) >= count) return Result::no_such_row;
        const std::int64_t key = keys[rows[k]];
        in_order = in_order && key >= last;
        low = std::min(low, key);
        high = std::max(high, key);
        last = key;
    }
    if (in_order) return Result::done;
    const std::uint64_t span = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
    if (span < VALUES) return sort_by_digits<std::uint32_t, 1>(keys, low, rows, many);
    if (span < VALUES * VALUES) return sort_by_digits<std::uint32_t, 2>(keys, low, rows, many);
    if (span <= std::numeric_limits<std::uint32_t>::max())
        return sort_by_digits<std::uint32_t, 3>(keys, low, rows, many);
    if (span < std::uint64_t{1} << (4 * DIGIT)) return sort_by_digits<std::uint64_t, 4>(keys, low, rows, many);
    return sort_by_digits<std::uint64_t, 6>(keys, low, rows, many);
}

PyObject* reorder(PyObject*, PyObject* args) {
    PyObject *of_keys, *of_rows;
    if (!PyArg_ParseTuple(args, "OO", &of_keys, &of_rows)) return nullptr;
    Longs keys, rows;
    if (!keys.take(of_keys, PyBUF_SIMPLE) || !rows.take(of_rows, PyBUF_WRITABLE)) return nullptr;
    const auto count = static_cast<std::size_t>(keys.size());
    const auto many = static_cast<std::size_t>(rows.size());
    if (count > std::numeric_limits<std::uint32_t>::max()) {
        PyErr_SetString(PyExc_ValueError, "more rows than 32 bits count");
        return nullptr;
    }
    Result result = Result::done;
    const std::int64_t* values = keys.data();
    std::int64_t* order = rows.data();
    Py_BEGIN_ALLOW_THREADS;
    result = sorted(values, count, order, many);
    Py_END_ALLOW_THREADS;
    if (result == Result::no_memory) return PyErr_NoMemory();
    if (result == Result::no_such_row) {
        PyErr_SetString(PyExc_IndexError, "a row that has no key");
        return nullptr;
    }
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"reorder", reorder, METH_VARARGS, "Sort rows by their keys, in place; equal ones stay in order."},
    {nullptr, nullptr, 0, nullptr}};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "_order", nullptr, -1, methods,
                      nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__order() { return PyModule_Create(&module); }
