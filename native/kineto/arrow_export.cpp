#include "arrow_export.h"

#include <cstddef>
#include <cstring>
#include <new>

#include "blocks.h"

namespace kineto {

namespace {

struct Lease {  // what an exported array keeps alive
  Owner owner;
  const void* buffers[3] = {nullptr, nullptr, nullptr};
  void* owned[3] = {nullptr, nullptr, nullptr};
  ArrowArray dictionary;
  ~Lease() {
    for (void* block : owned) release(block);
  }
};

void release_array(ArrowArray* array) {
  if (array->dictionary && array->dictionary->release) array->dictionary->release(array->dictionary);
  delete static_cast<Lease*>(array->private_data);
  array->release = nullptr;
}

void release_schema(ArrowSchema* schema) {
  if (schema->dictionary) {
    schema->dictionary->release(schema->dictionary);
    delete schema->dictionary;
  }
  schema->release = nullptr;
}

void init_schema(ArrowSchema* schema, const char* format, ArrowSchema* dictionary) {
  memset(schema, 0, sizeof *schema);
  schema->format = format;
  schema->name = "";
  schema->flags = 2;  // nullable
  schema->dictionary = dictionary;
  schema->release = release_schema;
}

Lease* init_array(ArrowArray* array, const Owner& owner, size_t length, int buffers) {
  memset(array, 0, sizeof *array);
  Lease* lease = new Lease;
  lease->owner = owner;
  array->length = static_cast<int64_t>(length);
  array->n_buffers = buffers;
  array->buffers = lease->buffers;
  array->private_data = lease;
  array->release = release_array;
  return lease;
}

template <class T>
void take(Lease* lease, int number, T*& block) {  // the lease frees it
  lease->buffers[number] = lease->owned[number] = block;
  block = nullptr;
}

void export_dictionary(const Dictionary& dictionary, ArrowArray* array) {
  size_t n = dictionary.values.size(), filled = 0;
  Lease* lease = init_array(array, nullptr, n, 3);
  auto* offsets = static_cast<int32_t*>(allocate(4 * (n + 1)));
  auto* text = static_cast<char*>(allocate(dictionary.bytes + 1));
  lease->owned[1] = offsets;
  lease->owned[2] = text;
  if (!offsets || !text) throw std::bad_alloc();
  for (size_t i = 0; i < n; i++) {
    offsets[i] = static_cast<int32_t>(filled);
    memcpy(text + filled, dictionary.values[i].data(), dictionary.values[i].size());
    filled += dictionary.values[i].size();
  }
  offsets[n] = static_cast<int32_t>(filled);
  lease->buffers[1] = offsets;
  lease->buffers[2] = text;
}

}  // namespace

void export_values(const Owner& owner, const Column& column, ArrowSchema* schema, ArrowArray* array) {
  Lease* lease = init_array(array, owner, column.size, 2);
  if (column.kind < kText) {
    init_schema(schema, column.kind == kFloat ? "g" : "l", nullptr);
    lease->buffers[1] = column.numbers.data;
  } else {
    ArrowSchema* texts = new ArrowSchema;
    init_schema(texts, "u", nullptr);
    init_schema(schema, "i", texts);
    lease->buffers[1] = column.codes.data;
    export_dictionary(*column.dictionary, &lease->dictionary);
    array->dictionary = &lease->dictionary;
  }
  if (!lease->buffers[1]) lease->buffers[1] = lease;  // an empty array must point somewhere
}

void export_rows(const Owner& owner, const Column& column, ArrowSchema* schema, ArrowArray* array) {
  init_schema(schema, "I", nullptr);
  init_array(array, owner, column.size, 2)->buffers[1] = column.rows.data;
}

void export_selected(Selected& selected, Target target, ArrowSchema* schema, ArrowArray* array) {
  const bool has_texts = target == kTexts;
  ArrowSchema* texts = has_texts ? new ArrowSchema : nullptr;
  if (texts) init_schema(texts, "u", nullptr);
  init_schema(schema, target == kInt64 ? "l" : target == kFloat64 ? "g" : "i", texts);
  Lease* lease = init_array(array, nullptr, selected.length, 2);
  take(lease, 0, selected.valid);
  take(lease, 1, selected.values);
  array->null_count = target == kCodes ? 0 : static_cast<int64_t>(selected.nulls);
  if (!has_texts) return;
  Lease* values = init_array(&lease->dictionary, nullptr, selected.texts, 3);
  take(values, 1, selected.offsets);
  take(values, 2, selected.text);
  array->dictionary = &lease->dictionary;
}

}  // namespace kineto
