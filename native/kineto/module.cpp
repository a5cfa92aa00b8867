// The Python module: htk.base.native._kineto.Parser, nest(), json_strings(), join().
#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>

#ifndef HTK_SOURCES  // setup.py gives the hash of these sources
#define HTK_SOURCES ""
#endif

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "array_memory.h"
#include "arrow_export.h"
#include "blocks.h"
#include "json_strings.h"
#include "nesting.h"
#include "parser.h"

namespace {

using kineto::Column;
using kineto::Parser;
using std::string;
using std::vector;

struct PyParser {
  PyObject_HEAD std::shared_ptr<Parser>* parser;
  bool busy;
};

bool add_column(Parser& parser, PyObject* description) {  // (scope: 0 event, 1 args, 2 the rest; key; kind)
  int scope, kind;
  const char* key;
  Py_ssize_t size;
  if (!PyArg_ParseTuple(description, "is#i", &scope, &key, &size, &kind)) return false;
  bool rest = scope == kineto::kRest;
  if (scope < kineto::kEvent || scope > kineto::kRest || kind < kineto::kInt || kind > kineto::kJson ||
      (rest && kind != kineto::kJson)) {
    PyErr_SetString(PyExc_ValueError, "no such scope or kind of column");
    return false;
  }
  string text(key, static_cast<size_t>(size));
  parser.add_column(static_cast<kineto::Scope>(scope), text, static_cast<kineto::Kind>(kind));
  return true;
}

int parser_init(PyObject* self, PyObject* args, PyObject*) {
  auto* me = reinterpret_cast<PyParser*>(self);
  PyObject* list;
  int keep_rest = 0;
  if (me->busy) {
    PyErr_SetString(PyExc_RuntimeError, "the parser is in use by another thread");
    return -1;
  }
  if (!PyArg_ParseTuple(args, "O!|p", &PyList_Type, &list, &keep_rest)) return -1;
  auto parser = std::make_shared<Parser>(keep_rest != 0);
  for (Py_ssize_t i = 0; i < PyList_Size(list); i++)
    if (!add_column(*parser, PyList_GetItem(list, i))) return -1;
  if (!parser->ready()) {
    PyErr_SetString(PyExc_ValueError, "no column for the rest, or keys that repeat");
    return -1;
  }
  delete me->parser;
  me->parser = new std::shared_ptr<Parser>(parser);
  me->busy = false;
  return 0;
}

void parser_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<PyParser*>(self)->parser;
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

PyObject* parser_feed(PyObject* self, PyObject* args) {
  auto* me = reinterpret_cast<PyParser*>(self);
  Py_buffer input;
  int last = 0;
  if (!PyArg_ParseTuple(args, "y*|p", &input, &last)) return nullptr;
  if (me->busy || !me->parser || me->parser->use_count() != 1) {
    PyBuffer_Release(&input);
    PyErr_SetString(PyExc_RuntimeError, "the parser is in use by another thread, or its columns are lent");
    return nullptr;
  }
  me->busy = true;
  bool no_memory = false;
  Parser& parser = **me->parser;
  Py_BEGIN_ALLOW_THREADS
  try {
    auto p = static_cast<kineto::Ptr>(input.buf);
    auto left = static_cast<size_t>(input.len);
    do {
      size_t step = std::min(left, kineto::kStep);
      parser.feed(p, step, last && step == left);
      p += step;
      left -= step;
    } while (left);
  } catch (const std::exception&) {
    no_memory = true;
  }
  Py_END_ALLOW_THREADS
  me->busy = false;
  PyBuffer_Release(&input);
  if (no_memory) return PyErr_NoMemory();
  return PyBool_FromLong(parser.state == Parser::kDone);
}

bool append(PyObject* list, PyObject* item) {
  bool good = item && PyList_Append(list, item) == 0;
  Py_XDECREF(item);
  return good;
}

PyObject* counts_of(const Parser& parser) {
  PyObject* counts = PyDict_New();
  auto count = [&](const char* kind, uint64_t n) {
    PyObject* number = n ? PyLong_FromUnsignedLongLong(n) : nullptr;
    if (number) PyDict_SetItemString(counts, kind, number);
    Py_XDECREF(number);
  };
  for (int state = Parser::kStart; counts && state < Parser::kDone; state++)
    count(Parser::kBroken[state], parser.broken[state]);
  if (counts) count("mistyped_value", parser.mistyped);
  return counts;
}

PyObject* parser_result(PyObject* self, PyObject*) {
  using Number = unsigned long long;
  auto* me = reinterpret_cast<PyParser*>(self);
  if (me->busy || !me->parser) {
    PyErr_SetString(PyExc_RuntimeError, "the parser is in use by another thread, or was never begun");
    return nullptr;
  }
  const Parser& parser = **me->parser;
  PyObject *sizes = PyList_New(0), *header = PyList_New(0), *issues = PyList_New(0), *counts = counts_of(parser);
  bool good = sizes && header && issues && counts;
  auto size = [](const string& text) { return static_cast<Py_ssize_t>(text.size()); };
  for (auto& column : parser.columns) good = good && append(sizes, PyLong_FromSize_t(column.size));
  for (auto& e : parser.header)
    good = good && append(header, Py_BuildValue("Ky#y#", Number(e.offset), e.key.data(), size(e.key), e.value.data(),
                                                size(e.value)));
  for (auto& i : parser.issues)
    good = good && append(issues, Py_BuildValue("KLisy#", Number(i.offset), static_cast<long long>(i.row), i.column,
                                                i.kind, i.text.data(), size(i.text)));
  if (!good) {
    for (PyObject* part : {sizes, header, issues, counts}) Py_XDECREF(part);
    return nullptr;
  }
  return Py_BuildValue("{s:I,s:N,s:N,s:N,s:N,s:N,s:N}", "rows", parser.row, "sizes", sizes, "header", header, "issues",
                       issues, "counts", counts, "truncated", PyBool_FromLong(parser.truncated), "events_seen",
                       PyBool_FromLong(parser.events_seen));
}

void free_schema(PyObject* capsule) {
  auto* schema = static_cast<ArrowSchema*>(PyCapsule_GetPointer(capsule, "arrow_schema"));
  if (schema->release) schema->release(schema);
  delete schema;
}

void free_array(PyObject* capsule) {
  auto* array = static_cast<ArrowArray*>(PyCapsule_GetPointer(capsule, "arrow_array"));
  if (array->release) array->release(array);
  delete array;
}

// The column of that number, as long as nobody feeds the parser; else nullptr, with the error set.
const Column* column_of(const PyParser* me, int number) {
  if (me->busy || !me->parser || number < 0 || static_cast<size_t>(number) >= (*me->parser)->columns.size()) {
    PyErr_SetString(PyExc_ValueError, "no such column");
    return nullptr;
  }
  const Column* column = &(*me->parser)->columns[static_cast<size_t>(number)];
  if (column->dictionary && column->dictionary->bytes > INT32_MAX) {
    PyErr_SetString(PyExc_OverflowError, "a column of more than 2 GB of distinct text");
    return nullptr;
  }
  return column;
}

// Arrow capsules that fill(schema, array) fills.
template <class Fill>
PyObject* capsules(Fill fill) {
  auto* schema = new ArrowSchema();
  auto* array = new ArrowArray();
  PyObject* schema_capsule = PyCapsule_New(schema, "arrow_schema", free_schema);
  PyObject* array_capsule = PyCapsule_New(array, "arrow_array", free_array);
  try {
    fill(schema, array);
  } catch (const std::bad_alloc&) {
    Py_XDECREF(schema_capsule);
    Py_XDECREF(array_capsule);
    return PyErr_NoMemory();
  }
  return Py_BuildValue("NN", schema_capsule, array_capsule);
}

PyObject* parser_lend(PyObject* self, PyObject* args) {
  auto* me = reinterpret_cast<PyParser*>(self);
  int number, rows;
  if (!PyArg_ParseTuple(args, "ip", &number, &rows)) return nullptr;
  const Column* column = column_of(me, number);
  if (!column) return nullptr;
  if (rows && !column->sparse) Py_RETURN_NONE;
  return capsules([&](ArrowSchema* schema, ArrowArray* array) {
    (rows ? kineto::export_rows : kineto::export_values)(*me->parser, *column, schema, array);
  });
}

PyObject* parser_select(PyObject* self, PyObject* args) {
  auto* me = reinterpret_cast<PyParser*>(self);
  int number, target;
  Py_buffer rows;
  if (!PyArg_ParseTuple(args, "iy*C", &number, &rows, &target)) return nullptr;
  std::unique_ptr<Py_buffer, void (*)(Py_buffer*)> held(&rows, PyBuffer_Release);
  const Column* column = column_of(me, number);
  if (!column) return nullptr;
  const kineto::Owner owner = *me->parser;  // while it is read, it cannot be fed
  const Parser& parser = **me->parser;
  auto wanted = static_cast<kineto::Target>(target);
  if (rows.len % 8 || target > 127 || !kineto::selectable(column->kind, wanted)) {
    PyErr_SetString(PyExc_ValueError, "rows of 64 bits, and a type that the column can have, expected");
    return nullptr;
  }
  kineto::Selected selected;
  bool no_memory = false, ascending = false;
  Py_BEGIN_ALLOW_THREADS
  try {
    ascending = kineto::select(*column, parser.row, static_cast<const int64_t*>(rows.buf),
                               static_cast<size_t>(rows.len) / 8, wanted, selected);
  } catch (const std::bad_alloc&) {
    no_memory = true;
  }
  Py_END_ALLOW_THREADS
  if (no_memory) return PyErr_NoMemory();
  if (!ascending) {
    PyErr_SetString(PyExc_ValueError, "rows of the file in their order expected");
    return nullptr;
  }
  return capsules([&](ArrowSchema* schema, ArrowArray* array) {
    kineto::export_selected(selected, wanted, schema, array);
  });
}

struct Buffers {  // given back at the end
  static constexpr int kMost = 5;
  Py_buffer views[kMost];
  int held = 0;
  bool take(PyObject* const* objects, int count) {
    for (; held < count; held++)
      if (PyObject_GetBuffer(objects[held], &views[held], PyBUF_C_CONTIGUOUS)) return false;
    return true;
  }
  ~Buffers() {
    while (held) PyBuffer_Release(&views[--held]);
  }
};

PyObject* module_nest(PyObject*, PyObject* args) {
  PyObject* objects[3];
  if (!PyArg_ParseTuple(args, "OOO", &objects[0], &objects[1], &objects[2])) return nullptr;
  Buffers in;
  if (!in.take(objects, 3)) return nullptr;
  auto n = static_cast<size_t>(in.views[0].len) / 4;
  if (static_cast<size_t>(in.views[1].len) != n * 8 || static_cast<size_t>(in.views[2].len) != n * 8 || n > INT32_MAX) {
    PyErr_SetString(PyExc_ValueError, "threads (int32), starts and ends (int64) must be equally long");
    return nullptr;
  }
  PyObject* parent = PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(n * 4));
  PyObject* depth = PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(n * 4));
  bool no_memory = !parent || !depth;
  if (!no_memory) {
    auto* threads = static_cast<const int32_t*>(in.views[0].buf);
    auto *starts = static_cast<const int64_t*>(in.views[1].buf), *ends = static_cast<const int64_t*>(in.views[2].buf);
    auto* parents = reinterpret_cast<int32_t*>(PyByteArray_AsString(parent));
    auto* depths = reinterpret_cast<int32_t*>(PyByteArray_AsString(depth));
    Py_BEGIN_ALLOW_THREADS
    try {
      vector<kineto::Span> spans(n);
      for (size_t i = 0; i < n; i++) spans[i] = {threads[i], static_cast<uint32_t>(i), starts[i], ends[i]};
      kineto::nest(spans, parents, depths);
    } catch (const std::bad_alloc&) {
      no_memory = true;
    }
    Py_END_ALLOW_THREADS
  }
  if (no_memory) {
    Py_XDECREF(parent);
    Py_XDECREF(depth);
    return PyErr_NoMemory();
  }
  return Py_BuildValue("NN", parent, depth);
}

