// Where no libFuzzer is at hand: mutates seeds for some seconds, without knowledge of what they reach.
//   TARGET -max_total_time=SECONDS -seed=N CORPUS     or     TARGET FILE (runs one input)
#include <sys/stat.h>

#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "check.h"

using std::string;
using Bytes = std::vector<uint8_t>;
namespace fs = std::filesystem;

namespace {

constexpr const char* kTokens[] = {"\"",  "{",  "}",   "[",    "]",     ",",    ":",          "\\",
                                   "nan", "\\u", "},{", "null", "\"ph\"", "\"X\"", "\"args\":{", "traceEvents"};

Bytes read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

void mutate(Bytes& input, const Bytes& other, Dice& dice) {
  size_t at = dice.below(input.size() + 1), run = 1 + dice.below(dice.below(8) ? 4 : 64);
  auto here = input.begin() + static_cast<std::ptrdiff_t>(at);
  size_t left = std::min(run, input.size() - at);
  switch (dice.below(6)) {
    case 0:
      if (at < input.size()) input[at] ^= static_cast<uint8_t>(1u << dice.below(8));
      break;
    case 1: input.erase(here, here + static_cast<std::ptrdiff_t>(left)); break;
    case 2: {
      const char* token = kTokens[dice.below(sizeof kTokens / sizeof *kTokens)];
      input.insert(here, token, token + strlen(token));
      break;
    }
    case 3: input.insert(here, run * (dice.below(99) ? 1 : 300), static_cast<uint8_t>(dice.next())); break;
    case 4: {  // a part of another
      if (other.empty()) break;
      size_t from = dice.below(other.size()), size = std::min<size_t>(1 + dice.below(200), other.size() - from);
      Bytes part(other.begin() + static_cast<std::ptrdiff_t>(from),
                 other.begin() + static_cast<std::ptrdiff_t>(from + size));
      input.insert(here, part.begin(), part.end());
      break;
    }
    default: input.resize(at);
  }
}

string last_input;
void keep(const Bytes& input) {  // what was run when it crashed
  std::ofstream(last_input, std::ios::binary).write(reinterpret_cast<const char*>(input.data()),
                                                    static_cast<std::streamsize>(input.size()));
}

}  // namespace

int main(int count, char** arguments) {
  long seconds = 10;
  uint64_t seed = static_cast<uint64_t>(time(nullptr));
  fs::path corpus;
  for (int k = 1; k < count; k++) {
    if (sscanf(arguments[k], "-max_total_time=%ld", &seconds) == 1) continue;
    if (sscanf(arguments[k], "-seed=%lu", &seed) == 1) continue;
    if (arguments[k][0] != '-') corpus = arguments[k];
  }
  std::vector<Bytes> seeds;
  if (fs::is_regular_file(corpus)) return LLVMFuzzerTestOneInput(read(corpus).data(), read(corpus).size());
  for (auto& file : fs::directory_iterator(corpus)) seeds.push_back(read(file.path()));
  CHECK(!seeds.empty());
  last_input = string(arguments[0]) + ".last_input";
  Dice dice{seed * 2654435761u + 1};
  size_t runs = 0;
  for (time_t until = time(nullptr) + seconds; time(nullptr) < until; runs++) {
    Bytes input = seeds[dice.below(seeds.size())];
    if (input.size() > 65536) input.resize(65536);
    for (size_t changes = 1 + dice.below(5); changes; changes--)
      mutate(input, seeds[dice.below(seeds.size())], dice);
    keep(input);
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  printf("Done %zu runs in %ld second(s), seed %lu\n", runs, seconds, static_cast<unsigned long>(seed));
  fs::remove(last_input);
}
