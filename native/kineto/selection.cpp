#include "selection.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "blocks.h"

namespace kineto {

namespace {

// Where a column holds many more rows than are wanted, they are looked up and not walked through.
constexpr size_t kSeldom = 8;
constexpr size_t kNowhere = SIZE_MAX;

void* allocated(size_t size) {
  void* block = allocate(size);
  if (!block) throw std::bad_alloc();
  return block;
}

// Call put(k, position of the value of the k-th wanted row); kNowhere: it has none. Counts those that have none.
template <class Put>
size_t each(const Column& column, const int64_t* wanted, size_t n, Put put) {
  size_t missing = 0;
  if (!column.sparse) {
    for (size_t k = 0; k < n; k++) {
      auto row = static_cast<size_t>(wanted[k]);
      bool there = row < column.size;
      missing += !there;
      put(k, there ? row : kNowhere);
    }
    return missing;
  }
  const uint32_t *at = column.rows.data, *stop = at + column.size, *first = at;
  bool seldom = column.size / kSeldom > n;
  for (size_t k = 0; k < n; k++) {
    auto row = static_cast<uint32_t>(wanted[k]);
    if (seldom) at = std::lower_bound(at, stop, row);
    else
      while (at < stop && *at < row) at++;
    bool there = at < stop && *at == row;
    missing += !there;
    put(k, there ? static_cast<size_t>(at - first) : kNowhere);
  }
  return missing;
}

template <class T, class Source, class Convert>
void gather(const Column& column, const int64_t* wanted, size_t n, const Source* source, T nothing, Convert convert,
            Selected& out) {
  auto* values = static_cast<T*>(allocated(n * sizeof(T)));
  out.values = reinterpret_cast<char*>(values);
  out.nulls = each(column, wanted, n, [&](size_t k, size_t position) {
    values[k] = position == kNowhere ? nothing : convert(source[position]);
  });
}

void mark_valid(const Column& column, const int64_t* wanted, size_t n, Selected& out) {
  if (!out.nulls) return;
  size_t size = (n + 7) / 8;
  out.valid = static_cast<uint8_t*>(allocated(size));
  memset(out.valid, 0, size);
  each(column, wanted, n, [&](size_t k, size_t position) {
    if (position != kNowhere) out.valid[k / 8] = static_cast<uint8_t>(out.valid[k / 8] | 1u << (k % 8));
  });
}

void keep_used(const Dictionary& dictionary, Selected& out) {  // renumber the codes to the texts that occur
  std::vector<int32_t> number(dictionary.values.size() + 1, -1);
  auto* codes = reinterpret_cast<int32_t*>(out.values);
  for (size_t k = 0; k < out.length; k++)
    if (codes[k] >= 0) number[static_cast<size_t>(codes[k])] = 0;
  size_t bytes = 0;
  for (size_t code = 0; code < dictionary.values.size(); code++)
    if (!number[code]) {
      number[code] = static_cast<int32_t>(out.texts++);
      bytes += dictionary.values[code].size();
    }
  out.offsets = static_cast<int32_t*>(allocated(4 * (out.texts + 1)));
  out.text = static_cast<char*>(allocated(bytes));
  size_t filled = 0, text = 0;
  for (size_t code = 0; code < dictionary.values.size(); code++) {
    if (number[code] < 0) continue;
    const auto& value = dictionary.values[code];
    out.offsets[text++] = static_cast<int32_t>(filled);
    memcpy(out.text + filled, value.data(), value.size());
    filled += value.size();
  }
  out.offsets[text] = static_cast<int32_t>(filled);
  for (size_t k = 0; k < out.length; k++)
    if (codes[k] >= 0) codes[k] = number[static_cast<size_t>(codes[k])];
}

double as_double(int64_t bits) {
  double value;
  memcpy(&value, &bits, 8);
  return value;
}

}  // namespace

Selected::~Selected() {
  for (void* block : {static_cast<void*>(values), static_cast<void*>(valid), static_cast<void*>(offsets),
                      static_cast<void*>(text)})
    release(block);
}

bool selectable(Kind kind, Target target) {
  if (target == kCodes || target == kTexts) return kind >= kText;
  if (target == kFloat64) return kind < kText;
  return (target == kInt64 || target == kInt32) && kind != kFloat && kind < kText;
}

bool select(const Column& column, size_t all_rows, const int64_t* wanted, size_t n, Target target, Selected& out) {
  for (size_t k = 0; k < n; k++)
    if (wanted[k] <= (k ? wanted[k - 1] : -1)) return false;
  if (n && static_cast<size_t>(wanted[n - 1]) >= all_rows) return false;
  out.length = n;
  const int64_t* numbers = column.numbers.data;
  auto same = [](auto value) { return value; };
  if (target == kInt64) gather<int64_t>(column, wanted, n, numbers, 0, same, out);
  else if (target == kInt32)
    gather<int32_t>(column, wanted, n, numbers, 0, [](int64_t x) { return static_cast<int32_t>(x); }, out);
  else if (target == kFloat64 && column.kind == kFloat)
    gather<double>(column, wanted, n, numbers, 0, as_double, out);
  else if (target == kFloat64)
    gather<double>(column, wanted, n, numbers, 0, [](int64_t x) { return static_cast<double>(x); }, out);
  else gather<int32_t>(column, wanted, n, column.codes.data, -1, same, out);
  if (target != kCodes) mark_valid(column, wanted, n, out);
  if (target == kTexts) keep_used(*column.dictionary, out);
  return true;
}

}  // namespace kineto
