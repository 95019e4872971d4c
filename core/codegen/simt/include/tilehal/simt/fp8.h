// 8-bit floats (OCP e4m3, S.1111.111 = NaN, no infinity; and e5m2): conversions in software, exact on every chip.
// From float: to nearest, ties to even, saturating at the largest finite value; NaN stays NaN.
#pragma once

#include "types.h"

namespace tilehal {

// ExponentBits + MantissaBits = 7. HighestFinite is the bit pattern of the largest finite value.
template <int ExponentBits, int MantissaBits, unsigned char HighestFinite> TILEHAL_DEVICE unsigned char float_to_8(float value) {
  constexpr int bias = (1 << (ExponentBits - 1)) - 1;
  const unsigned int u = bits_as<unsigned int>(value);
  const unsigned char sign = (unsigned char)((u >> 24) & 0x80u);
  const unsigned int magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return (unsigned char)(sign | 0x7fu);
  if (magnitude == 0) return sign;
  int exponent = (int)(magnitude >> 23) - 127;
  // The mantissa with its hidden bit, and how many of its 24 bits fall off; more below the normal range.
  const unsigned int mantissa = exponent == -127 ? magnitude & 0x7fffffu : (magnitude & 0x7fffffu) | 0x800000u;
  if (exponent == -127) exponent = -126;
  const int below = exponent < 1 - bias ? (1 - bias) - exponent : 0;
  const int drop = 23 - MantissaBits + below;
  if (drop > 24) return sign;
  unsigned int kept = mantissa >> drop;
  const unsigned int rest = mantissa & ((1u << drop) - 1u), half = 1u << (drop - 1);
  if (rest > half || (rest == half && (kept & 1u))) ++kept;
  // Adding the exponent above the mantissa lets a carry move to the next binade by itself.
  const int field = below ? 0 : exponent + bias - 1;
  const unsigned int pattern = ((unsigned int)field << MantissaBits) + kept;
  return (unsigned char)(sign | (pattern > HighestFinite ? HighestFinite : pattern));
}

template <int ExponentBits, int MantissaBits> TILEHAL_DEVICE float float_from_8(unsigned char data) {
  constexpr int bias = (1 << (ExponentBits - 1)) - 1;
  const unsigned int exponent = (data & 0x7fu) >> MantissaBits, mantissa = data & ((1u << MantissaBits) - 1u);
  const float scale = bits_as<float>((unsigned int)((exponent ? (int)exponent : 1) - bias - MantissaBits + 127) << 23);
  const float value = scale * (float)(exponent ? mantissa | (1u << MantissaBits) : mantissa);
  return data & 0x80u ? -value : value;
}

struct e4m3 {
  unsigned char data;
  e4m3() = default;
  template <typename T> TILEHAL_DEVICE e4m3(T value) : data(float_to_8<4, 3, 0x7e>((float)value)) {}
  TILEHAL_DEVICE operator float() const {
    return (data & 0x7fu) == 0x7fu ? bits_as<float>(0x7fc00000u) : float_from_8<4, 3>(data);
  }
};

struct e5m2 {
  unsigned char data;
  e5m2() = default;
  template <typename T> TILEHAL_DEVICE e5m2(T value) : data(float_to_8<5, 2, 0x7b>((float)value)) {}
  TILEHAL_DEVICE operator float() const {
    if ((data & 0x7fu) > 0x7cu) return bits_as<float>(0x7fc00000u);
    if ((data & 0x7fu) == 0x7cu) return bits_as<float>(data & 0x80u ? 0xff800000u : 0x7f800000u);
    return float_from_8<5, 2>(data);
  }
};

// Vectors, laid out as their elements in order.
template <typename T> struct alignas(2) pair8 {
  T x, y;
};
template <typename T> struct alignas(4) quad8 {
  T x, y, z, w;
};
template <typename T> struct alignas(8) octet8 {
  quad8<T> x, y;
};
template <typename T> struct alignas(16) sixteen8 {
  octet8<T> x, y;
};
template <typename T> struct alignas(16) thirtytwo8 {
  sixteen8<T> x, y;
};

template <typename Scalar, typename Pair> TILEHAL_DEVICE Scalar get_lane(const Pair &pair, int lane) {
  return lane == 0 ? pair.x : pair.y;
}
template <typename Pair, typename Scalar> TILEHAL_DEVICE void set_lane(Pair &pair, int lane, Scalar value) {
  (lane == 0 ? pair.x : pair.y) = value;
}

template <typename T> TILEHAL_DEVICE pair8<T> make_pair8(T x, T y) { return {x, y}; }
template <typename T> TILEHAL_DEVICE quad8<T> make_quad8(T a, T b, T c, T d) { return {a, b, c, d}; }
template <typename T> TILEHAL_DEVICE octet8<T> make_octet8(T a, T b, T c, T d, T e, T f, T g, T h) {
  return {{a, b, c, d}, {e, f, g, h}};
}
template <typename T, typename... Rest> TILEHAL_DEVICE sixteen8<T> make_sixteen8(T first, Rest... rest) {
  static_assert(sizeof...(Rest) == 15, "sixteen elements");
  const T values[16] = {first, rest...};
  sixteen8<T> result;
  __builtin_memcpy(&result, values, sizeof(result));
  return result;
}

} // namespace tilehal
