// The small vectors of CUDA-like languages, with their sizes and alignments.
#pragma once

#define TILEHAL_SIM_VECTOR(BASE, NAME, ALIGN2, ALIGN4)                                                                 \
  struct NAME##1 {                                                                                                     \
    BASE x;                                                                                                            \
  };                                                                                                                   \
  struct alignas(ALIGN2) NAME##2 {                                                                                     \
    BASE x, y;                                                                                                         \
  };                                                                                                                   \
  struct NAME##3 {                                                                                                     \
    BASE x, y, z;                                                                                                      \
  };                                                                                                                   \
  struct alignas(ALIGN4) NAME##4 {                                                                                     \
    BASE x, y, z, w;                                                                                                   \
  };                                                                                                                   \
  inline NAME##1 make_##NAME##1(BASE x) { return {x}; }                                                                \
  inline NAME##2 make_##NAME##2(BASE x, BASE y) { return {x, y}; }                                                     \
  inline NAME##3 make_##NAME##3(BASE x, BASE y, BASE z) { return {x, y, z}; }                                          \
  inline NAME##4 make_##NAME##4(BASE x, BASE y, BASE z, BASE w) { return {x, y, z, w}; }

TILEHAL_SIM_VECTOR(signed char, char, 2, 4)
TILEHAL_SIM_VECTOR(unsigned char, uchar, 2, 4)
TILEHAL_SIM_VECTOR(short, short, 4, 8)
TILEHAL_SIM_VECTOR(unsigned short, ushort, 4, 8)
TILEHAL_SIM_VECTOR(int, int, 8, 16)
TILEHAL_SIM_VECTOR(unsigned int, uint, 8, 16)
TILEHAL_SIM_VECTOR(long, long, 16, 16)
TILEHAL_SIM_VECTOR(unsigned long, ulong, 16, 16)
TILEHAL_SIM_VECTOR(long long, longlong, 16, 16)
TILEHAL_SIM_VECTOR(unsigned long long, ulonglong, 16, 16)
TILEHAL_SIM_VECTOR(float, float, 8, 16)
TILEHAL_SIM_VECTOR(double, double, 16, 16)

#undef TILEHAL_SIM_VECTOR
