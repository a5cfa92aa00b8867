// Blocks of memory: on the heap, and large ones beyond a budget in files without names, whose pages the system may take
// back.
#pragma once

#include <cstddef>

namespace kineto {

constexpr size_t kLarge = size_t(1) << 18;  // a smaller block is not worth a file

// From now on blocks of that size or more lie in files in this folder once large ones on the heap take the budget
// together.
void spill_beyond(const char* folder, size_t budget, size_t smallest);

// As malloc, calloc, realloc and free do. What is zeroed is that only where it is asked for.
void* allocate(size_t size, bool zeroed = false);
void* resize(void* block, size_t size);
void release(void* block);

struct Held {  // by large blocks, in bytes
  size_t on_heap, in_files;
};
Held held();

// Ask the system to write what was changed of a file, and do not wait for it: until then it holds memory.
void begin_writing(int file);

}  // namespace kineto
