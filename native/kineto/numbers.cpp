#include "numbers.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <locale.h>
#include <stdlib.h>
#include <string>
#if defined(__APPLE__)
#include <xlocale.h>
#endif
#if defined(_WIN32)
#define locale_t _locale_t
#define newlocale(mask, name, base) _create_locale(LC_ALL, name)
#define strtod_l _strtod_l
#endif

namespace kineto {

using std::string;

bool decimal(Ptr p, Ptr end, int scale, int64_t& out, bool& lost) {
  bool negative = false, any = false, point = false;
  lost = false;
  if (p < end && (*p == '-' || *p == '+')) negative = *p++ == '-';
  char d[64];
  int n = 0, exponent = 0;
  for (; p < end; p++) {
    if (*p == '.' && !point) {
      point = true;
      continue;
    }
    if (!is_digit(*p)) break;
    any = true;
    if (n == 0 && *p == '0') {
      exponent -= point;
    } else if (n < 60) {
      d[n++] = static_cast<char>(*p - '0');
      exponent -= point;
    } else {
      lost |= *p != '0';
      exponent += !point;
    }
  }
  if (!any) return false;
  if (p < end && (*p == 'e' || *p == 'E')) {
    int x = 0;
    if (++p < end && *p == '+' && ++p < end && !is_digit(*p)) return false;
    auto r = std::from_chars(p, end, x);
    if (r.ptr != end || r.ptr == p || r.ec == std::errc::invalid_argument) return false;
    if (r.ec == std::errc::result_out_of_range) x = *p == '-' ? -100000000 : 100000000;
    exponent += std::clamp(x, -100000000, 100000000);
    p = end;
  }
  if (p != end) return false;
  if (n == 0) {
    out = 0;
    return true;
  }
  int keep = n + exponent + scale;  // digits left of the unit
  if (keep > 19) return false;
  unsigned __int128 v = 0;
  for (int i = 0; i < keep; i++) v = v * 10 + static_cast<unsigned>(i < n ? d[i] : 0);
  if (keep < n) {
    int first = keep < 0 ? 0 : d[keep];
    bool tail = lost || keep < 0;
    for (int i = std::max(keep + 1, 0); i < n; i++) tail |= d[i] != 0;
    if (first > 5 || (first == 5 && (tail || (v & 1)))) v++;
    lost = first || tail;
  }
  const unsigned __int128 most = (static_cast<unsigned __int128>(1) << 63) - (negative ? 0 : 1);
  if (v > most) return false;
  out = static_cast<int64_t>(negative ? 0 - static_cast<uint64_t>(v) : static_cast<uint64_t>(v));
  return true;
}

bool hexadecimal(Ptr p, Ptr end, int64_t& out) {
  if (end - p < 3 || p[0] != '0' || (p[1] | 0x20) != 'x') return false;
  auto r = std::from_chars(p + 2, end, out, 16);
  return p[2] != '-' && r.ec == std::errc() && r.ptr == end;
}

static double to_double(Ptr p, Ptr end, Ptr& stop) {  // JSON number text, rounded right, whatever the locale
  double out = 0;
#if defined(__cpp_lib_to_chars) && !defined(HTK_SCALAR)
  auto r = std::from_chars(p, end, out);
  stop = r.ec == std::errc::invalid_argument ? p : r.ptr;
  if (r.ec != std::errc::result_out_of_range) return out;
#endif
  static const locale_t c_locale = newlocale(LC_ALL_MASK, "C", nullptr);
  string text(p, end);
  char* after;
  out = strtod_l(text.c_str(), &after, c_locale);
  stop = p + (after - text.c_str());
  return out;
}

bool floating(Ptr p, Ptr end, double& out) {
  bool negative = p < end && *p == '-';
  if (p < end && (*p == '-' || *p == '+')) p++;
  string word(p, end);
  for (char& c : word) c = static_cast<char>(c | 0x20);
  if (word == "nan" || word == "inf" || word == "infinity") {
    out = word == "nan" ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  } else {
    bool point = p + 1 < end && *p == '.' && is_digit(p[1]), hex = p + 1 < end && (p[1] | 0x20) == 'x';
    if (p == end || hex || !(is_digit(*p) || point)) return false;
    Ptr stop;
    out = to_double(p, end, stop);
    if (stop != end) return false;
  }
  if (negative) out = -out;
  return true;
}

}  // namespace kineto
