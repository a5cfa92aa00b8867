// Calls within calls, against a twin that compares all pairs.
#include <cstring>
#include <vector>

#include "../kineto/nesting.h"
#include "check.h"

using kineto::Span;

namespace {

constexpr size_t kMost = 64;  // spans: the twin is quadratic

bool encloses(const Span& outer, const Span& inner) {
  if (inner.end <= inner.start && outer.end == inner.start) return outer.end > outer.start;
  return outer.end > inner.start;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<Span> spans;
  bool wide = size && data[0] & 1;  // times of 64 bits, or of 4 with many ties
  size_t each = wide ? 17 : 2;
  for (size_t at = 1; at + each <= size && spans.size() < kMost; at += each) {
    int64_t start, end;
    if (wide) {
      memcpy(&start, data + at + 1, 8);
      memcpy(&end, data + at + 9, 8);
    } else {
      start = data[at + 1] & 15;
      end = start + (data[at + 1] >> 4) - 2;
    }
    spans.push_back({data[at] & 3, static_cast<uint32_t>(spans.size()), start, end});
  }
  std::vector<Span> rows = spans;
  std::vector<int32_t> parent(rows.size(), -9), depth(rows.size(), -9);
  kineto::nest(spans, parent.data(), depth.data());
  for (size_t k = 0; k < rows.size(); k++) {
    const Span* expected = nullptr;
    for (auto& other : rows)
      if (other.thread == rows[k].thread && other < rows[k] && encloses(other, rows[k]))
        if (!expected || *expected < other) expected = &other;
    CHECK(parent[k] == (expected ? static_cast<int32_t>(expected->row) : -1));
    CHECK(depth[k] == (expected ? depth[expected->row] + 1 : 0));
  }
  return 0;
}
