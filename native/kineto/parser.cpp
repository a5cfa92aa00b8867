#include "parser.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "text.h"

namespace kineto {

using std::string;

Parser::~Parser() { free(buffer); }

void Parser::add_column(Scope scope, const string& key, Kind kind) {
  auto number = static_cast<int>(columns.size());
  bool is_name = scope == kEvent && key == "name";
  if (is_name && kind == kText) name_column = number;
  if (scope == kEvent && key == "ph" && kind == kText) ph_column = number;
  auto same_key = [&](const Keys::Key& k) { return k.text == key && columns[static_cast<size_t>(k.column)].kind == kId; };
  auto& keys = (scope == kArgs ? args_keys : event_keys).keys;
  auto ids = std::find_if(keys.begin(), keys.end(), same_key);
  if (scope == kRest) rest_column = number;
  else if (kind == kText && ids != keys.end()) columns[static_cast<size_t>(ids->column)].spelled = number;
  else keys.push_back({key, number, 0});
  columns.emplace_back(kind, scope != kEvent, is_name ? 4096u : scope == kEvent ? 1u : 256u);
}

bool Parser::ready() {
  event_keys.keys.push_back({"args", kArgsObject, 0});
  for (const auto& column : columns)
    if (column.kind == kId && column.spelled < 0) return false;
  return rest_column >= 0 && event_keys.build() && args_keys.build();
}

Ptr Parser::outer_space(Ptr p) {  // between the outer tokens nothing need be kept, however long the white space
  safe = end;
  return skip_space(p, end);
}

Ptr Parser::start(Ptr p) {
  if (offset_of(p) == 0 && *p == '\xEF' && p < end) {  // a byte order mark
    if (end - p < 3) throw NeedMore();
    if (!memcmp(p, "\xEF\xBB\xBF", 3)) p += 3;
  }
  p = outer_space(p);
  safe = p;
  bare_list = *p == '[';
  if (!bare_list && *p != '{') fail(p, end, "not a JSON object or list");
  state = bare_list ? kEvents : kHeader;
  events_seen = bare_list;
  return p + 1;
}

Ptr Parser::header_entry(Ptr p) {  // a member of the outer object, before or after the events
  if (resync) p = find_header_key(p);
  p = outer_space(p);
  safe = p;
  if (*p == ',') return p + 1;
  if (*p == '}') {
    if (events_seen || !broken[kHeader]) state = kDone;
    else resync = true;  // the outer object does not end here: damage before has unbalanced the brackets
    return p + 1;
  }
  if (*p != '"') fail(p, end, "key expected");
  Ptr key = p, key_end = string_end(p + 1, end) + 1;
  p = skip_space(key_end, end);
  if (*p != ':') fail(p, end, "':' expected");
  p = skip_space(p + 1, end);
  if (*p == '[' && unescape(key + 1, key_end - 1) == "traceEvents") {
    if (events_seen) header.push_back({offset_of(key), string(key, key_end), "["});
    state = kEvents;
    events_seen = true;
    return p + 1;
  }
  Ptr after = value_end(p, end);
  header.push_back({offset_of(key), string(key, key_end), string(p, after)});
  return after;
}

Ptr Parser::event(Ptr p) {  // an event, or what stands between two
  if (resync) p = find_event(p);
  p = outer_space(p);
  safe = p;
  if (*p == ',') return p + 1;
  if (*p == ']') {
    state = bare_list ? kDone : kHeader;
    return p + 1;
  }
  if (*p != '{') fail(p, end, "event expected");
  args_begin = args_end = nullptr;
  settled = mistyped;
  bad.clear();
  p = event_object(p);
  if (suspect) {  // found by looking: a nested object may look like an event, but has no "ph"
    if (ph_column >= 0 && !columns[static_cast<size_t>(ph_column)].has(row)) {
      undo_row();
      resync = true;
      return safe + 1;
    }
    suspect = false;
  }
  finish_rest();
  if (!bad.empty()) keep_mistyped();
  settled = mistyped;
  if (++row == UINT32_MAX) throw Broken{"more events than 32 bits can count", p};
  return p;
}

void Parser::run() {
  Ptr p = safe;
  while (state != kDone) {
    p = state == kEvents ? event(p) : state == kHeader ? header_entry(p) : start(p);
    safe = p;
  }
}

void Parser::make_room(size_t size) {
  if (have + size + kPadding <= capacity) return;
  size_t wanted = (have + size + kPadding) * 3 / 2;
  char* grown = static_cast<char*>(realloc(buffer, wanted));
  if (!grown) throw std::bad_alloc();
  buffer = grown;
  capacity = wanted;
}

void Parser::feed(Ptr data, size_t size, bool last) {
  if (state == kDone && (more_follows || truncated)) return;
  make_room(size);
  if (size) memcpy(buffer + have, data, size);
  have += size;
  memset(buffer + have, 0, kPadding);
  if (!last && have < enough) return;
  end = buffer + have;
  safe = buffer;
  for (bool again = state != kDone; again;) {
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
  if (state == kDone) {
    look_behind(safe);
    safe = end;
  }
  auto used = static_cast<size_t>(safe - buffer);
  gone = last_token(safe);
  base += used;
  have -= used;
  memmove(buffer, safe, have);
  // An event longer than a step is looked at again only when twice as much is there: linear, not quadratic.
  enough = have > kStep ? std::min(have * 2, kLongest + 1) : 0;
}

}  // namespace kineto
