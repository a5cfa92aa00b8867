// The limit of reading a trace: gunzip by isa-l, then every key and value by simdjson, on demand.
//
//     c++ -O3 -std=c++17 neighbour.cpp -lisal -lsimdjson -o neighbour && ./neighbour TRACE.json.gz
//
// Prints one JSON object: CPU seconds of both together in a fresh process (`first`) and at best, with
// buffers whose pages are there (`best`), and the events that were read.

#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include <isa-l/igzip_lib.h>
#include <simdjson.h>

namespace {

constexpr size_t kSpare = 1U << 20;
constexpr int kRounds = 7;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Text {
  std::unique_ptr<char[]> bytes;  // not cleared: each page is touched once
  size_t size = 0, capacity = 0;

  void reserve(size_t wanted) {
    std::unique_ptr<char[]> larger(new char[wanted]);
    if (size) std::memcpy(larger.get(), bytes.get(), size);
    bytes = std::move(larger);
    capacity = wanted;
  }
};

void inflate_all(std::vector<char> &packed, Text &text) {
  inflate_state state;
  isal_gzip_header header;
  isal_inflate_init(&state);
  isal_gzip_header_init(&header);
  state.next_in = reinterpret_cast<uint8_t *>(packed.data());
  state.avail_in = static_cast<uint32_t>(packed.size());
  if (isal_read_gzip_header(&state, &header) != ISAL_DECOMP_OK) throw std::runtime_error("no gzip");
  text.size = 0;
  if (!text.capacity) text.reserve(packed.size() * 32);
  while (state.block_state != ISAL_BLOCK_FINISH) {
    if (text.capacity - text.size < kSpare) text.reserve(text.capacity * 2);
    state.next_out = reinterpret_cast<uint8_t *>(text.bytes.get()) + text.size;
    state.avail_out = static_cast<uint32_t>(text.capacity - text.size - simdjson::SIMDJSON_PADDING);
    const uint32_t room = state.avail_out;
    if (isal_inflate(&state) != ISAL_DECOMP_OK) throw std::runtime_error("damaged gzip");
    text.size += room - state.avail_out;
  }
}

// Read a value to its last leaf, so that nothing is skipped.
size_t read(simdjson::ondemand::value value) {
  size_t leaves = 0;
  switch (value.type()) {
    case simdjson::ondemand::json_type::object:
      for (auto field : value.get_object()) {
        leaves += std::string_view(field.unescaped_key()).size() > 0 ? 1 : 0;
        leaves += read(field.value());
      }
      return leaves;
    case simdjson::ondemand::json_type::array:
      for (auto item : value.get_array()) leaves += read(item.value());
      return leaves;
    case simdjson::ondemand::json_type::string:
      return std::string_view(value.get_string()).size() ? 1 : 0;
    case simdjson::ondemand::json_type::number:
      return double(value.get_double()) != 0.0 ? 1 : 0;
    case simdjson::ondemand::json_type::boolean:
      return bool(value.get_bool()) ? 1 : 0;
    default:
      return value.is_null() ? 1 : 0;
  }
}

}  // namespace

int main(int count, char **words) {
  if (count != 2) {
    std::fprintf(stderr, "usage: neighbour TRACE.json.gz\n");
    return 2;
  }
  std::ifstream file(words[1], std::ios::binary);
  std::vector<char> packed((std::istreambuf_iterator<char>(file)), {});
  Text text;
  simdjson::ondemand::parser parser;
  size_t leaves = 0, events = 0;
  double first = 0, best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const double begun = cpu_seconds();
    leaves = events = 0;
    inflate_all(packed, text);
    auto document = parser.iterate(
        simdjson::padded_string_view(text.bytes.get(), text.size, text.capacity));
    for (auto field : document.get_object()) {
      const std::string_view key = field.unescaped_key();
      if (key != "traceEvents") {
        leaves += read(field.value());
        continue;
      }
      for (auto event : field.value().get_array()) {
        leaves += read(event.value());
        ++events;
      }
    }
    const double seconds = cpu_seconds() - begun;
    if (!round) first = best = seconds;
    best = seconds < best ? seconds : best;
  }
  std::printf("{\"first\": %.4f, \"best\": %.4f, \"events\": %zu, \"leaves\": %zu}\n", first, best,
              events, leaves);
}
