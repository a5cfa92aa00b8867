#include "text.h"

#include <charconv>
#include <cstdint>
#include <cstring>

namespace kineto {

using std::string;

static void append_utf8(string& out, uint32_t c) {
  auto tail = [&](int shift) { out += static_cast<char>(0x80 | (c >> shift & 63)); };
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6), tail(0);
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12), tail(6), tail(0);
  } else {
    out += static_cast<char>(0xF0 | c >> 18), tail(12), tail(6), tail(0);
  }
}

static bool hex4(Ptr p, Ptr end, uint32_t& v) {
  return end - p >= 4 && std::from_chars(p, p + 4, v, 16).ptr == p + 4;
}

string unescape(Ptr p, Ptr end) {
  string out;
  out.reserve(static_cast<size_t>(end - p));
  while (p < end) {
    if (*p != '\\' || p + 1 >= end) {
      out += *p++;
      continue;
    }
    char c = p[1];
    p += 2;
    static const char known[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    uint32_t v = 0, low = 0;
    if (Ptr k = c ? strchr(known, c) : nullptr) {
      out += meant[k - known];
    } else if (c == 'u' && hex4(p, end, v)) {
      p += 4;
      bool high = v >= 0xD800 && v < 0xDC00, pair = end - p >= 6 && p[0] == '\\' && p[1] == 'u';
      if (high && pair && hex4(p + 2, end, low) && low >= 0xDC00 && low < 0xE000) {
        v = 0x10000 + ((v - 0xD800) << 10) + (low - 0xDC00);
        p += 6;
      } else if (v >= 0xD800 && v < 0xE000) {
        v = 0xFFFD;
      }
      append_utf8(out, v);
    } else {
      out += '\\';
      out += c;
    }
  }
  return out;
}

string compact(Ptr p, Ptr end) {
  string out;
  bool quoted = false;
  for (; p < end; p++) {
    if (quoted) {
      out += *p;
      if (*p == '\\' && p + 1 < end) out += *++p;
      else if (*p == '"') quoted = false;
    } else if (!is_space(*p)) {
      out += *p;
      quoted = *p == '"';
    }
  }
  return out;
}

// The bytes of the longest prefix of one UTF-8 character at i, and whether it is whole.
static size_t utf8_prefix(const string& s, size_t i, bool& whole) {
  auto byte = [&](size_t k) { return k < s.size() ? static_cast<unsigned char>(s[k]) : 0u; };
  unsigned c = byte(i), lowest = 0x80, highest = 0xBF;
  size_t need = c < 0x80 ? 1 : c >= 0xC2 && c < 0xE0 ? 2 : c >= 0xE0 && c < 0xF0 ? 3 : c >= 0xF0 && c < 0xF5 ? 4 : 0;
  if (c == 0xE0) lowest = 0xA0;
  if (c == 0xED) highest = 0x9F;
  if (c == 0xF0) lowest = 0x90;
  if (c == 0xF4) highest = 0x8F;
  size_t n = 1;
  for (; n < need && byte(i + n) >= lowest && byte(i + n) <= highest; n++) lowest = 0x80, highest = 0xBF;
  whole = n == need;
  return n;
}

void repair_utf8(string& s) {
  size_t i = 0;
  while (i < s.size() && static_cast<unsigned char>(s[i]) < 0x80) i++;
  if (i == s.size()) return;
  string out(s, 0, i);
  while (i < s.size()) {
    bool whole;
    size_t n = utf8_prefix(s, i, whole);
    if (whole) out.append(s, i, n);
    else out += "\xEF\xBF\xBD";
    i += n;
  }
  s.swap(out);
}

}  // namespace kineto
