// Numbers that the parser's quick paths leave: signs, exponents, many digits, other spellings.
#pragma once

#include <cstdint>

#include "bytes.h"

namespace kineto {

// Decimal text to an integer of 10^-scale units: exact, half to even where digits are lost (lost says so). False: it is
// no decimal number, or too large.
bool decimal(Ptr begin, Ptr end, int scale, int64_t& out, bool& lost);

// "0x1f": stream handles of ROCm.
bool hexadecimal(Ptr begin, Ptr end, int64_t& out);

// JSON number text, NaN or Infinity; rounded right, whatever the locale.
bool floating(Ptr begin, Ptr end, double& out);

}  // namespace kineto
