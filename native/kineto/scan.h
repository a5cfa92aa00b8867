// Where the tokens of JSON end. Nothing here reads further than 16 bytes past `end`, where the buffer holds zeros.
#pragma once

#include <cstdint>
#include <cstring>

#include "bytes.h"

namespace kineto {

struct NeedMore {};                          // the input ends inside a token: wait for the next piece
struct Broken { const char* why; Ptr at; };  // not JSON, or not an event

[[noreturn]] inline void fail(Ptr p, Ptr end, const char* why) {
  if (p >= end) throw NeedMore();
  throw Broken{why, p};
}

inline Ptr skip_spaces(Ptr p, Ptr end) {  // p at white space
  if (!is_space(p[1]) && p + 1 < end) return p + 1;
  for (;;) {
#ifdef USE_SSE2
    __m128i v = load16(p);
    auto text = static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_max_epu8(v, _mm_set1_epi8(0x21)), v)));
    if (text) {
      p += __builtin_ctz(text);
      if (p >= end) throw NeedMore();
      return p;
    }
    p += 16;
#else
    if (!is_space(*p)) return p;
    p++;
#endif
    if (p >= end) throw NeedMore();
  }
}
inline Ptr skip_space(Ptr p, Ptr end) { return is_space(*p) ? skip_spaces(p, end) : p; }

inline Ptr string_end(Ptr p, Ptr end) {  // p behind the opening quote; returns the closing one
  for (;;) {
#ifdef USE_SSE2
    __m128i v = load16(p);
    unsigned stop = equal16(v, '"') | equal16(v, '\\');
    if (stop) {
      p += __builtin_ctz(stop);
      if (p >= end) throw NeedMore();
      if (*p == '"') return p;
      p += 2;
      continue;
    }
    p += 16;
    if (p >= end) throw NeedMore();
#else
    if (p >= end) throw NeedMore();
    if (*p == '"') return p;
    p += *p == '\\' ? 2 : 1;
#endif
  }
}

Ptr nested_end(Ptr p, Ptr end);  // p at [ or {; counts brackets outside strings, however deep

inline Ptr value_end(Ptr p, Ptr end) {
  if (*p == '"') return string_end(p + 1, end) + 1;
  if (*p == '[' || *p == '{') return nested_end(p, end);
  Ptr begin = p;
  while (!ends_value(*p)) p++;
  if (p == begin || p >= end) fail(p, end, "value expected");
  if (!is_digit(*begin) && *begin != '-' && !is_letter(*begin)) throw Broken{"value expected", begin};
  return p;
}

inline bool is_null(Ptr p, Ptr after) { return after - p == 4 && !memcmp(p, "null", 4); }

}  // namespace kineto
