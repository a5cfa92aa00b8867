// One event: its keys and values, straight into the columns. All that runs for each event is in this one unit.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "numbers.h"
#include "parser.h"
#include "text.h"

namespace kineto {

using std::string;
using std::string_view;

// What a quick path did not take: null, another spelling of a number, or a value of another type.
Ptr Parser::other_value(int number, Ptr p) {
  Column& column = columns[static_cast<size_t>(number)];
  Ptr after = value_end(p, end), begin = p, stop = after;
  if (is_null(p, after)) {
    forget_mistyped(number);
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
  return mistyped_value(number, p, after);
}

Ptr Parser::mistyped_value(int number, Ptr p, Ptr after) {
  forget_mistyped(number);
  columns[static_cast<size_t>(number)].drop(row);
  bad.push_back(number);
  if (mistyped++ < kKeptIssues)
    issues.push_back({offset_of(p), row, number, "mistyped_value", string(p, std::min<size_t>(80, size_t(after - p)))});
  return after;
}

// Of a repeated key the last value counts, for what is said too.
void Parser::forget_mistyped(int number) {
  auto same_column = std::find(bad.begin(), bad.end(), number);
  if (same_column == bad.end()) return;
  bad.erase(same_column);
  mistyped--;
  for (size_t i = issues.size(); i-- && issues[i].row == row && issues[i].column >= 0;)
    if (issues[i].column == number) {
      issues.erase(issues.begin() + static_cast<ptrdiff_t>(i));
      return;
    }
}

// At an event's end: a column that has a value after all was given it by a key repeated.
void Parser::keep_mistyped() {
  for (int number : std::vector<int>(bad))
    if (columns[static_cast<size_t>(number)].has(row)) forget_mistyped(number);
  bad.clear();
}

inline Ptr Parser::int_value(int number, Ptr p) {
  Ptr begin = p;
  bool negative = *p == '-';
  p += negative;
  Ptr first = p;
  auto x = static_cast<int64_t>(digits(p));
  if (p == first || p - first > 18 || !ends_value(*p) || p >= end) return other_value(number, begin);
  columns[static_cast<size_t>(number)].put(row, negative ? -x : x);
  return p;
}

inline Ptr Parser::nanos_value(int number, Ptr p) {  // microseconds with up to three decimals
  Ptr begin = p;
  uint64_t x = digits(p);
  if (p == begin || p - begin > 15) return other_value(number, begin);
  if (*p == '.') {
    static const uint32_t unit[] = {0, 100, 10, 1};
    Ptr first = ++p;
    uint32_t f = 0;
    for (; is_digit(*p) && p - first < 3; p++) f = f * 10 + static_cast<uint32_t>(*p - '0');
    if (p == first) return other_value(number, begin);
    x = x * 1000 + f * unit[p - first];
  } else {
    x *= 1000;
  }
  if (!ends_value(*p) || p >= end) return other_value(number, begin);
  columns[static_cast<size_t>(number)].put(row, static_cast<int64_t>(x));
  return p;
}

inline Ptr Parser::float_value(int number, Ptr p) {  // up to 15 digits: integer / power of ten is rounded right
  static const double power[] = {1,   1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
  Ptr begin = p;
  bool negative = *p == '-';
  p += negative;
  Ptr first = p;
  uint64_t x = 0;
  for (; is_digit(*p); p++) x = x * 10 + static_cast<uint64_t>(*p - '0');
  ptrdiff_t integers = p - first, decimals = 0;
  if (integers && *p == '.') {
    Ptr point = ++p;
    for (; is_digit(*p); p++) x = x * 10 + static_cast<uint64_t>(*p - '0');
    decimals = p - point;
    if (!decimals) return other_value(number, begin);
  }
  if (!integers || integers + decimals > 15 || !ends_value(*p) || p >= end) return other_value(number, begin);
  double d = static_cast<double>(x) / power[decimals];
  if (negative) d = -d;
  int64_t bits;
  memcpy(&bits, &d, 8);
  columns[static_cast<size_t>(number)].put(row, bits);
  return p;
}

// Plain are the digits of a number that are its only spelling; false: they are not, or too many.
inline bool plain_id(Ptr first, Ptr after) { return after > first && after - first <= 18 && (*first != '0' || after - first == 1); }

void Parser::put_id(int number, int64_t id) {  // in the place of what a key that repeats gave before
  Column& column = columns[static_cast<size_t>(number)];
  if (!bad.empty()) forget_mistyped(column.spelled);
  columns[static_cast<size_t>(column.spelled)].drop(row);
  column.put(row, id);
}

inline Ptr Parser::id_value(int number, Ptr p) {
  const bool quoted = *p == '"';
  Ptr first = p + quoted, after = first;
  auto id = static_cast<int64_t>(digits(after));
  if (!plain_id(first, after) || !(quoted ? *after == '"' : ends_value(*after)) || after >= end) return other_id(number, p);
  put_id(number, id);
  return after + quoted;
}

// An id that is null, no plain number, or one spelled with escapes.
Ptr Parser::other_id(int number, Ptr p) {
  Ptr after = value_end(p, end);
  if (*p == '"' && memchr(p, '\\', static_cast<size_t>(after - p))) {
    string plain = unescape(p + 1, after - 1);
    plain.append(kPadding, '\0');
    Ptr first = plain.data(), stop = first;
    auto id = static_cast<int64_t>(digits(stop));
    if (plain_id(first, stop) && stop == first + plain.size() - kPadding) {
      put_id(number, id);
      return after;
    }
  }
  columns[static_cast<size_t>(number)].drop(row);
  return text_value(columns[static_cast<size_t>(number)].spelled, p);
}

inline Ptr Parser::text_value(int number, Ptr p) {
  Column& column = columns[static_cast<size_t>(number)];
  Dictionary& dictionary = *column.dictionary;
  Guess& guess = dictionary.guesses[static_cast<uint32_t>(name) & column.guess_mask];
  if (guess.size && p + guess.size < end && same(p, guess.raw, guess.size) &&
      (*p == '"' || *p == '[' || *p == '{' || ends_value(p[guess.size]))) {
    column.put_code(row, guess.code);
    return p + guess.size;
  }
  Ptr after = value_end(p, end);
  if (is_null(p, after)) {
    forget_mistyped(number);
    column.drop(row);
    return after;
  }
  // A quote within a bare value: its opening one is missing.
  if (*p != '"' && *p != '[' && *p != '{' && memchr(p, '"', static_cast<size_t>(after - p)))
    return mistyped_value(number, p, after);
  const auto& slot = dictionary.get(p, static_cast<uint32_t>(after - p), column.kind == kText);
  guess = {slot.raw, slot.size, slot.code};
  column.put_code(row, slot.code);
  return after;
}

inline Ptr Parser::value(int number, Ptr p) {
  switch (columns[static_cast<size_t>(number)].kind) {
    case kInt: return int_value(number, p);
    case kNanos: return nanos_value(number, p);
    case kFloat: return float_value(number, p);
    case kId: return id_value(number, p);
    default: return text_value(number, p);
  }
}

Ptr Parser::args_value(Ptr p) {
  if (args_begin)  // "args" a second time: the last one counts
    for (size_t i = 0; i < columns.size(); i++)
      if (columns[i].of_args) {
        forget_mistyped(static_cast<int>(i));
        columns[i].drop(row);
      }
  rest.clear();
  args_begin = args_end = nullptr;
  if (*p != '{') return value_end(p, end);
  Ptr after = object<false>(p);
  args_begin = p;
  args_end = after;
  return after;
}

template <bool EVENT>
Ptr Parser::object(Ptr p) {  // p at '{'; fills the columns of one scope
  Keys& scope = EVENT ? event_keys : args_keys;
  uint8_t previous = Keys::kFirst;
  p = skip_space(p + 1, end);
  if (*p == '}') return p + 1;
  for (;;) {
    if (*p != '"') fail(p, end, "key expected");
    Ptr key = p + 1, after;
    uint8_t k = scope.next[previous];
    if (k != Keys::kNone && same(key, scope.keys[k].text.data(), scope.keys[k].size + 1) &&
        key + scope.keys[k].size < end) {
      after = key + scope.keys[k].size;
    } else {
      after = string_end(key, end);
      k = scope.find(key, static_cast<size_t>(after - key));
      if (k == Keys::kNone) k = scope.find_escaped(key, static_cast<size_t>(after - key));
      else scope.next[previous] = k;
    }
    int number = k == Keys::kNone ? kUnknown : scope.keys[k].column;
    if (k != Keys::kNone) previous = k;
    p = skip_space(after + 1, end);
    if (*p != ':') fail(p, end, "':' expected");
    p = skip_space(p + 1, end);
    if (EVENT && number == kArgsObject) {
      p = args_value(p);
    } else if (number >= 0) {
      p = value(number, p);
      if (EVENT && number == name_column) {
        Column& names = columns[static_cast<size_t>(number)];
        name = names.size ? names.codes.data[names.size - 1] : 0;
      }
    } else {
      Ptr begin = p;
      p = value_end(p, end);
      if (!EVENT && keep_rest) add_rest(key - 1, after + 1, begin, p);
    }
    p = skip_space(p, end);
    if (*p == ',') {
      p = skip_space(p + 1, end);
      if (*p != '}') continue;  // else a comma too many
    }
    if (*p == '}') return p + 1;
    fail(p, end, "',' or '}' expected");
  }
}

void Parser::add_rest(Ptr key, Ptr key_end, Ptr value, Ptr after) {
  rest += rest.empty() ? '{' : ',';
  rest.append(key, key_end);
  rest += ':';
  rest.append(value, after);
}

// args_rest: all arguments of counters and metadata, whose keys are free; of other events, on request, the
// arguments that no column reads.
void Parser::finish_rest() {
  string_view ph;
  if (ph_column >= 0) {
    Column& phs = columns[static_cast<size_t>(ph_column)];
    if (phs.has(row)) ph = phs.dictionary->values[static_cast<size_t>(phs.codes.data[phs.size - 1])];
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

Ptr Parser::event_object(Ptr p) { return object<true>(p); }

}  // namespace kineto
