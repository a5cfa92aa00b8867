// What every target shares: bytes to choose from, and an assertion that names its line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#define CHECK(holds)                                                \
  do {                                                              \
    if (!(holds)) {                                                 \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #holds);   \
      abort();                                                      \
    }                                                               \
  } while (0)

// Numbers that follow from the input: a small generator, so that a piece's size needs no bytes of it.
struct Dice {
  uint64_t state;
  uint64_t next() {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
  }
  size_t below(size_t limit) { return next() % limit; }
};

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
