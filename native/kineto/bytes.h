// Words of text: wide loads, comparison, hashing, classes of characters.
//
// Every function may read up to 16 bytes past the text it is given: the parser's buffer ends in zeros, and texts that
// are kept have room behind them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__SSE2__) && !defined(HTK_SCALAR)
#include <emmintrin.h>
#define USE_SSE2 1
#endif

namespace kineto {

using Ptr = const char*;

inline uint64_t load8(Ptr p) {
  uint64_t v;
  memcpy(&v, p, 8);
  return v;
}
inline uint64_t low_bytes(uint64_t v, size_t n) {  // the first n (1..8) bytes in memory
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  return v >> (64 - 8 * n);
#else
  return v & (~0ull >> (64 - 8 * n));
#endif
}
inline uint64_t mix(uint64_t a, uint64_t b) {
  unsigned __int128 m = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(m) ^ static_cast<uint64_t>(m >> 64);
}
inline uint64_t hash_text(Ptr p, size_t n) {  // may read 16 bytes past the text
  const uint64_t k0 = 0xa0761d6478bd642full, k1 = 0xe7037ed1a0b428dbull;
  uint64_t h = n * k0, a = 0, b = 0;
  size_t i = 0;
  for (; i + 16 <= n; i += 16) h = mix(load8(p + i) ^ k1 ^ h, load8(p + i + 8) ^ k0);
  size_t rest = n - i;
  if (rest >= 8) {
    a = load8(p + i);
    if (rest > 8) b = low_bytes(load8(p + i + 8), rest - 8);
  } else if (rest) {
    a = low_bytes(load8(p + i), rest);
  }
  return mix(a ^ k1 ^ h, b ^ k0 ^ n);
}

#ifdef USE_SSE2
inline __m128i load16(Ptr p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
inline unsigned equal16(__m128i v, char c) {
  return static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(v, _mm_set1_epi8(c))));
}
#endif

inline bool same(Ptr a, Ptr b, size_t n) {  // both may be read 16 bytes past the end
#ifdef USE_SSE2
  size_t i = 0;
  for (; i + 16 <= n; i += 16)
    if (_mm_movemask_epi8(_mm_cmpeq_epi8(load16(a + i), load16(b + i))) != 0xFFFF) return false;
  if (i == n) return true;
  unsigned equal = static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(load16(a + i), load16(b + i))));
  return (~equal & ((1u << (n - i)) - 1)) == 0;
#else
  return memcmp(a, b, n) == 0;
#endif
}

inline bool is_digit(char c) { return static_cast<unsigned char>(c - '0') < 10; }
inline bool is_letter(char c) { return static_cast<unsigned char>((c | 0x20) - 'a') < 26; }
inline bool is_space(char c) { return static_cast<unsigned char>(c) <= 0x20; }
inline bool ends_value(char c) { return c == ',' || c == '}' || c == ']' || is_space(c); }

inline uint64_t digits(Ptr& p) {  // moves p behind the digits; overflow is the caller's concern
  uint64_t x = 0;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  uint64_t v = load8(p);  // eight digits at once
  const uint64_t high = 0xF0F0F0F0F0F0F0F0ull;
  if (((v & high) | (((v + 0x0606060606060606ull) & high) >> 4)) == 0x3333333333333333ull) {
    v = (v & 0x0F0F0F0F0F0F0F0Full) * 2561 >> 8;
    v = (v & 0x00FF00FF00FF00FFull) * 6553601 >> 16;
    x = (v & 0x0000FFFF0000FFFFull) * 42949672960001ull >> 32;
    p += 8;
  }
#endif
  for (; is_digit(*p); p++) x = x * 10 + static_cast<uint64_t>(*p - '0');
  return x;
}

}  // namespace kineto
