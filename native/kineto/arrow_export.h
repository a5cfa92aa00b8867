// Columns lent out without a copy: the Arrow C Data Interface (arrow.apache.org/docs/format/CDataInterface.html).
#pragma once

#include <cstdint>
#include <memory>

#include "column.h"
#include "selection.h"

struct ArrowSchema {
  const char *format, *name, *metadata;
  int64_t flags, n_children;
  ArrowSchema **children, *dictionary;
  void (*release)(ArrowSchema*);
  void* private_data;
};
struct ArrowArray {
  int64_t length, null_count, offset, n_buffers, n_children;
  const void** buffers;
  ArrowArray **children, *dictionary;
  void (*release)(ArrowArray*);
  void* private_data;
};

namespace kineto {

using Owner = std::shared_ptr<const void>;  // of the column; an exported array keeps it alive

void export_values(const Owner& owner, const Column& column, ArrowSchema* schema, ArrowArray* array);
void export_rows(const Owner& owner, const Column& column, ArrowSchema* schema, ArrowArray* array);
void export_selected(Selected& selected, Target target, ArrowSchema* schema, ArrowArray* array);  // takes its buffers

}  // namespace kineto
