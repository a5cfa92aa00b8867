#include "scan.h"

namespace kineto {

Ptr nested_end(Ptr p, Ptr end) {
  int64_t depth = 0;
  for (;;) {
#ifdef USE_SSE2
    __m128i v = load16(p), either = _mm_or_si128(v, _mm_set1_epi8(0x20));  // '[' | 0x20 == '{'
    unsigned quotes = equal16(v, '"'), opens = equal16(either, '{'), closes = equal16(either, '}');
    if (!quotes && __builtin_popcount(closes) < depth) {
      depth += __builtin_popcount(opens) - __builtin_popcount(closes);
      p += 16;
      if (p >= end) throw NeedMore();
      continue;
    }
    Ptr next = p + 16;
    for (unsigned all = quotes | opens | closes; all; all &= all - 1) {
      int i = __builtin_ctz(all);
      if (opens >> i & 1) {
        depth++;
      } else if (quotes >> i & 1) {
        next = string_end(p + i + 1, end) + 1;
        break;
      } else if (--depth <= 0) {
        if (p + i >= end) throw NeedMore();
        return p + i + 1;
      }
    }
    p = next;
    if (p >= end) throw NeedMore();
#else
    if (p >= end) throw NeedMore();
    char c = *p++;
    if (c == '"') p = string_end(p, end) + 1;
    else if (c == '[' || c == '{') depth++;
    else if ((c == ']' || c == '}') && --depth <= 0) return p;
#endif
  }
}

}  // namespace kineto
