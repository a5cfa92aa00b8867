// A buffer of 64-bit integers that Python hands over, held for as long as it is used.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>

struct Longs {
    Py_buffer view{};
    bool held = false;
    bool take(PyObject* from, int flags) {
        held = PyObject_GetBuffer(from, &view, flags) == 0;
        if (held && view.itemsize != 8) {
            PyErr_SetString(PyExc_ValueError, "64-bit integers expected");
            return false;
        }
        return held;
    }
    std::int64_t* data() const { return static_cast<std::int64_t*>(view.buf); }
    Py_ssize_t size() const { return view.len / 8; }
    ~Longs() {
        if (held) PyBuffer_Release(&view);
    }
};
