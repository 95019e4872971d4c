// MACA's 8-bit floats, on the simulator: storage and conversion to float (OCP e4m3 without infinities, and e5m2).
#pragma once

#include <mcr/mc_runtime.h>

typedef unsigned char __maca_fp8_storage_t;
typedef unsigned short __maca_fp8x2_storage_t;

namespace tilehal_sim {
inline float from_fp8(unsigned char data, int mantissa_bits, bool infinities) {
  const int exponent_bits = 7 - mantissa_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = data >> mantissa_bits & ((1 << exponent_bits) - 1), mantissa = data & ((1 << mantissa_bits) - 1);
  const bool top = exponent == (1 << exponent_bits) - 1;
  float value;
  if (top && infinities)
    value = mantissa ? NAN : INFINITY;
  else if (top && mantissa == (1 << mantissa_bits) - 1)
    value = NAN;
  else
    value = exponent ? ldexpf((float)(mantissa | 1 << mantissa_bits), exponent - bias - mantissa_bits)
                     : ldexpf((float)mantissa, 1 - bias - mantissa_bits);
  return data & 0x80 ? -value : value;
}
} // namespace tilehal_sim

struct __maca_fp8_e4m3 {
  __maca_fp8_storage_t __x;
  explicit operator float() const { return tilehal_sim::from_fp8(__x, 3, false); }
};
struct __maca_fp8_e5m2 {
  __maca_fp8_storage_t __x;
  explicit operator float() const { return tilehal_sim::from_fp8(__x, 2, true); }
};
