// NumPy's arrays in the memory of blocks.h (NEP 49).
#pragma once

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>

namespace kineto {

// A capsule that NumPy takes as a handler of its memory; a new reference.
PyObject* array_memory();

// Have NumPy take the memory of new arrays from a handler, in the current context; returns the one before. `api` is
// the capsule of NumPy's functions.
PyObject* set_array_memory(PyObject* api, PyObject* handler);

}  // namespace kineto
