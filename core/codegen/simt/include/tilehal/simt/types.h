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
  TILEHAL_DEVICE bfloat16(unsigned long value) : bits(round((float)value)) {}
  TILEHAL_DEVICE bfloat16(long long value) : bits(round((float)value)) {}
  TILEHAL_DEVICE bfloat16(unsigned long long value) : bits(round((float)value)) {}
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

// An integer vector from its components, or from as many narrower integers as fill it: generated code packs sixteen
// 8-bit or eight 16-bit values into an int4.
template <int Bytes> struct packed_integer;
template <> struct packed_integer<1> { using type = signed char; };
template <> struct packed_integer<2> { using type = short; };
template <> struct packed_integer<4> { using type = int; };
template <> struct packed_integer<8> { using type = long long; };
template <typename Vector, typename... Parts> TILEHAL_DEVICE Vector make_vector(Parts... parts) {
  using Part = typename packed_integer<sizeof(Vector) / sizeof...(Parts)>::type;
  static_assert(sizeof(Part) * sizeof...(Parts) == sizeof(Vector), "the parts fill the vector");
  const Part values[] = {(Part)parts...};
  Vector result;
  __builtin_memcpy(&result, values, sizeof(Vector));
  return result;
}

} // namespace tilehal

using bfloat16_t = tilehal::bfloat16;
