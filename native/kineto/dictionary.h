// The distinct texts of a column, and a code for each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bytes.h"
#include "storage.h"

namespace kineto {

struct Guess {  // the text seen last in a like place
  Ptr raw = nullptr;
  uint32_t size = 0;
  int32_t code = 0;
};

// Looked up by their raw JSON bytes; two spellings of one text share its code.
struct Dictionary {
  struct Slot {
    uint64_t hash;
    Ptr raw;
    uint32_t size;
    int32_t code;
  };
  std::vector<Slot> slots = std::vector<Slot>(64, Slot{0, nullptr, 0, 0});
  std::vector<std::string_view> values;
  std::vector<Guess> guesses;  // by the code of the event's name
  std::unordered_map<std::string_view, int32_t> codes;
  Arena arena;
  size_t used = 0, bytes = 0;

  // The slot of a raw JSON value; a string loses its quotes and escapes if the column is of text.
  const Slot& get(Ptr raw, uint32_t size, bool is_text);

 private:
  int32_t code_of(Ptr raw, uint32_t size, bool is_text);
  void grow();
};

}  // namespace kineto
