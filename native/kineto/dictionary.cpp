#include "dictionary.h"

#include <cstring>
#include <string>

#include "text.h"

namespace kineto {

using std::string;

const Dictionary::Slot& Dictionary::get(Ptr raw, uint32_t size, bool is_text) {
  uint64_t hash = hash_text(raw, size);
  size_t mask = slots.size() - 1, i = hash & mask;
  for (; slots[i].raw; i = (i + 1) & mask)
    if (slots[i].hash == hash && slots[i].size == size && same(raw, slots[i].raw, size)) return slots[i];
  int32_t code = code_of(raw, size, is_text);
  Slot fresh{hash, arena.put(raw, size), size, code};
  slots[i] = fresh;
  if (++used * 2 <= slots.size()) return slots[i];
  grow();
  mask = slots.size() - 1;
  for (i = hash & mask; slots[i].raw != fresh.raw; i = (i + 1) & mask) {}
  return slots[i];
}

int32_t Dictionary::code_of(Ptr raw, uint32_t size, bool is_text) {
  string value;
  if (!is_text || *raw != '"') value = compact(raw, raw + size);
  else if (memchr(raw, '\\', size)) value = unescape(raw + 1, raw + size - 1);
  else value.assign(raw + 1, size - 2);
  repair_utf8(value);
  auto entry = codes.find(value);
  if (entry != codes.end()) return entry->second;
  std::string_view kept(arena.put(value.data(), value.size()), value.size());
  auto code = static_cast<int32_t>(values.size());
  values.push_back(kept);
  bytes += value.size();
  codes.emplace(kept, code);
  return code;
}

void Dictionary::grow() {
  std::vector<Slot> wider(slots.size() * 2, Slot{0, nullptr, 0, 0});
  size_t mask = wider.size() - 1;
  for (auto& slot : slots) {
    if (!slot.raw) continue;
    size_t i = slot.hash & mask;
    while (wider[i].raw) i = (i + 1) & mask;
    wider[i] = slot;
  }
  slots.swap(wider);
}

}  // namespace kineto
