// What is broken: its row goes, it is noted, and the next event is looked for.
#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstring>

#include "parser.h"

namespace kineto {

using std::string;
using std::string_view;

// A file in which this many events run on without end is given up.
constexpr int kMostRunaways = 20;

void Parser::undo_row() {
  for (auto& column : columns) column.drop(row);
  rest.clear();
  while (!issues.empty() && issues.back().column >= 0 && issues.back().row == row) issues.pop_back();
  mistyped = settled;
  bad.clear();
}

// The last byte before p that is no white space, were it long gone; 0 at the beginning.
char Parser::last_token(Ptr p) const {
  while (p > buffer && is_space(p[-1])) p--;
  return p > buffer ? p[-1] : gone;
}

// After damage: the next '{' behind a border and before a usual first key.
Ptr Parser::find_event(Ptr p) {
  static const char* const first[] = {"\"ph\"", "\"name\"", "\"cat\"", "\"pid\"", "\"tid\"",
                                      "\"ts\"", "\"args\"", "\"bp\"",  "\"dur\"", "\"id\""};
  for (;; p++) {
    p = static_cast<Ptr>(memchr(p, '{', static_cast<size_t>(end - p)));
    if (!p) {
      safe = end;
      throw NeedMore();
    }
    char border = last_token(p);
    if (border != ',' && border != '[' && border != '}') continue;
    safe = p;
    Ptr key = skip_space(p + 1, end);
    const auto left = static_cast<size_t>(end - key);
    for (auto usual : first) {
      const size_t length = strlen(usual);
      if (memcmp(key, usual, std::min(left, length))) continue;
      if (left < length) throw NeedMore();
      resync = false;
      suspect = true;
      return p;
    }
  }
}

Ptr Parser::find_header_key(Ptr p) {  // after damage: the next `, "word":`
  for (;; p++) {
    p = static_cast<Ptr>(memchr(p, ',', static_cast<size_t>(end - p)));
    if (!p) {
      safe = end;
      throw NeedMore();
    }
    safe = p;
    Ptr key = skip_space(p + 1, end), q = key + 1;
    if (*key != '"') continue;
    while (q < end && (isalnum(static_cast<unsigned char>(*q)) || *q == '_' || *q == ' ')) q++;
    if (end - q < 2) throw NeedMore();
    if (*q != '"' || *skip_space(q + 1, end) != ':') continue;
    resync = false;
    return key;
  }
}

void Parser::note(Ptr p, const char* why) {
  if (broken[state]++ >= kKeptIssues) return;
  string near(p, std::min<size_t>(40, static_cast<size_t>(end - p)));
  issues.push_back({offset_of(p), row, -1, kBroken[state], string(why) + " near " + near});
}

void Parser::broke(const Broken& error) {
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

// Behind the document's end: anything but white space is left out, and said.
void Parser::look_behind(Ptr p) {
  while (p < end && is_space(*p)) p++;
  if (p == end || more_follows || truncated) return;
  more_follows = true;
  string near(p, std::min<size_t>(40, static_cast<size_t>(end - p)));
  issues.push_back({offset_of(p), row, -1, "data_after_end", "left out, near " + near});
}

// The input ended inside an event. True: it is given up, go on behind its beginning.
bool Parser::ran_out(bool last) {
  undo_row();
  auto pending = static_cast<size_t>(end - safe);
  if (state == kStart || (!last && pending <= kLongest)) return false;
  if (!pending) return false;
  if (resync) {
    if (last || pending <= kLongest) return false;
    safe++;  // white space without end behind what might have been an event
    return true;
  }
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

bool Parser::row_follows() const {  // is what ran on to the end an event with others behind it, or just the cut end?
  string_view after(safe, static_cast<size_t>(end - safe));
  return state == kEvents && after.find("\"ph\"", after.find('{', 1)) != string::npos;
}

}  // namespace kineto
