#include "nesting.h"

#include <algorithm>

namespace kineto {

bool Span::operator<(const Span& other) const {
  if (thread != other.thread) return thread < other.thread;
  if (start != other.start) return start < other.start;
  return row < other.row;
}

void nest(std::vector<Span>& spans, int32_t* parent, int32_t* depth) {
  if (!std::is_sorted(spans.begin(), spans.end())) std::sort(spans.begin(), spans.end());
  std::vector<const Span*> open;
  for (const Span& span : spans) {
    auto closed = [&span](const Span& other) {
      if (span.end <= span.start && other.end == span.start) return other.end <= other.start;
      return other.end <= span.start;
    };
    while (!open.empty() && (open.back()->thread != span.thread || closed(*open.back()))) open.pop_back();
    parent[span.row] = open.empty() ? -1 : static_cast<int32_t>(open.back()->row);
    depth[span.row] = open.empty() ? 0 : depth[open.back()->row] + 1;
    open.push_back(&span);
  }
}

}  // namespace kineto
