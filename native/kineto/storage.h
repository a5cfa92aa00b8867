// Memory of columns and texts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "blocks.h"
#include "bytes.h"

namespace kineto {

// A vector of plain values grown by realloc: large blocks move by remapping, not by copying.
template <class T>
struct Vec {
  T* data = nullptr;
  size_t size = 0, capacity = 0;
  Vec() = default;
  Vec(const Vec&) = delete;
  Vec& operator=(const Vec&) = delete;
  Vec(Vec&& other) noexcept : data(other.data), size(other.size), capacity(other.capacity) {
    other.data = nullptr;
    other.size = other.capacity = 0;
  }
  ~Vec() { release(data); }
  void reserve(size_t wanted) {
    if (wanted <= capacity) return;
    T* grown = static_cast<T*>(resize(data, wanted * sizeof(T)));
    if (!grown) throw std::bad_alloc();
    data = grown;
    capacity = wanted;
  }
  void push(T value) {
    if (size == capacity) reserve(capacity ? capacity * 2 : 16);
    data[size++] = value;
  }
};

// Text that never moves, with room behind each piece for a 16-byte load.
struct Arena {
  std::vector<std::unique_ptr<char[]>> blocks;
  char* free_at = nullptr;
  size_t left = 0;
  Ptr put(Ptr text, size_t size) {
    size_t need = size + 16;
    if (need > left) {
      left = std::max(need, size_t(1) << 16);
      blocks.emplace_back(new char[left]);
      free_at = blocks.back().get();
    }
    char* kept = free_at;
    if (size) memcpy(kept, text, size);
    free_at += size;
    left -= size;
    return kept;
  }
};

}  // namespace kineto
