// Which call encloses which.
#pragma once

#include <cstdint>
#include <vector>

namespace kineto {

struct Span {
  int32_t thread;
  uint32_t row;
  int64_t start, end;
  bool operator<(const Span& other) const;
};

// For each span the span of its thread that began last before it (or with it, and stands earlier) and
// has not ended when it begins; -1 without one. Rounding lets a child end after its parent: it is a child all the same.
// One without length may begin where its parent ends: whole microseconds make it look so. Sorts the spans; parent and
// depth are by row.
void nest(std::vector<Span>& spans, int32_t* parent, int32_t* depth);

}  // namespace kineto
