#include "json_strings.h"

#include <algorithm>
#include <memory>

#include "scan.h"

namespace kineto {

namespace {

constexpr size_t kRoom = 64;  // zeros behind the text, for wide loads

// The codes of the strings met so far.
class Codes {
 public:
  int32_t of(Ptr text, uint32_t size, int32_t string, std::vector<int32_t>& firsts) {
    uint64_t hash = hash_text(text, size);
    size_t mask = slots.size() - 1, i = hash & mask;
    for (; slots[i].text; i = (i + 1) & mask)
      if (slots[i].hash == hash && slots[i].size == size && same(text, slots[i].text, size)) return slots[i].code;
    auto code = static_cast<int32_t>(firsts.size());
    slots[i] = {hash, text, size, code};
    firsts.push_back(string);
    if (firsts.size() * 2 > slots.size()) grow();
    return code;
  }

 private:
  struct Slot {
    uint64_t hash;
    Ptr text;
    uint32_t size;
    int32_t code;
  };
  std::vector<Slot> slots = std::vector<Slot>(4096, Slot{0, nullptr, 0, 0});

  void grow() {
    std::vector<Slot> wider(slots.size() * 4, Slot{0, nullptr, 0, 0});
    size_t mask = wider.size() - 1;
    for (auto& slot : slots) {
      if (!slot.text) continue;
      size_t i = slot.hash & mask;
      while (wider[i].text) i = (i + 1) & mask;
      wider[i] = slot;
    }
    slots.swap(wider);
  }
};

// What stands outside of strings, up to the next one.
struct Outside {
  Ptr text;
  JsonStrings& into;
  int64_t depth = 0;
  bool closes = false, before_number = false;

  Ptr quote_or_end(Ptr p, Ptr end) {
    closes = before_number = false;
#ifdef USE_SSE2
    for (; p < end; p += 16) {
      __m128i v = load16(p), either = _mm_or_si128(v, _mm_set1_epi8(0x20));  // '[' | 0x20 == '{'
      unsigned quotes = equal16(v, '"'), brackets = equal16(either, '{') | equal16(either, '}');
      if (quotes) brackets &= (quotes & (0u - quotes)) - 1;
      for (; brackets; brackets &= brackets - 1) bracket(p + __builtin_ctz(brackets), end);
      if (quotes) return p + __builtin_ctz(quotes);
    }
    return end;
#else
    for (; p < end && *p != '"'; p++) {
      char either = static_cast<char>(*p | 0x20);
      if (either == '{' || either == '}') bracket(p, end);
    }
    return p;
#endif
  }

 private:
  void bracket(Ptr p, Ptr end) {
    if (depth == 0) into.starts.push_back(static_cast<int32_t>(p - text));
    depth += *p == '{' || *p == '[' ? 1 : -1;
    if (depth == 0) into.ends.push_back(static_cast<int32_t>(p - text) + 1);
    if (*p != '}') return;
    closes = true;
    Ptr next = p + 1;
    while (next < end && (is_space(*next) || *next == ',' || *next == ']')) next++;
    before_number = before_number || (next < end && (is_digit(*next) || *next == '-'));
  }
};

void find_in(Ptr text, Ptr end, JsonStrings& into) {
  Codes codes;
  Outside outside{text, into};
  int32_t key = -1;
  into.cuts.push_back(0);
  Ptr p = outside.quote_or_end(text, end);
  while (p < end) {
    Ptr begin = p + 1, close = string_end(begin, end);
    auto string = static_cast<int32_t>(into.codes.size());
    int32_t code = codes.of(begin, static_cast<uint32_t>(close - begin), string, into.firsts);
    Ptr next = close + 1;
    while (next < end && is_space(*next)) next++;
    bool is_key = next < end && *next == ':';
    if (is_key) key = code;
    else if (outside.closes) key = -1;
    auto flag = static_cast<uint8_t>(is_key ? (outside.depth == 1 ? kIsKey | kIsOwnKey : kIsKey) : 0);
    into.cuts.push_back(static_cast<int32_t>(begin - text));
    into.cuts.push_back(static_cast<int32_t>(close - text));
    into.codes.push_back(code);
    into.keys.push_back(key);
    p = outside.quote_or_end(close + 1, end);
    into.flags.push_back(static_cast<uint8_t>(flag | (outside.before_number ? kBeforeUnkeyed : 0)));
  }
  into.cuts.push_back(static_cast<int32_t>(end - text));
}

inline bool piece_of(const Pieces& first, const Pieces& second, int32_t number, Ptr& begin, Ptr& end) {
  auto n = static_cast<size_t>(number);
  const Pieces& from = n < first.count ? first : second;
  if (n >= first.count) n -= first.count;
  if (number < 0 || n >= from.count) return false;
  begin = from.text + from.cuts[n];
  end = from.text + from.cuts[n + 1];
  return true;
}

}  // namespace

bool find_strings(Ptr text, size_t size, JsonStrings& into) {
  if (size > INT32_MAX - kRoom) return false;
  std::unique_ptr<char[]> padded(new char[size + kRoom]);
  memcpy(padded.get(), text, size);
  memset(padded.get() + size, 0, kRoom);
  const size_t guess = size / 12;  // strings
  into.cuts.reserve(2 * guess);
  for (auto* column : {&into.codes, &into.keys}) column->reserve(guess);
  into.flags.reserve(guess);
  try {
    find_in(padded.get(), padded.get() + size, into);
  } catch (const NeedMore&) {
    return false;
  }
  return true;
}

int64_t join_size(const Pieces& first, const Pieces& second, const int32_t* order, size_t count) {
  int64_t size = 0;
  Ptr begin, end;
  for (size_t i = 0; i < count; i++) {
    if (!piece_of(first, second, order[i], begin, end)) return -1;
    size += end - begin;
  }
  return size;
}

void join(const Pieces& first, const Pieces& second, const int32_t* order, size_t count, char* into) {
  Ptr from = nullptr, upto = nullptr, begin = nullptr, end = nullptr;
  for (size_t i = 0; i < count; i++) {
    piece_of(first, second, order[i], begin, end);
    if (begin != upto) {  // what stands side by side is copied at once
      if (upto != from) memcpy(into, from, static_cast<size_t>(upto - from));
      into += upto - from;
      from = begin;
    }
    upto = end;
  }
  if (upto != from) memcpy(into, from, static_cast<size_t>(upto - from));
}

}  // namespace kineto