template <class Number>
PyObject* bytes_of(const vector<Number>& numbers) {
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(numbers.data()),
                                   static_cast<Py_ssize_t>(numbers.size() * sizeof(Number)));
}

PyObject* module_json_strings(PyObject*, PyObject* text) {
  Buffers in;
  if (!in.take(&text, 1)) return nullptr;
  kineto::JsonStrings strings;
  bool no_memory = false, whole = false;
  Py_BEGIN_ALLOW_THREADS
  try {
    whole = kineto::find_strings(static_cast<kineto::Ptr>(in.views[0].buf), static_cast<size_t>(in.views[0].len),
                                 strings);
  } catch (const std::bad_alloc&) {
    no_memory = true;
  }
  Py_END_ALLOW_THREADS
  if (no_memory) return PyErr_NoMemory();
  if (!whole) {
    PyErr_SetString(PyExc_ValueError, "a text of at most 2 GB that does not end within a string expected");
    return nullptr;
  }
  return Py_BuildValue("NNNNNNN", bytes_of(strings.cuts), bytes_of(strings.codes), bytes_of(strings.keys),
                       bytes_of(strings.firsts), bytes_of(strings.flags), bytes_of(strings.starts),
                       bytes_of(strings.ends));
}

// The text in views[number] and its cuts in the next one; false: they do not fit each other.
bool pieces_in(const Buffers& in, int number, kineto::Pieces& pieces) {
  const Py_buffer &text = in.views[number], &cuts = in.views[number + 1];
  pieces = {static_cast<kineto::Ptr>(text.buf), static_cast<const int32_t*>(cuts.buf),
            static_cast<size_t>(cuts.len) / 4 - 1};
  if (cuts.len < 4 || cuts.len % 4 || pieces.cuts[0] < 0 || pieces.cuts[pieces.count] > text.len) return false;
  return std::is_sorted(pieces.cuts, pieces.cuts + pieces.count + 1);
}

