// Kineto's JSON to columns in one pass: bytes in, in pieces of any size; Arrow columns out (C Data Interface).
//
// The columns come from parsers/kineto/columns.py; nothing here knows a column by name except "name" (whose value
// predicts the texts that follow), "ph" (every event has one) and "args". An event is parsed straight into the
// columns; when it proves cut or broken, an exception rolls its row back and parsing resumes at the next event.
//
// Beside the parser stands nest(), which finds the enclosing call of every call of a thread.
#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <locale.h>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>
#if defined(__APPLE__)
#include <xlocale.h>
#endif
#if defined(__SSE2__) && !defined(HTK_SCALAR)
#include <emmintrin.h>
#define USE_SSE2 1
#endif

using std::string;
using std::string_view;
using std::vector;
using Ptr = const char*;

// Wide loads may look this far past the end of the input; the bytes there are zero.
constexpr size_t kPadding = 64;
// A longer event, or header entry, is taken for damage: it bounds the memory that a missing quote can cost.
constexpr size_t kLongest = size_t(64) << 20;
// Input is parsed in steps that stay in the cache together with their copy.
constexpr size_t kStep = size_t(1) << 18;
// Only so many issues are kept as text; all are counted.
constexpr size_t kKeptIssues = 1000;
// A file in which this many events run on without end is given up.
constexpr int kMostRunaways = 20;

// ---- Arrow C Data Interface (arrow.apache.org/docs/format/CDataInterface.html) ---------------------------------

struct ArrowSchema {
  const char *format, *name, *metadata;
  int64_t flags, n_children;
  ArrowSchema **children, *dictionary;
  void (*release)(ArrowSchema*);
  void* private_data;
};
struct ArrowArray {
  int64_t length, null_count, offset, n_buffers, n_children;
  const void** buffers;
  ArrowArray **children, *dictionary;
  void (*release)(ArrowArray*);
  void* private_data;
};

// ---- containers ------------------------------------------------------------------------------------------------

// A vector of plain values grown by realloc: large blocks move by remapping, not by copying.
template <class T>
struct Vec {
  T* at = nullptr;
  size_t size = 0, room = 0;
  Vec() = default;
  Vec(const Vec&) = delete;
  Vec& operator=(const Vec&) = delete;
  Vec(Vec&& other) noexcept : at(other.at), size(other.size), room(other.room) {
    other.at = nullptr;
    other.size = other.room = 0;
  }
  ~Vec() { free(at); }
  void reserve(size_t wanted) {
    if (wanted <= room) return;
    T* grown = static_cast<T*>(realloc(at, wanted * sizeof(T)));
    if (!grown) throw std::bad_alloc();
    at = grown;
    room = wanted;
  }
  inline void push(T value) {
    if (size == room) reserve(room ? room * 2 : 16);
    at[size++] = value;
  }
};

// Text that never moves, with room behind each piece for a 16-byte load.
struct Arena {
  vector<std::unique_ptr<char[]>> blocks;
  char* free_at = nullptr;
  size_t left = 0;
  Ptr put(Ptr text, size_t size) {
    size_t need = size + 16;
    if (need > left) {
      left = std::max(need, size_t(1) << 16);
      blocks.emplace_back(new char[left]);
      free_at = blocks.back().get();
    }
    char* kept = free_at;
    if (size) memcpy(kept, text, size);
    free_at += size;
    left -= size;
    return kept;
  }
};

struct NeedMore {};                            // the input ends inside a token: wait for the next piece
struct Broken { const char* why; Ptr at; };    // not JSON, or not an event

// ---- words and bits --------------------------------------------------------------------------------------------

static inline uint64_t load8(Ptr p) {
  uint64_t v;
  memcpy(&v, p, 8);
  return v;
}
static inline uint64_t low_bytes(uint64_t v, size_t n) {  // the first n (1..8) bytes in memory
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  return v >> (64 - 8 * n);
#else
  return v & (~0ull >> (64 - 8 * n));
#endif
}
static inline uint64_t mix(uint64_t a, uint64_t b) {
  unsigned __int128 m = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(m) ^ static_cast<uint64_t>(m >> 64);
}
static inline uint64_t hash_text(Ptr p, size_t n) {  // may read 16 bytes past the text
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
static inline __m128i load16(Ptr p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
static inline unsigned equal16(__m128i v, char c) {
  return static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(v, _mm_set1_epi8(c))));
}
#endif

