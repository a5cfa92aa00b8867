// Text as it is kept: without escapes, without white space around its tokens, valid UTF-8. Runs once per distinct text.
#pragma once

#include <string>

#include "bytes.h"

namespace kineto {

// The inside of a JSON string. An escape JSON does not know (a Windows path) stays as it stands.
std::string unescape(Ptr begin, Ptr end);

// JSON without the white space outside its strings.
std::string compact(Ptr begin, Ptr end);

// What is no UTF-8 becomes U+FFFD, as Python's errors="replace" does it.
void repair_utf8(std::string& text);

}  // namespace kineto