PyObject* module_join(PyObject*, PyObject* args) {
  PyObject* objects[5];
  if (!PyArg_ParseTuple(args, "OOOOO", &objects[0], &objects[1], &objects[2], &objects[3], &objects[4])) return nullptr;
  Buffers in;
  if (!in.take(objects, 5)) return nullptr;
  kineto::Pieces first, second;
  auto* order = static_cast<const int32_t*>(in.views[4].buf);
  auto count = static_cast<size_t>(in.views[4].len) / 4;
  int64_t size = -1;
  if (pieces_in(in, 0, first) && pieces_in(in, 2, second)) size = kineto::join_size(first, second, order, count);
  if (size < 0) {
    PyErr_SetString(PyExc_ValueError, "texts, where each of their pieces begins and the last ends (int32), and"
                                      " numbers of pieces (int32) expected");
    return nullptr;
  }
  PyObject* joined = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size));
  if (!joined) return nullptr;
  char* into = PyBytes_AsString(joined);
  Py_BEGIN_ALLOW_THREADS
  kineto::join(first, second, order, count, into);
  Py_END_ALLOW_THREADS
  return joined;
}

PyMethodDef parser_methods[] = {
    {"feed", parser_feed, METH_VARARGS, "feed(buffer, last=False) -> done: parse more bytes, without the GIL"},
    {"result", parser_result, METH_NOARGS, "result() -> dict: rows, header, issues"},
    {"lend", parser_lend, METH_VARARGS,
     "lend(column, rows) -> Arrow capsules of its values, or of their rows (None: every row)"},
    {"select", parser_select, METH_VARARGS,
     "select(column, rows, type) -> Arrow capsules of its values in these rows; type: l, i, g, u of Arrow, or c, codes"},
    {nullptr, nullptr, 0, nullptr}};
