// Element types and small vectors that generated kernels use, the same on every chip.
//
// The platform header, included before this one, defines half_t (an IEEE binary16 arithmetic type), the CUDA-style
// vectors float2/4, int2/4, uint1/2/4 with their make_ functions, and TILEHAL_DEVICE.
#pragma once

#ifndef TILEHAL_DEVICE
#error "include the platform's header first: it defines TILEHAL_DEVICE and tilehal::platform"
#endif

using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned int;

namespace tilehal {

template <typename To, typename From> TILEHAL_DEVICE To bits_as(From value) {
  static_assert(sizeof(To) == sizeof(From), "bits_as keeps the width");
  To result;
  __builtin_memcpy(&result, &value, sizeof(To));
  return result;
}

// bfloat16: the upper half of a float. Arithmetic is done in float and rounded to nearest, ties to even.
struct bfloat16 {
  unsigned short bits;

  bfloat16() = default;
  TILEHAL_DEVICE bfloat16(float value) : bits(round(value)) {}
  TILEHAL_DEVICE bfloat16(double value) : bits(round((float)value)) {}
  TILEHAL_DEVICE bfloat16(int value) : bits(round((float)value)) {}
  TILEHAL_DEVICE bfloat16(unsigned int value) : bits(round((float)value)) {}
  TILEHAL_DEVICE bfloat16(long value) : bits(round((float)value)) {}
  TILEHAL_DEVICE bfloat16(half_t value) : bits(round((float)value)) {}
  TILEHAL_DEVICE operator float() const { return bits_as<float>((unsigned int)bits << 16); }

  static TILEHAL_DEVICE unsigned short round(float value) {
    unsigned int u = bits_as<unsigned int>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (unsigned short)((u >> 16) | 0x40u);  // a quiet NaN stays one
    return (unsigned short)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
};

TILEHAL_DEVICE bfloat16 operator+(bfloat16 a, bfloat16 b) { return bfloat16((float)a + (float)b); }
TILEHAL_DEVICE bfloat16 operator-(bfloat16 a, bfloat16 b) { return bfloat16((float)a - (float)b); }
TILEHAL_DEVICE bfloat16 operator*(bfloat16 a, bfloat16 b) { return bfloat16((float)a * (float)b); }
TILEHAL_DEVICE bfloat16 operator/(bfloat16 a, bfloat16 b) { return bfloat16((float)a / (float)b); }
TILEHAL_DEVICE bfloat16 operator-(bfloat16 a) { return bits_as<bfloat16>((unsigned short)(a.bits ^ 0x8000u)); }
TILEHAL_DEVICE bfloat16 &operator+=(bfloat16 &a, bfloat16 b) { return a = a + b; }

struct half2 {
  half_t x, y;
};

struct bfloat16x2 {
  bfloat16 x, y;
};

template <typename T> TILEHAL_DEVICE unsigned int pack2(T low, T high) {
  static_assert(sizeof(T) == 2, "two 16-bit values make a word");
  return (unsigned int)bits_as<unsigned short>(low) | ((unsigned int)bits_as<unsigned short>(high) << 16);
}

} // namespace tilehal

using bfloat16_t = tilehal::bfloat16;
