// A column being read: values, and the rows they stand in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "dictionary.h"
#include "storage.h"

namespace kineto {

enum Kind : uint8_t { kInt, kFloat, kNanos, kId, kText, kJson };

// The values that are there, in row order; `rows` is kept only once a row has gone without.
struct Column {
  Kind kind;
  bool of_args;
  int spelled = -1;  // of ids: the column of those that are no plain numbers
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
  uint32_t last_row() const { return sparse ? rows.data[size - 1] : static_cast<uint32_t>(size) - 1; }
  bool has(uint32_t row) const { return size && last_row() == row; }
  bool add(uint32_t row) {  // false: the row has a value (a repeated key), overwrite it
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
  void put(uint32_t row, int64_t value) {
    if (add(row)) numbers.push(value);
    else numbers.data[size - 1] = value;
  }
  void put_code(uint32_t row, int32_t code) {
    if (add(row)) codes.push(code);
    else codes.data[size - 1] = code;
  }
  void drop(uint32_t row) {
    if (!has(row)) return;
    size--;
    if (sparse) rows.size--;
    if (kind >= kText) codes.size--;
    else numbers.size--;
  }
};

}  // namespace kineto
