// The keys of one scope (an event, or its args) and their columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bytes.h"

namespace kineto {

// A perfect hash of the keys, and for each key the key that followed it last time.
struct Keys {
  struct Key {
    std::string text;  // with the closing quote, and padding for wide loads
    int column;
    size_t size;
  };
  std::vector<Key> keys;
  uint8_t slots[1024], next[256];
  uint64_t seed = 0;
  static constexpr uint8_t kNone = 255, kFirst = 254;

  // Find a seed under which no two keys share a slot; false: keys repeat, or there are too many.
  bool build();

  uint8_t find(Ptr p, size_t n) const {
    uint8_t i = slots[slot(p, n)];
    return i != kNone && keys[i].size == n && same(p, keys[i].text.data(), n) ? i : kNone;
  }
  uint8_t find_escaped(Ptr p, size_t n) const;  // a key may be spelled with escapes

 private:
  uint32_t slot(Ptr p, size_t n) const {
    uint64_t a = n >= 8 ? load8(p) : n ? low_bytes(load8(p), n) : 0, b = n > 8 ? load8(p + n - 8) : n;
    return static_cast<uint32_t>(((a ^ (b << 29 | b >> 35)) + n) * seed >> 54);
  }
};

}  // namespace kineto
