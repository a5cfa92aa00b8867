// A document in one piece and in pieces of any size gives the same columns, header, issues and end.
#include <cstring>
#include <string>
#include <vector>

#include "../kineto/parser.h"
#include "check.h"
#include "columns.h"

using kineto::Column;
using kineto::Parser;
using kineto::Ptr;
using std::string;

namespace {

constexpr size_t kSizes[] = {1, 2, 7, 16, 63, 64, 65, 300, 4096, 262144};

void read(Parser& parser, Ptr data, size_t size, Dice* dice) {
  for (auto& column : kColumns) parser.add_column(column.scope, column.key, column.kind);
  CHECK(parser.ready());
  while (size) {
    size_t piece = dice ? kSizes[dice->below(sizeof kSizes / sizeof *kSizes)] : size;
    piece = piece < size ? piece : size;
    std::vector<char> own(data, data + piece);  // what lies behind a piece is not to be read
    parser.feed(own.data(), piece, false);
    data += piece;
    size -= piece;
  }
  parser.feed(data, 0, true);
}

string text_at(const Column& column, size_t k) {
  return string(column.dictionary->values[static_cast<size_t>(column.codes.data[k])]);
}

void same_column(const Column& a, const Column& b) {
  CHECK(a.size == b.size);
  for (size_t k = 0; k < a.size; k++) {
    CHECK((a.sparse ? a.rows.data[k] : k) == (b.sparse ? b.rows.data[k] : k));
    if (a.dictionary) CHECK(text_at(a, k) == text_at(b, k));
    else CHECK(a.numbers.data[k] == b.numbers.data[k]);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  bool keep_rest = data[0] & 1;
  Dice dice{data[0] * 0x9E3779B97F4A7C15ull + data[1] + 1};
  auto text = reinterpret_cast<Ptr>(data + 2);
  Parser at_once(keep_rest), in_pieces(keep_rest);
  read(at_once, text, size - 2, nullptr);
  read(in_pieces, text, size - 2, &dice);
  CHECK(at_once.row == in_pieces.row);
  CHECK(at_once.state == in_pieces.state);
  CHECK(at_once.events_seen == in_pieces.events_seen);
  CHECK(at_once.truncated == in_pieces.truncated);
  CHECK(at_once.mistyped == in_pieces.mistyped);
  CHECK(!memcmp(at_once.broken, in_pieces.broken, sizeof at_once.broken));
  CHECK(at_once.header.size() == in_pieces.header.size());
  for (size_t k = 0; k < at_once.header.size(); k++) {
    CHECK(at_once.header[k].offset == in_pieces.header[k].offset);
    CHECK(at_once.header[k].key == in_pieces.header[k].key);
    CHECK(at_once.header[k].value == in_pieces.header[k].value);
  }
  for (size_t k = 0; k < at_once.columns.size(); k++) same_column(at_once.columns[k], in_pieces.columns[k]);
  return 0;
}
