// Arithmetic that generated kernels call by name. NaN rules: max and min of floats return the other operand.
#pragma once

#include "types.h"

namespace tilehal {

template <typename T> TILEHAL_DEVICE T max(T x, T y) { return x > y ? x : y; }
template <typename T> TILEHAL_DEVICE T min(T x, T y) { return x < y ? x : y; }
template <> TILEHAL_DEVICE float max(float x, float y) { return fmaxf(x, y); }
template <> TILEHAL_DEVICE float min(float x, float y) { return fminf(x, y); }
template <> TILEHAL_DEVICE double max(double x, double y) { return fmax(x, y); }
template <> TILEHAL_DEVICE double min(double x, double y) { return fmin(x, y); }
template <> TILEHAL_DEVICE half_t max(half_t x, half_t y) { return (half_t)fmaxf((float)x, (float)y); }
template <> TILEHAL_DEVICE half_t min(half_t x, half_t y) { return (half_t)fminf((float)x, (float)y); }
template <> TILEHAL_DEVICE bfloat16 max(bfloat16 x, bfloat16 y) { return bfloat16(fmaxf((float)x, (float)y)); }
template <> TILEHAL_DEVICE bfloat16 min(bfloat16 x, bfloat16 y) { return bfloat16(fminf((float)x, (float)y)); }

// Magnitudes of 16-bit floats: the sign bit is cleared, NaN stays NaN.
TILEHAL_DEVICE half_t magnitude(half_t x) {
  return bits_as<half_t>((unsigned short)(bits_as<unsigned short>(x) & 0x7fffu));
}
TILEHAL_DEVICE bfloat16 magnitude(bfloat16 x) { return bits_as<bfloat16>((unsigned short)(x.bits & 0x7fffu)); }

// Functions of 16-bit floats compute in float and round once.
#define TILEHAL_NARROW(NAME, FUNCTION)                                                                                 \
  TILEHAL_DEVICE half_t NAME(half_t x) { return (half_t)FUNCTION((float)x); }                                          \
  TILEHAL_DEVICE bfloat16 NAME(bfloat16 x) { return bfloat16(FUNCTION((float)x)); }
TILEHAL_NARROW(narrow_exp, expf)
TILEHAL_NARROW(narrow_exp2, exp2f)
TILEHAL_NARROW(narrow_exp10, exp10f)
TILEHAL_NARROW(narrow_log, logf)
TILEHAL_NARROW(narrow_log2, log2f)
TILEHAL_NARROW(narrow_log10, log10f)
TILEHAL_NARROW(narrow_sin, sinf)
TILEHAL_NARROW(narrow_cos, cosf)
TILEHAL_NARROW(narrow_tan, tanf)
TILEHAL_NARROW(narrow_sinh, sinhf)
TILEHAL_NARROW(narrow_cosh, coshf)
TILEHAL_NARROW(narrow_tanh, tanhf)
TILEHAL_NARROW(narrow_asin, asinf)
TILEHAL_NARROW(narrow_acos, acosf)
TILEHAL_NARROW(narrow_atan, atanf)
TILEHAL_NARROW(narrow_asinh, asinhf)
TILEHAL_NARROW(narrow_acosh, acoshf)
TILEHAL_NARROW(narrow_atanh, atanhf)
TILEHAL_NARROW(narrow_erf, erff)
TILEHAL_NARROW(narrow_log1p, log1pf)
TILEHAL_NARROW(narrow_expm1, expm1f)
TILEHAL_NARROW(narrow_rsqrt, rsqrtf)
TILEHAL_NARROW(narrow_sqrt, sqrtf)
TILEHAL_NARROW(narrow_floor, floorf)
TILEHAL_NARROW(narrow_ceil, ceilf)
TILEHAL_NARROW(narrow_trunc, truncf)
TILEHAL_NARROW(narrow_round, nearbyintf)
#undef TILEHAL_NARROW
TILEHAL_DEVICE half_t narrow_pow(half_t x, half_t y) { return (half_t)powf((float)x, (float)y); }
TILEHAL_DEVICE bfloat16 narrow_pow(bfloat16 x, bfloat16 y) { return bfloat16(powf((float)x, (float)y)); }

// Two floats at a time.
TILEHAL_DEVICE float2 add2(float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); }
TILEHAL_DEVICE float2 sub2(float2 a, float2 b) { return make_float2(a.x - b.x, a.y - b.y); }
TILEHAL_DEVICE float2 mul2(float2 a, float2 b) { return make_float2(a.x * b.x, a.y * b.y); }
TILEHAL_DEVICE float2 fma2(float2 a, float2 b, float2 c) { return make_float2(fmaf(a.x, b.x, c.x), fmaf(a.y, b.y, c.y)); }
TILEHAL_DEVICE float2 max2(float2 a, float2 b) { return make_float2(fmaxf(a.x, b.x), fmaxf(a.y, b.y)); }
TILEHAL_DEVICE float2 min2(float2 a, float2 b) { return make_float2(fminf(a.x, b.x), fminf(a.y, b.y)); }
TILEHAL_DEVICE float2 abs2(float2 a) { return make_float2(fabsf(a.x), fabsf(a.y)); }

template <typename T> TILEHAL_DEVICE bool any(const T *values, int count) {
  for (int i = 0; i < count; ++i)
    if (values[i]) return true;
  return false;
}

template <typename T> TILEHAL_DEVICE bool all(const T *values, int count) {
  for (int i = 0; i < count; ++i)
    if (!values[i]) return false;
  return true;
}

struct Sum {
  template <typename T> TILEHAL_DEVICE T operator()(T x, T y) const { return (T)(x + y); }
};
struct Max {
  template <typename T> TILEHAL_DEVICE T operator()(T x, T y) const { return tilehal::max(x, y); }
};
struct Min {
  template <typename T> TILEHAL_DEVICE T operator()(T x, T y) const { return tilehal::min(x, y); }
};
struct BitAnd {
  template <typename T> TILEHAL_DEVICE T operator()(T x, T y) const { return (T)(x & y); }
};
struct BitOr {
  template <typename T> TILEHAL_DEVICE T operator()(T x, T y) const { return (T)(x | y); }
};
struct BitXor {
  template <typename T> TILEHAL_DEVICE T operator()(T x, T y) const { return (T)(x ^ y); }
};

} // namespace tilehal
