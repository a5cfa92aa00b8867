// The one loop of the replay: raise each edge's head to its tail plus the weight, in order.
// Its twin in Python is htk.replay.longest_pure.
#include "longs.h"

#include <cstdint>

namespace {

PyObject* longest(PyObject*, PyObject* args) {
    PyObject *times, *tails, *heads, *weights;
    if (!PyArg_ParseTuple(args, "OOOO", &times, &tails, &heads, &weights)) return nullptr;
    Longs time, src, dst, weight;
    if (!time.take(times, PyBUF_WRITABLE) || !src.take(tails, PyBUF_SIMPLE) ||
        !dst.take(heads, PyBUF_SIMPLE) || !weight.take(weights, PyBUF_SIMPLE))
        return nullptr;
    const Py_ssize_t edges = src.size(), nodes = time.size();
    if (dst.size() != edges || weight.size() != edges) {
        PyErr_SetString(PyExc_ValueError, "tails, heads and weights differ in length");
        return nullptr;
    }
    std::int64_t* at = time.data();
    const std::int64_t *from = src.data(), *to = dst.data(), *by = weight.data();
    const auto count = static_cast<std::uint64_t>(nodes);
    for (Py_ssize_t k = 0; k < edges; ++k) {
        const auto tail = static_cast<std::uint64_t>(from[k]), head = static_cast<std::uint64_t>(to[k]);
        if (tail >= count || head >= count) {
            PyErr_SetString(PyExc_IndexError, "an edge names no node");
            return nullptr;
        }
        std::int64_t reached;
        if (__builtin_add_overflow(at[tail], by[k], &reached)) {
            PyErr_SetString(PyExc_OverflowError, "a time of more than 64 bits");
            return nullptr;
        }
        // Written always: which edge comes last is a guess that a processor loses.
        const std::int64_t before = at[head];
        at[head] = reached > before ? reached : before;
    }
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"longest", longest, METH_VARARGS, "Raise each head to its tail plus the weight, in place."},
    {nullptr, nullptr, 0, nullptr}};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "_replay", nullptr, -1, methods,
                      nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__replay() { return PyModule_Create(&module); }
