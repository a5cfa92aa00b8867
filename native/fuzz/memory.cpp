// Blocks of memory on the heap, in files, grown, zeroed and released, with a budget that changes and disks that are
// full or gone: they hold what was written, and at the end nothing is held.
#include <sys/resource.h>
#include <csignal>
#include <cstring>
#include <vector>

#include "../kineto/blocks.h"
#include "check.h"

namespace {

constexpr size_t kMost = 24;  // blocks at a time
constexpr size_t kSizes[] = {0, 1, 4095, 4096, 4097, 20000, 70000, 262144, 300001};
constexpr size_t kCount = sizeof kSizes / sizeof *kSizes;

struct Block {
  unsigned char* data;
  size_t size;
  unsigned char mark;  // what it was filled with
};

void fill(Block& block, unsigned char mark) {
  block.mark = mark;
  if (block.size) memset(block.data, mark, block.size);
}

void check(const Block& block, size_t size) {  // the ends of each page, or thereabouts
  for (size_t k = 0; k < size; k += 1021) CHECK(block.data[k] == block.mark);
  if (size) CHECK(block.data[size - 1] == block.mark);
}

void limit_files(size_t bytes) {  // a longer one is refused, as by a full disk
  rlimit limit{bytes, RLIM_INFINITY};
  setrlimit(RLIMIT_FSIZE, &limit);
}

void settle(const uint8_t* at) {
  static const char* const folders[] = {"/dev/shm", "/dev/shm", "/nowhere", "/dev/null"};
  static const size_t budgets[] = {0, 1 << 20, 4 << 20, SIZE_MAX}, limits[] = {RLIM_INFINITY, 1 << 18, 5000, 0};
  kineto::spill_beyond(folders[at[0] & 3], budgets[at[0] >> 2 & 3], kSizes[at[1] % kCount]);
  limit_files(limits[at[0] >> 4 & 3]);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  signal(SIGXFSZ, SIG_IGN);
  std::vector<Block> blocks;
  const kineto::Held at_first = kineto::held();
  for (size_t at = 0; at + 3 <= size && at < 300; at += 3) {
    const size_t wanted = kSizes[data[at + 1] % kCount], chosen = blocks.empty() ? 0 : data[at + 2] % blocks.size();
    const int what = data[at] % 8;
    if (what == 0) {
      settle(data + at + 1);
    } else if (what < 4 && blocks.size() < kMost) {
      Block block{static_cast<unsigned char*>(kineto::allocate(wanted, what == 3)), wanted, 0};
      CHECK(block.data);
      if (what == 3) check(block, wanted);
      fill(block, static_cast<unsigned char>(at + 1));
      blocks.push_back(block);
    } else if (what < 6 && !blocks.empty()) {
      Block& block = blocks[chosen];
      check(block, block.size);
      block.data = static_cast<unsigned char*>(kineto::resize(block.data, wanted));
      CHECK(block.data);
      check(block, block.size < wanted ? block.size : wanted);
      block.size = wanted;
      fill(block, static_cast<unsigned char>(at + 2));
    } else if (!blocks.empty()) {
      check(blocks[chosen], blocks[chosen].size);
      kineto::release(blocks[chosen].data);
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(chosen));
    }
  }
  for (auto& block : blocks) {
    check(block, block.size);
    kineto::release(block.data);
  }
  limit_files(RLIM_INFINITY);
  kineto::spill_beyond("", SIZE_MAX, kineto::kLarge);
  CHECK(kineto::held().on_heap == at_first.on_heap && kineto::held().in_files == at_first.in_files);
  return 0;
}