PyType_Slot parser_slots[] = {{Py_tp_init, reinterpret_cast<void*>(parser_init)},
                              {Py_tp_new, reinterpret_cast<void*>(PyType_GenericNew)},
                              {Py_tp_dealloc, reinterpret_cast<void*>(parser_dealloc)},
                              {Py_tp_methods, parser_methods},
                              {0, nullptr}};
PyType_Spec parser_spec = {"htk.base.native._kineto.Parser", sizeof(PyParser), 0, Py_TPFLAGS_DEFAULT, parser_slots};

PyObject* module_spill_beyond(PyObject*, PyObject* args) {
  PyObject* folder;
  Py_ssize_t budget, smallest = kineto::kLarge;
  if (!PyArg_ParseTuple(args, "O&n|n", PyUnicode_FSConverter, &folder, &budget, &smallest)) return nullptr;
  const bool good = budget >= 0 && smallest >= 0;
  if (good)
    kineto::spill_beyond(PyBytes_AsString(folder), static_cast<size_t>(budget), static_cast<size_t>(smallest));
  Py_DECREF(folder);
  if (good) Py_RETURN_NONE;
  PyErr_SetString(PyExc_ValueError, "sizes are not negative");
  return nullptr;
}

PyObject* module_held(PyObject*, PyObject*) {
  auto held = kineto::held();
  return Py_BuildValue("nn", static_cast<Py_ssize_t>(held.on_heap), static_cast<Py_ssize_t>(held.in_files));
}

