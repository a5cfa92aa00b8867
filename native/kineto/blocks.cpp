#include "blocks.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>

#ifdef __linux__
#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace kineto {

#ifdef __linux__

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kMostOpen = 128;  // files: a process may open some thousand, and others need them
constexpr size_t kUnwritten = size_t(256) << 20;  // bytes

struct File {
  int number;  // -1: closed, and cannot grow
  size_t size;
};

struct Blocks {
  std::mutex lock;
  std::string folder;
  std::unordered_map<void*, File> files;
  size_t open = 0;  // of them
  size_t unwritten = 0;  // bytes that were added to files since the system was asked to write them
  std::atomic<size_t> budget{SIZE_MAX}, smallest{kLarge}, on_heap{0}, in_files{0};
};

Blocks& blocks() {
  static auto* all = new Blocks;  // never destroyed: arrays may be freed after all else
  return *all;
}

size_t whole_pages(size_t size) { return (size + kPage - 1) & ~(kPage - 1); }

void count_heap(void* block, bool added) {
  size_t size = block ? malloc_usable_size(block) : 0;
  if (size < kLarge) return;
  if (added) blocks().on_heap += size;
  else blocks().on_heap -= size;
}

bool fits_heap(size_t size) {
  auto& all = blocks();
  size_t budget = all.budget, used = all.on_heap;
  return size < all.smallest || budget == SIZE_MAX || (used <= budget && size <= budget - used);
}

// Space is taken at once: a disk that is full says so here, and not with a signal when a page is written.
bool take_space(int file, size_t size) { return fallocate(file, 0, 0, static_cast<off_t>(size)) == 0; }

// Pages that were changed and not written hold memory as those of the heap do, and the system waits half a minute, or
// until they fill a tenth of it. Needs the lock.
void count_unwritten(size_t added) {
  auto& all = blocks();
  all.unwritten += added;
  if (all.unwritten < kUnwritten) return;
  all.unwritten = 0;
  for (const auto& entry : all.files)
    if (entry.second.number >= 0) begin_writing(entry.second.number);
}

// A block in a file of its own; nullptr where the disk or its file system does not allow it.
void* in_file(size_t size) {
  auto& all = blocks();
  std::string folder;
  {
    std::lock_guard<std::mutex> held(all.lock);
    folder = all.folder;
  }
  size = whole_pages(size);
  int number = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (number < 0) return nullptr;
  void* block = take_space(number, size) ? mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, number, 0) : MAP_FAILED;
  if (block == MAP_FAILED) {
    close(number);
    return nullptr;
  }
  std::lock_guard<std::mutex> held(all.lock);
  if (all.open == kMostOpen) {  // what is mapped stays
    close(number);
    number = -1;
  } else {
    ++all.open;
  }
  all.files.emplace(block, File{number, size});
  all.in_files += size;
  count_unwritten(size);
  return block;
}

// The file of a block; none: it lies on the heap.
bool file_of(void* block, File& file, bool forget) {
  auto& all = blocks();
  if (reinterpret_cast<uintptr_t>(block) % kPage || !all.in_files) return false;
  std::lock_guard<std::mutex> held(all.lock);
  auto entry = all.files.find(block);
  if (entry == all.files.end()) return false;
  file = entry->second;
  if (forget) all.files.erase(entry);
  return true;
}

void* longer_file(void* block, File file, size_t size) {
  auto& all = blocks();
  size = whole_pages(size);
  if (size <= file.size) return block;
  if (file.number < 0 || !take_space(file.number, size)) return nullptr;
  std::lock_guard<std::mutex> held(all.lock);
  void* moved = mremap(block, file.size, size, MREMAP_MAYMOVE);
  if (moved == MAP_FAILED) return nullptr;
  all.files.erase(block);
  all.files.emplace(moved, File{file.number, size});
  all.in_files += size - file.size;
  count_unwritten(size - file.size);
  return moved;
}

}  // namespace

void spill_beyond(const char* folder, size_t budget, size_t smallest) {
  auto& all = blocks();
  std::lock_guard<std::mutex> held(all.lock);
  all.folder = folder;
  all.budget = budget;
  all.smallest = smallest;
}

void* allocate(size_t size, bool zeroed) {
  void* block = fits_heap(size) ? nullptr : in_file(size);
  if (block) return block;
  block = zeroed ? calloc(1, size ? size : 1) : malloc(size ? size : 1);
  count_heap(block, true);
  return block;
}

void* resize(void* block, size_t size) {
  if (!block) return allocate(size);
  File file{};
  bool filed = file_of(block, file, false);
  if (filed)
    if (void* longer = longer_file(block, file, size)) return longer;
  size_t had = filed ? file.size : malloc_usable_size(block);
  if (!filed && (size <= had || fits_heap(size - had))) {
    count_heap(block, false);
    void* moved = realloc(block, size ? size : 1);
    count_heap(moved ? moved : block, true);
    return moved;
  }
  void* moved = allocate(size);
  if (!moved) return nullptr;
  memcpy(moved, block, had < size ? had : size);
  release(block);
  return moved;
}

void release(void* block) {
  File file{};
  if (!file_of(block, file, true)) {
    count_heap(block, false);
    free(block);
    return;
  }
  auto& all = blocks();
  munmap(block, file.size);
  all.in_files -= file.size;
  if (file.number < 0) return;
  close(file.number);
  std::lock_guard<std::mutex> held(all.lock);
  --all.open;
}

Held held() { return {blocks().on_heap, blocks().in_files}; }

void begin_writing(int file) { sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WRITE); }

#else

void spill_beyond(const char*, size_t, size_t) {}
void* allocate(size_t size, bool zeroed) { return zeroed ? calloc(1, size ? size : 1) : malloc(size ? size : 1); }
void* resize(void* block, size_t size) { return realloc(block, size ? size : 1); }
void release(void* block) { free(block); }
Held held() { return {0, 0}; }
void begin_writing(int) {}

#endif

}  // namespace kineto
