#include "array_memory.h"

#include <cstddef>
#include <cstdint>

#include "blocks.h"

namespace kineto {

namespace {

// As in NumPy's ndarraytypes.h, since 1.22.
struct Allocator {
  void* context;
  void* (*malloc)(void*, size_t);
  void* (*calloc)(void*, size_t, size_t);
  void* (*realloc)(void*, void*, size_t);
  void (*free)(void*, void*, size_t);
};
struct Handler {
  char name[127];
  uint8_t version;
  Allocator allocator;
};
constexpr size_t kSetHandler = 304;  // of NumPy's functions: PyDataMem_SetHandler
constexpr char kCapsule[] = "mem_handler";

void* new_array(void*, size_t size) { return allocate(size); }
void* new_zeros(void*, size_t count, size_t size) {
  if (size && count > SIZE_MAX / size) return nullptr;
  return allocate(count * size, true);
}
void* resize_array(void*, void* block, size_t size) { return resize(block, size); }
void free_array(void*, void* block, size_t) { release(block); }

Handler handler = {"htk_blocks", 1, {nullptr, new_array, new_zeros, resize_array, free_array}};

}  // namespace

PyObject* array_memory() { return PyCapsule_New(&handler, kCapsule, nullptr); }

PyObject* set_array_memory(PyObject* api, PyObject* wanted) {
  auto** functions = static_cast<void**>(PyCapsule_GetPointer(api, nullptr));
  if (!functions || !PyCapsule_GetPointer(wanted, kCapsule)) return nullptr;
  auto set = reinterpret_cast<PyObject* (*)(PyObject*)>(functions[kSetHandler]);
  return set(wanted);
}

}  // namespace kineto