PyObject* module_begin_writing(PyObject*, PyObject* args) {
  int file;
  if (!PyArg_ParseTuple(args, "i", &file)) return nullptr;
  Py_BEGIN_ALLOW_THREADS
  kineto::begin_writing(file);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

PyObject* module_array_memory(PyObject*, PyObject*) { return kineto::array_memory(); }

PyObject* module_set_array_memory(PyObject*, PyObject* args) {
  PyObject *api, *handler;
  if (!PyArg_ParseTuple(args, "OO", &api, &handler)) return nullptr;
  return kineto::set_array_memory(api, handler);
}

PyMethodDef module_methods[] = {
    {"spill_beyond", module_spill_beyond, METH_VARARGS,
     "spill_beyond(folder, bytes, smallest): large blocks beyond that many bytes lie in files in the folder"},
    {"held", module_held, METH_NOARGS, "held() -> bytes of large blocks on the heap, and in files"},
    {"begin_writing", module_begin_writing, METH_VARARGS,
     "begin_writing(file): ask the system to write what was changed of an open file, and do not wait for it"},
    {"array_memory", module_array_memory, METH_NOARGS, "array_memory() -> the handler of this memory, for NumPy"},
    {"set_array_memory", module_set_array_memory, METH_VARARGS,
     "set_array_memory(api, handler) -> the handler of NumPy's memory before"},
    {"nest", module_nest, METH_VARARGS, "nest(threads, starts, ends) -> parent rows, depths (int32 bytes)"},
    {"json_strings", module_json_strings, METH_O,
     "json_strings(text) -> cuts, codes, keys, first strings, flags, starts, ends of objects (int32, flags uint8)"},
    {"join", module_join, METH_VARARGS, "join(text, cuts, other text, its cuts, numbers of pieces) -> text"},
    {nullptr, nullptr, 0, nullptr}};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kineto", nullptr, -1, module_methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__kineto(void) {
  PyObject* created = PyModule_Create(&module);
  PyObject* type = PyType_FromSpec(&parser_spec);
  if (!created || !type || PyModule_AddObject(created, "Parser", type)) return nullptr;
  if (PyModule_AddStringConstant(created, "SOURCES", HTK_SOURCES)) return nullptr;
  return created;
}