static inline bool same(Ptr a, Ptr b, size_t n) {  // both may be read 16 bytes past the end
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

static inline bool is_digit(char c) { return static_cast<unsigned char>(c - '0') < 10; }
static inline bool is_letter(char c) { return static_cast<unsigned char>((c | 0x20) - 'a') < 26; }
static inline bool is_space(char c) { return static_cast<unsigned char>(c) <= 0x20; }
static inline bool ends_value(char c) { return c == ',' || c == '}' || c == ']' || is_space(c); }

static inline uint64_t digits(Ptr& p) {  // moves p behind the digits; overflow is the caller's concern
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

// ---- text (run once per distinct text) -------------------------------------------------------------------------

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

// The inside of a JSON string. An escape JSON does not know (a Windows path) stays as it stands.
static string unescape(Ptr p, Ptr end) {
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

static string compact(Ptr p, Ptr end) {  // JSON without the white space outside its strings
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

static void repair_utf8(string& s) {  // what is no UTF-8 becomes U+FFFD, as Python's errors="replace" does it
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

// ---- numbers that the quick paths leave ------------------------------------------------------------------------

// Decimal text to an integer of 10^-scale units: exact, half to even where digits are lost (lost says so).
static bool decimal(Ptr p, Ptr end, int scale, int64_t& out, bool& lost) {
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

static bool hexadecimal(Ptr p, Ptr end, int64_t& out) {  // "0x1f": stream handles of ROCm
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

static bool floating(Ptr p, Ptr end, double& out) {
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

// ---- columns ---------------------------------------------------------------------------------------------------

enum Kind : uint8_t { kInt, kFloat, kNanos, kText, kJson };

struct Guess {  // the text seen last in a like place
  Ptr raw = nullptr;
  uint32_t size = 0;
  int32_t code = 0;
};

// Distinct texts. Looked up by their raw JSON bytes; two spellings of one text share its code.
struct Dictionary {
  struct Slot {
    uint64_t hash;
    Ptr raw;
    uint32_t size;
    int32_t code;
  };
  vector<Slot> slots = vector<Slot>(64, Slot{0, nullptr, 0, 0});
  vector<string_view> values;
  vector<Guess> guesses;  // by the code of the event's name
  std::unordered_map<string_view, int32_t> codes;
  Arena arena;
  size_t used = 0, bytes = 0;

  const Slot& get(Ptr p, uint32_t n, bool text) {
    uint64_t h = hash_text(p, n);
    size_t mask = slots.size() - 1, i = h & mask;
    for (; slots[i].raw; i = (i + 1) & mask)
      if (slots[i].hash == h && slots[i].size == n && same(p, slots[i].raw, n)) return slots[i];
    int32_t code = code_of(p, n, text);
    Slot fresh{h, arena.put(p, n), n, code};
    slots[i] = fresh;
    if (++used * 2 <= slots.size()) return slots[i];
    grow();
    mask = slots.size() - 1;
    for (i = h & mask; slots[i].raw != fresh.raw; i = (i + 1) & mask) {}
    return slots[i];
  }
  int32_t code_of(Ptr p, uint32_t n, bool text) {
    bool quoted = text && *p == '"';
    string v = !quoted ? compact(p, p + n) : memchr(p, '\\', n) ? unescape(p + 1, p + n - 1) : string(p + 1, n - 2);
    repair_utf8(v);
    auto found = codes.find(v);
    if (found != codes.end()) return found->second;
    string_view kept(arena.put(v.data(), v.size()), v.size());
    auto code = static_cast<int32_t>(values.size());
    values.push_back(kept);
    bytes += v.size();
    codes.emplace(kept, code);
    return code;
  }
  void grow() {
    vector<Slot> wider(slots.size() * 2, Slot{0, nullptr, 0, 0});
    size_t mask = wider.size() - 1;
    for (auto& slot : slots) {
      if (!slot.raw) continue;
      size_t k = slot.hash & mask;
      while (wider[k].raw) k = (k + 1) & mask;
      wider[k] = slot;
    }
    slots.swap(wider);
  }
};

// The values that are there, in row order; `rows` is kept only once a row has gone without.
struct Column {
  Kind kind;
  bool of_args;
  Vec<int64_t> numbers;  // doubles by their bits
  Vec<int32_t> codes;
  Vec<uint32_t> rows;
  size_t size = 0;
  bool sparse = false;
  std::unique_ptr<Dictionary> dictionary;
  uint32_t guess_mask = 0;

  Column(Kind k, bool args, uint32_t guesses) : kind(k), of_args(args) {
    if (k < kText) return;
    dictionary.reset(new Dictionary);
    dictionary->guesses.resize(guesses);
    guess_mask = guesses - 1;
  }
  inline uint32_t last_row() const { return sparse ? rows.at[size - 1] : static_cast<uint32_t>(size) - 1; }
  inline bool has(uint32_t row) const { return size && last_row() == row; }
  inline bool add(uint32_t row) {  // false: the row has a value (a repeated key), overwrite it
    if (has(row)) return false;
    if (!sparse && row != size) {
      sparse = true;
      rows.reserve(size + 16);
      for (uint32_t i = 0; i < size; i++) rows.push(i);
    }
    if (sparse) rows.push(row);
    size++;
    return true;
  }
  inline void put(uint32_t row, int64_t value) {
    if (add(row)) numbers.push(value);
    else numbers.at[size - 1] = value;
  }
  inline void put_code(uint32_t row, int32_t code) {
    if (add(row)) codes.push(code);
    else codes.at[size - 1] = code;
  }
  void drop(uint32_t row) {
    if (!has(row)) return;
    size--;
    if (sparse) rows.size--;
    if (kind >= kText) codes.size--;
    else numbers.size--;
  }
};

// A perfect hash of the keys of one scope, and for each key the key that followed it last time.
struct Keys {
  struct Key {
    string text;  // with the closing quote, and padding for wide loads
    int column;
    size_t size;
  };
  vector<Key> keys;
  uint8_t slots[1024], next[256];
  uint64_t seed = 0;
  static constexpr uint8_t kNone = 255, kFirst = 254;

  uint32_t slot(Ptr p, size_t n) const {
    uint64_t a = n >= 8 ? load8(p) : n ? low_bytes(load8(p), n) : 0, b = n > 8 ? load8(p + n - 8) : n;
    return static_cast<uint32_t>(((a ^ (b << 29 | b >> 35)) + n) * seed >> 54);
  }
  bool build() {
    if (keys.size() > 250) return false;
    memset(next, kNone, sizeof next);
    for (auto& k : keys) {
      k.size = k.text.size();
      k.text += '"';
      k.text.append(32, '\0');
    }
    for (uint64_t t = 1; t < 1000000; t++) {
      seed = t * 0x9E3779B97F4A7C15ull | 1;
      memset(slots, kNone, sizeof slots);
      bool free = true;
      for (size_t i = 0; free && i < keys.size(); i++) {
        auto& s = slots[slot(keys[i].text.data(), keys[i].size)];
        free = s == kNone;
        s = static_cast<uint8_t>(i);
      }
      if (free) return true;
    }
    return false;
  }
  inline uint8_t find(Ptr p, size_t n) const {
    uint8_t i = slots[slot(p, n)];
    return i != kNone && keys[i].size == n && same(p, keys[i].text.data(), n) ? i : kNone;
  }
  uint8_t find_escaped(Ptr p, size_t n) const {  // a key may be spelled with escapes
    if (!memchr(p, '\\', n)) return kNone;
    string plain = unescape(p, p + n);
    n = plain.size();
    plain.append(32, '\0');
    return find(plain.data(), n);
  }
};

struct Issue {
  uint64_t offset;
  int64_t row;
  int column;  // of a mistyped value, else -1
  const char* kind;
  string text;
};

struct HeaderEntry {
  uint64_t offset;
  string key, value;  // JSON text
};

// ---- the parser ------------------------------------------------------------------------------------------------

struct Parser {
  enum State { kStart, kHeader, kEvents, kDone };
  static constexpr const char* kBroken[] = {"not_a_trace", "broken_header", "broken_event", "broken_header"};
  vector<Column> columns;
  Keys event_keys, args_keys;
  int name_column = -1, ph_column = -1, rest_column = -1;
  bool keep_rest = false;

  char* buffer = nullptr;
  size_t have = 0, room = 0, enough = 0;  // enough: do not try again with less input
  uint64_t base = 0;                      // the stream's offset of buffer[0]
  Ptr end = nullptr, safe = nullptr;      // all before `safe` is done with
  Ptr args_begin = nullptr, args_end = nullptr;
  uint32_t row = 0;
  int32_t name = 0;
  State state = kStart;
  bool bare_list = false, events_seen = false, truncated = false;
  bool resync = false, suspect = false;  // look for the next event; the one being read was found by looking
  int runaways = 0;
  vector<HeaderEntry> header;
  vector<Issue> issues;
  uint64_t broken[4] = {0, 0, 0, 0}, mistyped = 0;  // broken: by the state it happened in
  uint64_t settled = 0;  // `mistyped` without the row being read
  string rest;

  ~Parser() { free(buffer); }

  [[noreturn]] void fail(Ptr p, const char* why) {
    if (p >= end) throw NeedMore();
    throw Broken{why, p};
  }

  // -- tokens

  inline Ptr skip_space(Ptr p) { return is_space(*p) ? skip_spaces(p) : p; }
  inline Ptr skip_spaces(Ptr p) {
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
  inline Ptr string_end(Ptr p) {  // p behind the opening quote; returns the closing one
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
  Ptr nested_end(Ptr p) {  // p at [ or {; counts brackets outside strings, however deep
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
          next = string_end(p + i + 1) + 1;
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
      if (c == '"') p = string_end(p) + 1;
      else if (c == '[' || c == '{') depth++;
      else if ((c == ']' || c == '}') && --depth <= 0) return p;
#endif
    }
  }
  inline Ptr value_end(Ptr p) {
    if (*p == '"') return string_end(p + 1) + 1;
    if (*p == '[' || *p == '{') return nested_end(p);
    Ptr begin = p;
    while (!ends_value(*p)) p++;
    if (p == begin || p >= end) fail(p, "value expected");
    if (!is_digit(*begin) && *begin != '-' && !is_letter(*begin)) throw Broken{"value expected", begin};
    return p;
  }
  static bool is_null(Ptr p, Ptr after) { return after - p == 4 && !memcmp(p, "null", 4); }

  // -- values

  // What the quick path did not take: null, a number in another dress, or a value of another type.
  Ptr other_value(int which, Ptr p) {
    Column& column = columns[static_cast<size_t>(which)];
    Ptr after = value_end(p), begin = p, stop = after;
    if (is_null(p, after)) {
      column.drop(row);
      return after;
    }
    bool quoted = *p == '"', lost = false, good;
    string plain;
    if (quoted) begin++, stop--;
    if (quoted && memchr(begin, '\\', static_cast<size_t>(stop - begin))) {
      plain = unescape(begin, stop);
      begin = plain.data();
      stop = begin + plain.size();
    }
    int64_t x = 0;
    double d = 0;
    if (column.kind == kFloat) {
      if (quoted && stop - begin == 3 && !memcmp(begin, "N/A", 3)) {  // Kineto's bandwidth of a copy of no length
        column.drop(row);
        return after;
      }
      good = floating(begin, stop, d);
      memcpy(&x, &d, 8);
    } else if (column.kind == kInt) {
      good = (decimal(begin, stop, 0, x, lost) && !lost) || (quoted && hexadecimal(begin, stop, x));
    } else {
      good = decimal(begin, stop, 3, x, lost);
    }
    if (good) {
      column.put(row, x);
      return after;
    }
    column.drop(row);
    if (mistyped++ < kKeptIssues) {
      uint64_t offset = base + static_cast<uint64_t>(p - buffer);
      issues.push_back({offset, row, which, "mistyped_value", string(p, std::min<size_t>(80, size_t(after - p)))});
    }
    return after;
  }
  inline Ptr int_value(int which, Ptr p) {
    Ptr begin = p;
    bool negative = *p == '-';
    p += negative;
    Ptr first = p;
    auto x = static_cast<int64_t>(digits(p));
    if (p == first || p - first > 18 || !ends_value(*p) || p >= end) return other_value(which, begin);
    columns[static_cast<size_t>(which)].put(row, negative ? -x : x);
    return p;
  }
  inline Ptr nanos_value(int which, Ptr p) {  // microseconds with up to three decimals
    Ptr begin = p;
    uint64_t x = digits(p);
    if (p == begin || p - begin > 15) return other_value(which, begin);
    if (*p == '.') {
      static const uint32_t unit[] = {0, 100, 10, 1};
      Ptr first = ++p;
      uint32_t f = 0;
      for (; is_digit(*p) && p - first < 3; p++) f = f * 10 + static_cast<uint32_t>(*p - '0');
      if (p == first) return other_value(which, begin);
      x = x * 1000 + f * unit[p - first];
    } else {
      x *= 1000;
    }
    if (!ends_value(*p) || p >= end) return other_value(which, begin);
    columns[static_cast<size_t>(which)].put(row, static_cast<int64_t>(x));
    return p;
  }
  inline Ptr float_value(int which, Ptr p) {  // up to 15 digits: integer / power of ten is rounded right
    static const double power[] = {1,   1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                   1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    Ptr begin = p;
    bool negative = *p == '-';
    p += negative;
    Ptr first = p;
    uint64_t x = 0;
    for (; is_digit(*p); p++) x = x * 10 + static_cast<uint64_t>(*p - '0');
    auto whole = p - first, fraction = decltype(whole)(0);
    if (whole && *p == '.') {
      Ptr point = ++p;
      for (; is_digit(*p); p++) x = x * 10 + static_cast<uint64_t>(*p - '0');
      fraction = p - point;
      if (!fraction) return other_value(which, begin);
    }
    if (!whole || whole + fraction > 15 || !ends_value(*p) || p >= end) return other_value(which, begin);
    double d = static_cast<double>(x) / power[fraction];
    if (negative) d = -d;
    int64_t bits;
    memcpy(&bits, &d, 8);
    columns[static_cast<size_t>(which)].put(row, bits);
    return p;
  }
  inline Ptr text_value(int which, Ptr p) {
    Column& column = columns[static_cast<size_t>(which)];
    Dictionary& dictionary = *column.dictionary;
    Guess& guess = dictionary.guesses[static_cast<uint32_t>(name) & column.guess_mask];
    if (guess.size && p + guess.size < end && same(p, guess.raw, guess.size) &&
        (*p == '"' || *p == '[' || *p == '{' || ends_value(p[guess.size]))) {
      column.put_code(row, guess.code);
      return p + guess.size;
    }
    Ptr after = value_end(p);
    if (is_null(p, after)) {
      column.drop(row);
      return after;
    }
    const auto& slot = dictionary.get(p, static_cast<uint32_t>(after - p), column.kind == kText);
    guess = {slot.raw, slot.size, slot.code};
    column.put_code(row, slot.code);
    return after;
  }
  inline Ptr value(int which, Ptr p) {
    switch (columns[static_cast<size_t>(which)].kind) {
      case kInt: return int_value(which, p);
      case kNanos: return nanos_value(which, p);
      case kFloat: return float_value(which, p);
      default: return text_value(which, p);
    }
  }

  // -- objects

  static constexpr int kArgs = -2, kUnknown = -1;

  Ptr args_value(Ptr p) {
    if (args_begin)  // "args" a second time: the last one counts
      for (auto& column : columns)
        if (column.of_args) column.drop(row);
    rest.clear();
    args_begin = args_end = nullptr;
    if (*p != '{') return value_end(p);
    Ptr after = object<false>(p);
    args_begin = p;
    args_end = after;
    return after;
  }
  template <bool EVENT>
  Ptr object(Ptr p) {  // p at '{'; fills the columns of one scope
    Keys& known = EVENT ? event_keys : args_keys;
    uint8_t previous = Keys::kFirst;
    p = skip_space(p + 1);
    if (*p == '}') return p + 1;
    for (;;) {
      if (*p != '"') fail(p, "key expected");
      Ptr key = p + 1, after;
      uint8_t k = known.next[previous];
      if (k != Keys::kNone && same(key, known.keys[k].text.data(), known.keys[k].size + 1) &&
          key + known.keys[k].size < end) {
        after = key + known.keys[k].size;
      } else {
        after = string_end(key);
        k = known.find(key, static_cast<size_t>(after - key));
        if (k == Keys::kNone) k = known.find_escaped(key, static_cast<size_t>(after - key));
        else known.next[previous] = k;
      }
      int which = k == Keys::kNone ? kUnknown : known.keys[k].column;
      if (k != Keys::kNone) previous = k;
      p = skip_space(after + 1);
      if (*p != ':') fail(p, "':' expected");
      p = skip_space(p + 1);
      if (EVENT && which == kArgs) {
        p = args_value(p);
      } else if (which >= 0) {
        p = value(which, p);
        if (EVENT && which == name_column) {
          Column& names = columns[static_cast<size_t>(which)];
          name = names.size ? names.codes.at[names.size - 1] : 0;
        }
      } else {
        Ptr begin = p;
        p = value_end(p);
        if (!EVENT && keep_rest) add_rest(key - 1, after + 1, begin, p);
      }
      p = skip_space(p);
      if (*p == ',') {
        p = skip_space(p + 1);
        if (*p != '}') continue;  // else a comma too many
      }
      if (*p == '}') return p + 1;
      fail(p, "',' or '}' expected");
    }
  }
  void add_rest(Ptr key, Ptr key_end, Ptr value, Ptr after) {
    rest += rest.empty() ? '{' : ',';
    rest.append(key, key_end);
    rest += ':';
    rest.append(value, after);
  }
  // args_rest: all arguments of counters and metadata, whose keys are free; of other events, on request, the
  // arguments that no column reads.
  void finish_rest() {
    string_view ph;
    if (ph_column >= 0) {
      Column& phs = columns[static_cast<size_t>(ph_column)];
      if (phs.has(row)) ph = phs.dictionary->values[static_cast<size_t>(phs.codes.at[phs.size - 1])];
    }
    if (args_begin && (ph == "C" || ph == "M")) rest.assign(args_begin, args_end);
    else if (!rest.empty()) rest += '}';
    if (rest.empty()) return;
    auto size = static_cast<uint32_t>(rest.size());
    rest.append(kPadding, '\0');
    Column& column = columns[static_cast<size_t>(rest_column)];
    column.put_code(row, column.dictionary->get(rest.data(), size, false).code);
    rest.clear();
  }

  // -- the document

  Ptr outer_space(Ptr p) {  // between the outer tokens nothing need be kept, however long the white space
    safe = end;
    return skip_space(p);
  }
  Ptr start(Ptr p) {
    if (*p == '\xEF' && p < end) {  // a byte order mark
      if (end - p < 3) throw NeedMore();
      if (!memcmp(p, "\xEF\xBB\xBF", 3)) p += 3;
    }
    p = outer_space(p);
    safe = p;
    bare_list = *p == '[';
    if (!bare_list && *p != '{') fail(p, "not a JSON object or list");
    state = bare_list ? kEvents : kHeader;
    events_seen = bare_list;
    return p + 1;
  }
  Ptr header_entry(Ptr p) {  // a member of the outer object, before or after the events
    if (resync) p = find_header_key(p);
    p = outer_space(p);
    safe = p;
    if (*p == ',') return p + 1;
    if (*p == '}') {
      if (events_seen || !broken[kHeader]) state = kDone;
      else resync = true;  // the outer object does not end here: damage before has unbalanced the brackets
      return p + 1;
    }
    if (*p != '"') fail(p, "key expected");
    Ptr key = p, key_end = string_end(p + 1) + 1;
    p = skip_space(key_end);
    if (*p != ':') fail(p, "':' expected");
    p = skip_space(p + 1);
    if (*p == '[' && !events_seen && unescape(key + 1, key_end - 1) == "traceEvents") {
      state = kEvents;
      events_seen = true;
      return p + 1;
    }
    Ptr after = value_end(p);
    header.push_back({base + static_cast<uint64_t>(key - buffer), string(key, key_end), string(p, after)});
    return after;
  }
  Ptr event(Ptr p) {  // an event, or what stands between two
    if (resync) p = find_event(p);
    p = outer_space(p);
    safe = p;
    if (*p == ',') return p + 1;
    if (*p == ']') {
      state = bare_list ? kDone : kHeader;
      return p + 1;
    }
    if (*p != '{') fail(p, "event expected");
    args_begin = args_end = nullptr;
    settled = mistyped;
    p = object<true>(p);
    if (suspect) {  // found by looking: a nested object may look like an event, but has no "ph"
      if (ph_column >= 0 && !columns[static_cast<size_t>(ph_column)].has(row)) {
        undo_row();
        resync = true;
        return safe + 1;
      }
      suspect = false;
    }
    finish_rest();
    settled = mistyped;
    if (++row == UINT32_MAX) throw Broken{"more events than 32 bits can count", p};
    return p;
  }
  void run() {
    Ptr p = safe;
    while (state != kDone) {
      p = state == kEvents ? event(p) : state == kHeader ? header_entry(p) : start(p);
      safe = p;
    }
  }

  // -- damage

  void undo_row() {
    for (auto& column : columns) column.drop(row);
    rest.clear();
    while (!issues.empty() && issues.back().column >= 0 && issues.back().row == row) issues.pop_back();
    mistyped = settled;
  }
  // After damage: the next '{' behind a border and before a usual first key.
  Ptr find_event(Ptr p) {
    static const char* const first[] = {"\"ph\"", "\"name\"", "\"cat\"", "\"pid\"", "\"tid\"",
                                        "\"ts\"", "\"args\"", "\"bp\"",  "\"dur\"", "\"id\""};
    for (Ptr begin = p;; p++) {
      p = static_cast<Ptr>(memchr(p, '{', static_cast<size_t>(end - p)));
      if (!p) {
        safe = std::max(begin, end - std::min<ptrdiff_t>(64, end - begin));
        throw NeedMore();
      }
      Ptr before = p;
      while (before > buffer && is_space(before[-1])) before--;
      if (before == buffer || !strchr(",[}", before[-1])) continue;
      safe = before - 1;
      Ptr key = skip_space(p + 1);
      if (end - key < 8) throw NeedMore();
      for (auto usual : first) {
        if (memcmp(key, usual, strlen(usual))) continue;
        resync = false;
        suspect = true;
        return p;
      }
    }
  }
  Ptr find_header_key(Ptr p) {  // after damage: the next `, "word":`
    for (;; p++) {
      p = static_cast<Ptr>(memchr(p, ',', static_cast<size_t>(end - p)));
      if (!p) {
        safe = end;
        throw NeedMore();
      }
      safe = p;
      Ptr key = skip_space(p + 1), q = key + 1;
      if (*key != '"') continue;
      while (q < end && (isalnum(static_cast<unsigned char>(*q)) || *q == '_' || *q == ' ')) q++;
      if (end - q < 2) throw NeedMore();
      if (*q != '"' || *skip_space(q + 1) != ':') continue;
      resync = false;
      return key;
    }
  }
  void note(Ptr at, const char* why) {
    if (broken[state]++ >= kKeptIssues) return;
    string near(at, std::min<size_t>(40, static_cast<size_t>(end - at)));
    issues.push_back({base + static_cast<uint64_t>(at - buffer), row, -1, kBroken[state], string(why) + " near " + near});
  }
  void broke(const Broken& error) {
    undo_row();
    if (!resync) note(error.at, error.why);
    if (state == kStart || row == UINT32_MAX) {
      state = kDone;
      truncated = true;
      return;
    }
    resync = true;
    suspect = false;
    safe = safe < error.at ? safe + 1 : error.at;
  }
  // The input ended inside an event. True: it is given up, go on behind its beginning.
  bool ran_out(bool last) {
    undo_row();
    auto pending = static_cast<size_t>(end - safe);
    if (state == kStart || (!last && pending <= kLongest)) return false;
    if (resync || !pending) return false;
    if (++runaways > kMostRunaways) {
      state = kDone;
      truncated = true;
      return false;
    }
    if (!last || row_follows()) note(safe, last ? "no end" : "no end within 64 MB");
    resync = true;
    suspect = false;
    safe++;
    return true;
  }
  bool row_follows() const {  // is what ran on to the end an event with others behind it, or just the cut end?
    string_view after(safe, static_cast<size_t>(end - safe));
    return state == kEvents && after.find("\"ph\"", after.find('{', 1)) != string::npos;
  }
  void feed(Ptr data, size_t size, bool last) {
    if (state == kDone) return;
    if (have + size + kPadding > room) {
      size_t wanted = (have + size + kPadding) * 3 / 2;
      char* grown = static_cast<char*>(realloc(buffer, wanted));
      if (!grown) throw std::bad_alloc();
      buffer = grown;
      room = wanted;
    }
    if (size) memcpy(buffer + have, data, size);
    have += size;
    memset(buffer + have, 0, kPadding);
    if (!last && have < enough) return;
    end = buffer + have;
    safe = buffer;
    for (bool again = true; again;) {
      try {
        run();
        again = false;
      } catch (const NeedMore&) {
        again = ran_out(last);
      } catch (const Broken& error) {
        broke(error);
      }
    }
    truncated |= last && state != kDone;
    auto used = static_cast<size_t>(safe - buffer);
    base += used;
    have -= used;
    memmove(buffer, safe, have);
    // An event longer than a step is looked at again only when twice as much is there: linear, not quadratic.
    enough = have > kStep ? std::min(have * 2, kLongest + 1) : 0;
  }
};

// ---- Arrow export ----------------------------------------------------------------------------------------------

struct Lent {  // what an exported array keeps alive
  std::shared_ptr<Parser> parser;
  const void* buffers[3] = {nullptr, nullptr, nullptr};
  void* owned[3] = {nullptr, nullptr, nullptr};
  ArrowArray dictionary;
  ~Lent() {
    for (void* block : owned) free(block);
  }
};
static void release_array(ArrowArray* array) {
  if (array->dictionary && array->dictionary->release) array->dictionary->release(array->dictionary);
  delete static_cast<Lent*>(array->private_data);
  array->release = nullptr;
}
static void release_schema(ArrowSchema* schema) {
  if (schema->dictionary) {
    schema->dictionary->release(schema->dictionary);
    delete schema->dictionary;
  }
  schema->release = nullptr;
}
static void init_schema(ArrowSchema* schema, const char* format, ArrowSchema* dictionary) {
  memset(schema, 0, sizeof *schema);
  schema->format = format;
  schema->name = "";
  schema->flags = 2;  // nullable
  schema->dictionary = dictionary;
  schema->release = release_schema;
}
static Lent* init_array(ArrowArray* array, const std::shared_ptr<Parser>& parser, size_t length, int buffers) {
  memset(array, 0, sizeof *array);
  Lent* lent = new Lent;
  lent->parser = parser;
  array->length = static_cast<int64_t>(length);
  array->n_buffers = buffers;
  array->buffers = lent->buffers;
  array->private_data = lent;
  array->release = release_array;
  return lent;
}
static void lend_dictionary(Lent* lent, const std::shared_ptr<Parser>& parser, const Dictionary& dictionary) {
  size_t n = dictionary.values.size(), at = 0;
  Lent* texts = init_array(&lent->dictionary, parser, n, 3);
  auto* offsets = static_cast<int32_t*>(malloc(4 * (n + 1)));
  auto* text = static_cast<char*>(malloc(dictionary.bytes + 1));
  texts->owned[1] = offsets;
  texts->owned[2] = text;
  if (!offsets || !text) throw std::bad_alloc();
  for (size_t i = 0; i < n; i++) {
    offsets[i] = static_cast<int32_t>(at);
    memcpy(text + at, dictionary.values[i].data(), dictionary.values[i].size());
    at += dictionary.values[i].size();
  }
  offsets[n] = static_cast<int32_t>(at);
  texts->buffers[1] = offsets;
  texts->buffers[2] = text;
}

static void lend_values(const std::shared_ptr<Parser>& parser, const Column& column, ArrowSchema* schema,
                        ArrowArray* array) {
  Lent* lent = init_array(array, parser, column.size, 2);
  if (column.kind < kText) {
    init_schema(schema, column.kind == kFloat ? "g" : "l", nullptr);
    lent->buffers[1] = column.numbers.at;
  } else {
    ArrowSchema* texts = new ArrowSchema;
    init_schema(texts, "u", nullptr);
    init_schema(schema, "i", texts);
    lent->buffers[1] = column.codes.at;
    lend_dictionary(lent, parser, *column.dictionary);
    array->dictionary = &lent->dictionary;
  }
  if (!lent->buffers[1]) lent->buffers[1] = lent;  // an empty array must point somewhere
}
static void lend_rows(const std::shared_ptr<Parser>& parser, const Column& column, ArrowSchema* schema,
                      ArrowArray* array) {
  init_schema(schema, "I", nullptr);
  init_array(array, parser, column.size, 2)->buffers[1] = column.rows.at;
}

// ---- nesting of calls ------------------------------------------------------------------------------------------

struct Span {
  int32_t thread;
  uint32_t row;
  int64_t start, end;
  bool operator<(const Span& o) const {
    if (thread != o.thread) return thread < o.thread;
    if (start != o.start) return start < o.start;
    if (end != o.end) return end > o.end;
    return row < o.row;
  }
};

// For each span the span of its thread that began last before it (or with it, and is longer, or stands earlier) and
// has not ended when it begins. Rounding lets a child end after its parent: it is a child all the same. One without
// length may begin where its parent ends: whole microseconds make it look so.
static void nest(vector<Span>& spans, int32_t* parent, int32_t* depth) {
  if (!std::is_sorted(spans.begin(), spans.end())) std::sort(spans.begin(), spans.end());
  vector<const Span*> open;
  for (const Span& span : spans) {
    auto closed = [&span](const Span& o) {
      if (span.start == span.end && o.end == span.start) return o.start == o.end;
      return o.end <= span.start;
    };
    while (!open.empty() && (open.back()->thread != span.thread || closed(*open.back()))) open.pop_back();
    parent[span.row] = open.empty() ? -1 : static_cast<int32_t>(open.back()->row);
    depth[span.row] = open.empty() ? 0 : depth[open.back()->row] + 1;
    open.push_back(&span);
  }
}

// ---- Python ----------------------------------------------------------------------------------------------------

struct PyParser {
  PyObject_HEAD std::shared_ptr<Parser>* parser;
  bool busy;
};

static bool add_column(Parser& parser, PyObject* description) {  // (scope: 0 event, 1 args, 2 the rest; key; kind)
  int scope, kind;
  const char* key;
  Py_ssize_t size;
  if (!PyArg_ParseTuple(description, "is#i", &scope, &key, &size, &kind)) return false;
  if (scope < 0 || scope > 2 || kind < kInt || kind > kJson || (scope == 2 && kind != kJson)) {
    PyErr_SetString(PyExc_ValueError, "no such scope or kind of column");
    return false;
  }
  auto number = static_cast<int>(parser.columns.size());
  string text(key, static_cast<size_t>(size));
  bool is_name = scope == 0 && text == "name";
  if (is_name && kind == kText) parser.name_column = number;
  if (scope == 0 && text == "ph" && kind == kText) parser.ph_column = number;
  if (scope == 2) parser.rest_column = number;
  else (scope ? parser.args_keys : parser.event_keys).keys.push_back({text, number, 0});
  parser.columns.emplace_back(static_cast<Kind>(kind), scope != 0, is_name ? 4096u : scope == 0 ? 1u : 256u);
  return true;
}
static int parser_init(PyObject* self, PyObject* args, PyObject*) {
  auto* me = reinterpret_cast<PyParser*>(self);
  PyObject* list;
  int keep_rest = 0;
  if (!PyArg_ParseTuple(args, "O!|p", &PyList_Type, &list, &keep_rest)) return -1;
  auto parser = std::make_shared<Parser>();
  parser->keep_rest = keep_rest != 0;
  for (Py_ssize_t i = 0; i < PyList_Size(list); i++)
    if (!add_column(*parser, PyList_GetItem(list, i))) return -1;
  parser->event_keys.keys.push_back({"args", Parser::kArgs, 0});
  if (parser->rest_column < 0 || !parser->event_keys.build() || !parser->args_keys.build()) {
    PyErr_SetString(PyExc_ValueError, "no column for the rest, or keys that repeat");
    return -1;
  }
  delete me->parser;
  me->parser = new std::shared_ptr<Parser>(parser);
  me->busy = false;
  return 0;
}
static void parser_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<PyParser*>(self)->parser;
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}
static PyObject* parser_feed(PyObject* self, PyObject* args) {
  auto* me = reinterpret_cast<PyParser*>(self);
  Py_buffer input;
  int last = 0;
  if (!PyArg_ParseTuple(args, "y*|p", &input, &last)) return nullptr;
  if (me->busy || !me->parser || me->parser->use_count() != 1) {
    PyBuffer_Release(&input);
    PyErr_SetString(PyExc_RuntimeError, "the parser is in use by another thread, or its columns are lent");
    return nullptr;
  }
  me->busy = true;
  bool no_memory = false;
  Parser& parser = **me->parser;
  Py_BEGIN_ALLOW_THREADS
  try {
    auto p = static_cast<Ptr>(input.buf);
    auto left = static_cast<size_t>(input.len);
    do {
      size_t step = std::min(left, kStep);
      parser.feed(p, step, last && step == left);
      p += step;
      left -= step;
    } while (left);
  } catch (const std::exception&) {
    no_memory = true;
  }
  Py_END_ALLOW_THREADS
  me->busy = false;
  PyBuffer_Release(&input);
  if (no_memory) return PyErr_NoMemory();
  return PyBool_FromLong(parser.state == Parser::kDone);
}
static bool append(PyObject* list, PyObject* item) {
  bool good = item && PyList_Append(list, item) == 0;
  Py_XDECREF(item);
  return good;
}
static PyObject* counts_of(const Parser& parser) {
  PyObject* counts = PyDict_New();
  auto count = [&](const char* kind, uint64_t n) {
    PyObject* number = n ? PyLong_FromUnsignedLongLong(n) : nullptr;
    if (number) PyDict_SetItemString(counts, kind, number);
    Py_XDECREF(number);
  };
  for (int state = Parser::kStart; counts && state < Parser::kDone; state++)
    count(Parser::kBroken[state], parser.broken[state]);
  if (counts) count("mistyped_value", parser.mistyped);
  return counts;
}
static PyObject* parser_result(PyObject* self, PyObject*) {
  using Number = unsigned long long;
  const Parser& parser = **reinterpret_cast<PyParser*>(self)->parser;
  PyObject *sizes = PyList_New(0), *header = PyList_New(0), *issues = PyList_New(0), *counts = counts_of(parser);
  bool good = sizes && header && issues && counts;
  auto size = [](const string& text) { return static_cast<Py_ssize_t>(text.size()); };
  for (auto& column : parser.columns) good = good && append(sizes, PyLong_FromSize_t(column.size));
  for (auto& e : parser.header)
    good = good && append(header, Py_BuildValue("Ky#y#", Number(e.offset), e.key.data(), size(e.key), e.value.data(),
                                                size(e.value)));
  for (auto& i : parser.issues)
    good = good && append(issues, Py_BuildValue("KLisy#", Number(i.offset), static_cast<long long>(i.row), i.column,
                                                i.kind, i.text.data(), size(i.text)));
  if (!good) {
    for (PyObject* part : {sizes, header, issues, counts}) Py_XDECREF(part);
    return nullptr;
  }
  return Py_BuildValue("{s:I,s:N,s:N,s:N,s:N,s:N,s:N}", "rows", parser.row, "sizes", sizes, "header", header, "issues",
                       issues, "counts", counts, "truncated", PyBool_FromLong(parser.truncated), "events_seen",
                       PyBool_FromLong(parser.events_seen));
}
static void free_schema(PyObject* capsule) {
  auto* schema = static_cast<ArrowSchema*>(PyCapsule_GetPointer(capsule, "arrow_schema"));
  if (schema->release) schema->release(schema);
  delete schema;
}
static void free_array(PyObject* capsule) {
  auto* array = static_cast<ArrowArray*>(PyCapsule_GetPointer(capsule, "arrow_array"));
  if (array->release) array->release(array);
  delete array;
}
static PyObject* parser_lend(PyObject* self, PyObject* args) {
  auto* me = reinterpret_cast<PyParser*>(self);
  int number, rows;
  if (!PyArg_ParseTuple(args, "ip", &number, &rows)) return nullptr;
  if (me->busy || number < 0 || static_cast<size_t>(number) >= (*me->parser)->columns.size()) {
    PyErr_SetString(PyExc_ValueError, "no such column");
    return nullptr;
  }
  const Column& column = (*me->parser)->columns[static_cast<size_t>(number)];
  if (rows && !column.sparse) Py_RETURN_NONE;
  if (column.dictionary && column.dictionary->bytes > INT32_MAX) {
    PyErr_SetString(PyExc_OverflowError, "a column of more than 2 GB of distinct text");
    return nullptr;
  }
  auto* schema = new ArrowSchema();
  auto* array = new ArrowArray();
  PyObject* schema_capsule = PyCapsule_New(schema, "arrow_schema", free_schema);
  PyObject* array_capsule = PyCapsule_New(array, "arrow_array", free_array);
  try {
    (rows ? lend_rows : lend_values)(*me->parser, column, schema, array);
  } catch (const std::bad_alloc&) {
    Py_XDECREF(schema_capsule);
    Py_XDECREF(array_capsule);
    return PyErr_NoMemory();
  }
  return Py_BuildValue("NN", schema_capsule, array_capsule);
}

struct Buffers {  // three columns of equal length, given back at the end
  Py_buffer views[3];
  int held = 0;
  bool take(PyObject* const* objects) {
    for (; held < 3; held++)
      if (PyObject_GetBuffer(objects[held], &views[held], PyBUF_C_CONTIGUOUS)) return false;
    return true;
  }
  ~Buffers() {
    while (held) PyBuffer_Release(&views[--held]);
  }
};
static PyObject* module_nest(PyObject*, PyObject* args) {
  PyObject* objects[3];
  if (!PyArg_ParseTuple(args, "OOO", &objects[0], &objects[1], &objects[2])) return nullptr;
  Buffers in;
  if (!in.take(objects)) return nullptr;
  auto n = static_cast<size_t>(in.views[0].len) / 4;
  if (static_cast<size_t>(in.views[1].len) != n * 8 || static_cast<size_t>(in.views[2].len) != n * 8 || n > INT32_MAX) {
    PyErr_SetString(PyExc_ValueError, "threads (int32), starts and ends (int64) must be equally long");
    return nullptr;
  }
  PyObject* parent = PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(n * 4));
  PyObject* depth = PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(n * 4));
  bool no_memory = !parent || !depth;
  if (!no_memory) {
    auto* threads = static_cast<const int32_t*>(in.views[0].buf);
    auto *starts = static_cast<const int64_t*>(in.views[1].buf), *ends = static_cast<const int64_t*>(in.views[2].buf);
    auto* parents = reinterpret_cast<int32_t*>(PyByteArray_AsString(parent));
    auto* depths = reinterpret_cast<int32_t*>(PyByteArray_AsString(depth));
    Py_BEGIN_ALLOW_THREADS
    try {
      vector<Span> spans(n);
      for (size_t i = 0; i < n; i++) spans[i] = {threads[i], static_cast<uint32_t>(i), starts[i], ends[i]};
      nest(spans, parents, depths);
    } catch (const std::bad_alloc&) {
      no_memory = true;
    }
    Py_END_ALLOW_THREADS
  }
  if (no_memory) {
    Py_XDECREF(parent);
    Py_XDECREF(depth);
    return PyErr_NoMemory();
  }
  return Py_BuildValue("NN", parent, depth);
}

static PyMethodDef parser_methods[] = {
    {"feed", parser_feed, METH_VARARGS, "feed(buffer, last=False) -> done: parse more bytes, without the GIL"},
    {"result", parser_result, METH_NOARGS, "result() -> dict: rows, header, issues"},
    {"lend", parser_lend, METH_VARARGS, "lend(column, rows) -> Arrow capsules of its values, or of their rows (None: every row)"},
    {nullptr, nullptr, 0, nullptr}};
static PyType_Slot parser_slots[] = {{Py_tp_init, reinterpret_cast<void*>(parser_init)},
                                     {Py_tp_new, reinterpret_cast<void*>(PyType_GenericNew)},
                                     {Py_tp_dealloc, reinterpret_cast<void*>(parser_dealloc)},
                                     {Py_tp_methods, parser_methods},
                                     {0, nullptr}};
static PyType_Spec parser_spec = {"htk._kineto.Parser", sizeof(PyParser), 0, Py_TPFLAGS_DEFAULT, parser_slots};
static PyMethodDef module_methods[] = {
    {"nest", module_nest, METH_VARARGS, "nest(threads, starts, ends) -> parent rows, depths (int32 bytes)"},
    {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kineto", nullptr, -1, module_methods,
                             nullptr,               nullptr,   nullptr, nullptr};

PyMODINIT_FUNC PyInit__kineto(void) {
  PyObject* created = PyModule_Create(&module);
  PyObject* type = PyType_FromSpec(&parser_spec);
  if (!created || !type || PyModule_AddObject(created, "Parser", type)) return nullptr;
  return created;
}
