// Kineto's JSON to columns in one pass: bytes in, in pieces of any size.
//
// The columns come from parsers/kineto/columns.py; nothing here knows a column by name except "name" (whose value
// predicts the texts that follow), "ph" (every event has one) and "args". An event is parsed straight into the columns;
// when it proves cut or broken, an exception rolls its row back and parsing resumes at the next event.
//
// parser.cpp walks the document, objects.cpp fills the columns of one event, damage.cpp finds the way on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bytes.h"
#include "column.h"
#include "keys.h"
#include "scan.h"

namespace kineto {

// Wide loads may look this far past the end of the input; the bytes there are zero.
constexpr size_t kPadding = 64;
// A longer event, or header entry, is taken for damage: it bounds the memory that a missing quote can cost.
constexpr size_t kLongest = size_t(64) << 20;
// Input is parsed in steps that stay in the cache together with their copy.
constexpr size_t kStep = size_t(1) << 18;
// Only so many issues are kept as text; all are counted.
constexpr size_t kKeptIssues = 1000;

struct Issue {
  uint64_t offset;
  int64_t row;
  int column;  // of a mistyped value, else -1
  const char* kind;
  std::string text;
};

struct HeaderEntry {
  uint64_t offset;
  std::string key, value;  // JSON text
};

enum Scope { kEvent, kArgs, kRest };  // of a column: a member of the event, of its args, or the args no column reads

class Parser {
 public:
  enum State { kStart, kHeader, kEvents, kDone };
  static constexpr const char* kBroken[] = {"not_a_trace", "broken_header", "broken_event", "broken_header"};

  explicit Parser(bool keeps_rest) : keep_rest(keeps_rest) {}
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;
  ~Parser();

  void add_column(Scope scope, const std::string& key, Kind kind);
  bool ready();  // after the last column; false: none for the rest, or keys that repeat
  void feed(Ptr data, size_t size, bool last);

  std::vector<Column> columns;
  std::vector<HeaderEntry> header;
  std::vector<Issue> issues;
  uint64_t broken[4] = {0, 0, 0, 0}, mistyped = 0;  // broken: by the state it happened in
  uint32_t row = 0;
  State state = kStart;
  bool events_seen = false, truncated = false, more_follows = false;  // more: behind the end of the document

 private:
  static constexpr int kArgsObject = -2, kUnknown = -1;  // what a key may stand for beside a column
  Keys event_keys, args_keys;
  int name_column = -1, ph_column = -1, rest_column = -1;
  bool keep_rest;

  char* buffer = nullptr;
  size_t have = 0, capacity = 0, enough = 0;  // enough: do not try again with less input
  uint64_t base = 0;                          // the stream's offset of buffer[0]
  char gone = 0;                              // the last byte before buffer[0] that is no white space
  Ptr end = nullptr, safe = nullptr;          // all before `safe` is done with
  Ptr args_begin = nullptr, args_end = nullptr;
  int32_t name = 0;  // the code of the event's name
  bool bare_list = false;
  bool resync = false, suspect = false;  // look for the next event; the one being read was found by looking
  int runaways = 0;
  uint64_t settled = 0;  // `mistyped` without the row being read
  std::vector<int> bad;  // columns of the row being read whose value is of another type
  std::string rest;

  // the document: each takes a position and returns the one behind what it read
  Ptr outer_space(Ptr p);
  Ptr start(Ptr p);
  Ptr header_entry(Ptr p);
  Ptr event(Ptr p);
  void run();
  void make_room(size_t size);

  // one event
  Ptr event_object(Ptr p);
  template <bool EVENT>
  Ptr object(Ptr p);
  Ptr args_value(Ptr p);
  Ptr value(int number, Ptr p);
  Ptr int_value(int number, Ptr p);
  Ptr nanos_value(int number, Ptr p);
  Ptr float_value(int number, Ptr p);
  Ptr id_value(int number, Ptr p);
  Ptr other_id(int number, Ptr p);
  void put_id(int number, int64_t id);
  Ptr text_value(int number, Ptr p);
  Ptr other_value(int number, Ptr p);
  Ptr mistyped_value(int number, Ptr p, Ptr after);
  void forget_mistyped(int number);
  void keep_mistyped();
  void add_rest(Ptr key, Ptr key_end, Ptr value, Ptr after);
  void finish_rest();

  // damage
  void undo_row();
  char last_token(Ptr p) const;
  Ptr find_event(Ptr p);
  Ptr find_header_key(Ptr p);
  void note(Ptr p, const char* why);
  void broke(const Broken& error);
  bool ran_out(bool last);
  bool row_follows() const;
  void look_behind(Ptr p);

  uint64_t offset_of(Ptr p) const { return base + static_cast<uint64_t>(p - buffer); }
};

}  // namespace kineto
