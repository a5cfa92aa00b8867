#include "keys.h"

#include <cstring>

#include "text.h"

namespace kineto {

bool Keys::build() {
  if (keys.size() > 250) return false;
  memset(next, kNone, sizeof next);
  for (auto& k : keys) {
    k.size = k.text.size();
    k.text += '"';
    k.text.append(32, '\0');
  }
  for (uint64_t trial = 1; trial < 1000000; trial++) {
    seed = trial * 0x9E3779B97F4A7C15ull | 1;
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

uint8_t Keys::find_escaped(Ptr p, size_t n) const {
  if (!memchr(p, '\\', n)) return kNone;
  std::string plain = unescape(p, p + n);
  n = plain.size();
  plain.append(32, '\0');
  return find(plain.data(), n);
}

}  // namespace kineto
