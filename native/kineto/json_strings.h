// Where the strings of JSON text stand, and what each of them is: for texts that are rewritten as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bytes.h"

namespace kineto {

enum StringFlag : uint8_t {
  kIsKey = 1,
  kIsOwnKey = 2,        // of an object of the outermost list, not of what is in it
  kBeforeUnkeyed = 4,   // an object ends behind it, and a number follows in the list that holds the object
};

struct JsonStrings {
  std::vector<int32_t> cuts;    // where what is outside of a string begins, what is inside of one, and so on in turns
  std::vector<int32_t> codes;   // equal strings, escapes as they stand, have equal codes
  std::vector<int32_t> keys;    // the code of the key that a string belongs to; -1 where an object ended in between
  std::vector<int32_t> firsts;  // by code: the first string of that code
  std::vector<uint8_t> flags;
  std::vector<int32_t> starts, ends;  // of the outermost objects
};

// False: the text ends within a string, or has too many bytes for 32 bits. Reads no byte outside of the text.
bool find_strings(Ptr text, size_t size, JsonStrings& into);

// Texts in an order: number n is what stands from cuts[n] to cuts[n + 1].
struct Pieces {
  Ptr text;
  const int32_t* cuts;
  size_t count;
};

// The pieces of two texts, put together in this order; numbers go on from the first text to the second. join_size says
// how many bytes they have: -1 where a number names none of them.
int64_t join_size(const Pieces& first, const Pieces& second, const int32_t* order, size_t count);
void join(const Pieces& first, const Pieces& second, const int32_t* order, size_t count, char* into);

}  // namespace kineto
