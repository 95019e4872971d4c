// MACA's half precision, on the simulator.
#pragma once

#include <mcr/mc_runtime.h>

using __half = _Float16;
struct __half2 {
  __half x, y;
};
using half = __half;
using half2 = __half2;

inline __half __float2half(float x) { return (__half)x; }
inline __half __float2half_rn(float x) { return (__half)x; }
inline float __half2float(__half x) { return (float)x; }
inline __half __hadd(__half a, __half b) { return (__half)((float)a + (float)b); }
inline __half __hsub(__half a, __half b) { return (__half)((float)a - (float)b); }
inline __half __hmul(__half a, __half b) { return (__half)((float)a * (float)b); }
inline __half __hfma(__half a, __half b, __half c) { return (__half)((double)a * (double)b + (double)c); }
inline __half __habs(__half a) { return (__half)fabsf((float)a); }
inline __half __hmax(__half a, __half b) { return (__half)fmaxf((float)a, (float)b); }
inline __half __hmin(__half a, __half b) { return (__half)fminf((float)a, (float)b); }
inline __half hexp(__half a) { return (__half)expf((float)a); }
inline __half hexp2(__half a) { return (__half)exp2f((float)a); }
inline __half hlog(__half a) { return (__half)logf((float)a); }
inline __half hsqrt(__half a) { return (__half)sqrtf((float)a); }
inline __half hrsqrt(__half a) { return (__half)(1.0f / sqrtf((float)a)); }
