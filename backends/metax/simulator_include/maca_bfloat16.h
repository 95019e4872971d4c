// MACA's bfloat16, on the simulator: arithmetic in float, rounded to nearest, ties to even.
#pragma once

#include <mcr/mc_runtime.h>

struct maca_bfloat16 {
  unsigned short bits;

  maca_bfloat16() = default;
  maca_bfloat16(float value) {
    const unsigned int u = __float_as_uint(value);
    bits = value != value ? (unsigned short)(u >> 16 | 0x40u) : (unsigned short)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
  }
  operator float() const { return __uint_as_float((unsigned int)bits << 16); }
};
struct maca_bfloat162 {
  maca_bfloat16 x, y;
};

inline maca_bfloat16 __float2bfloat16(float x) { return maca_bfloat16(x); }
inline float __bfloat162float(maca_bfloat16 x) { return (float)x; }
