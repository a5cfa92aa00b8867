// Some rows of a column, copied into buffers of their own.
#pragma once

#include <cstddef>
#include <cstdint>

#include "column.h"

namespace kineto {

enum Target : char { kInt64 = 'l', kInt32 = 'i', kFloat64 = 'g', kCodes = 'c', kTexts = 'u' };

// Rows without a value hold 0, in codes -1; `valid` is their bitmap where there are any and the target tells them apart.
struct Selected {
  char* values = nullptr;
  uint8_t* valid = nullptr;
  size_t length = 0, nulls = 0;
  // Of texts: those that occur, in the order of their codes.
  int32_t* offsets = nullptr;
  char* text = nullptr;
  size_t texts = 0;

  Selected() = default;
  Selected(const Selected&) = delete;
  Selected& operator=(const Selected&) = delete;
  ~Selected();
};

// Whether a column of this kind can be copied so.
bool selectable(Kind kind, Target target);

// The wanted rows ascend and are below `all_rows`; false: they do not.
bool select(const Column& column, size_t all_rows, const int64_t* wanted, size_t n, Target target, Selected& out);

}  // namespace kineto
