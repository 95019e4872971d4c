// Mathematical functions: float and double directly, narrower floats by way of float. The six that kernels spend their time
// in are ours for float, the others the C library's.

namespace tile {

// exp2, exp, log2, log, tanh and erf of float: no branch and no call, so that a loop over them becomes vector code. Within
// 2 units in the last place, and the same on every machine. The polynomials are minimax fits, made for these intervals.

template <class T> inline T clamp(T x, T low, T high) {  // a NaN stays one
    const T raised = x < low ? low : x;
    return raised > high ? high : raised;
}

// The nearest integer of |x| < 2^22, as a float and as a number.
struct Nearest { float value; int32_t number; };
inline Nearest nearest(float x) {
    const float shifted = x + 0x1.8p23f;
    return {shifted - 0x1.8p23f, int32_t(bits_as<uint32_t>(shifted) - 0x4b400000u)};
}

// x * 2^n by two factors, since 2^n alone may be no float; what is subnormal is rounded once.
inline float times_power(float x, int32_t n) {
    const int32_t half = n >> 1;
    return x * bits_as<float>(uint32_t(half + 127) << 23) * bits_as<float>((uint32_t(n) - uint32_t(half) + 127u) << 23);
}

inline float exp2(float x) {
    const float bounded = clamp(x, -160.0f, 130.0f);
    const Nearest whole = nearest(bounded);
    const float f = bounded - whole.value;  // in [-1/2, 1/2]
    const float p = ((((1.5353362e-4f * f + 1.3398875e-3f) * f + 9.6184369e-3f) * f + 5.5503324e-2f) * f + 0.24022648f) * f;
    return times_power(1.0f + f * (p + 0.69314718f), whole.number);
}

constexpr float ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f;  // a product of the first with an exponent is exact

inline float exp(float x) {
    const float bounded = clamp(x, -110.0f, 95.0f);
    const Nearest whole = nearest(bounded * 1.44269504f);
    const float r = (bounded - whole.value * ln2_high) - whole.value * ln2_low;  // in [-ln(2)/2, ln(2)/2]
    const float p = (((1.3814602e-3f * r + 8.3687156e-3f) * r + 4.1668389e-2f) * r + 0.16666521f) * r + 0.49999994f;
    return times_power(1.0f + (r + r * r * p), whole.number);
}

// A positive x as m * 2^exponent with m in [1/sqrt(2), sqrt(2)): m - 1, and ln(m) without that.
struct Logarithm { float exponent, above, rest; };
inline Logarithm logarithm(float x) {
    const bool subnormal = x < 0x1p-126f;
    const uint32_t bits = bits_as<uint32_t>(subnormal ? x * 0x1p23f : x);
    const int32_t exponent = int32_t(bits - 0x3f3504f3u) >> 23;
    const float t = bits_as<float>(bits - (uint32_t(exponent) << 23)) - 1.0f;
    const float q = ((-7.6344974e-2f * t + 0.12761582f) * t - 0.13160184f) * t + 0.14201757f;
    const float p = (((q * t - 0.16623357f) * t + 0.20001227f) * t - 0.2500082f) * t + 0.33333331f;
    return {float(exponent) - (subnormal ? 23.0f : 0.0f), t, t * t * (t * p - 0.5f)};
}
inline float special_logarithm(float x, float result) {
    result = x == infinity ? infinity : result;
    return x > 0.0f ? result : x == 0.0f ? -infinity : nan;
}

inline float log(float x) {
    const Logarithm of = logarithm(x);
    return special_logarithm(x, of.exponent * ln2_high + (of.above + (of.rest + of.exponent * ln2_low)));
}

inline float log2(float x) {
    const Logarithm of = logarithm(x);
    const float natural = of.above + of.rest;
    return special_logarithm(x, of.exponent + (natural + natural * 0.44269504f));
}

inline float tanh(float x) {
    const float size = __builtin_fabsf(x), square = size * size;
    const float p = ((-5.7049845e-3f * square + 2.0639084e-2f) * square - 5.3739715e-2f) * square + 0.13331442f;
    const float small = size + size * square * (p * square - 0.33333281f);
    return __builtin_copysignf(size < 0.625f ? small : 1.0f - 2.0f / (exp(2.0f * size) + 1.0f), x);
}

inline float erf(float x) {
    const float size = __builtin_fabsf(x), square = size * size;
    const float s = ((7.8535246e-5f * square - 8.0100837e-4f) * square + 5.1883138e-3f) * square - 2.6853804e-2f;
    const float small = size + size * (((s * square + 0.11283585f) * square - 0.37612626f) * square + 0.12837917f);
    const float t = size > 4.0f ? 4.0f : size;  // from here on 1 - erf is less than half a unit in the last place
    const float q = ((-3.1303003e-5f * t + 6.3690991e-4f) * t - 6.0669407e-3f) * t + 3.6370825e-2f;
    const float exponent = (((q * t - 0.15642001f) * t - 0.91353816f) * t - 1.6296399f) * t + 2.718999e-4f;
    return __builtin_copysignf(size < 1.0f ? small : 1.0f - exp2(exponent), x);
}

#define TILE_MATH_OURS(name)                                                                    \
    inline double name(double x) { return __builtin_##name(x); }                                \
    template <class F> inline narrow<F> name(narrow<F> x) { return narrow<F>(name(float(x))); }
TILE_MATH_OURS(exp)
TILE_MATH_OURS(exp2)
TILE_MATH_OURS(log)
TILE_MATH_OURS(log2)
TILE_MATH_OURS(tanh)
TILE_MATH_OURS(erf)
#undef TILE_MATH_OURS

#define TILE_MATH_1(name, builtin)                                                              \
    inline float name(float x) { return __builtin_##builtin##f(x); }                            \
    inline double name(double x) { return __builtin_##builtin(x); }                             \
    template <class F> inline narrow<F> name(narrow<F> x) { return narrow<F>(name(float(x))); }
TILE_MATH_1(expm1, expm1)
TILE_MATH_1(log10, log10)
TILE_MATH_1(log1p, log1p)
TILE_MATH_1(sqrt, sqrt)
TILE_MATH_1(sin, sin)
TILE_MATH_1(cos, cos)
TILE_MATH_1(tan, tan)
TILE_MATH_1(sinh, sinh)
TILE_MATH_1(cosh, cosh)
TILE_MATH_1(asin, asin)
TILE_MATH_1(acos, acos)
TILE_MATH_1(atan, atan)
TILE_MATH_1(asinh, asinh)
TILE_MATH_1(acosh, acosh)
TILE_MATH_1(atanh, atanh)
TILE_MATH_1(floor, floor)
TILE_MATH_1(ceil, ceil)
TILE_MATH_1(trunc, trunc)
TILE_MATH_1(round, rint)  // ties to even
TILE_MATH_1(nearbyint, rint)
TILE_MATH_1(abs, fabs)
#undef TILE_MATH_1

#define TILE_MATH_2(name, builtin)                                                              \
    inline float name(float x, float y) { return __builtin_##builtin##f(x, y); }                \
    inline double name(double x, double y) { return __builtin_##builtin(x, y); }                \
    template <class F> inline narrow<F> name(narrow<F> x, narrow<F> y) {                        \
        return narrow<F>(name(float(x), float(y)));                                             \
    }
TILE_MATH_2(pow, pow)
TILE_MATH_2(fmod, fmod)
TILE_MATH_2(hypot, hypot)
TILE_MATH_2(atan2, atan2)
TILE_MATH_2(copysign, copysign)
#undef TILE_MATH_2

inline float exp10(float x) { return float(__builtin_pow(10.0, double(x))); }
inline double exp10(double x) { return __builtin_pow(10.0, x); }
template <class F> inline narrow<F> exp10(narrow<F> x) { return narrow<F>(exp10(float(x))); }

// Integer power by repeated squaring, wrapping; a negative exponent leaves the integer part of 1 / x^n.
template <class T> inline T integer_pow(T x, int64_t exponent) {
    if (exponent < 0) return x == T(1) ? T(1) : x == T(-1) ? (exponent % 2 == 0 ? T(1) : T(-1)) : T(0);
    T result = T(1);
    for (; exponent > 0; exponent /= 2) {
        if (exponent % 2 == 1) result = mul<T>(result, x);
        x = mul<T>(x, x);
    }
    return result;
}

// Functions with an obvious formula, each evaluated in float for the narrower types.
template <class T> inline T rsqrt(T x) {
    if constexpr (is_builtin_float<T>) return T(1) / sqrt(x); else return T(rsqrt(float(x)));
}
template <class T> inline T rcp(T x) {
    if constexpr (is_builtin_float<T>) return T(1) / x; else return T(1.0f / float(x));
}
template <class T> inline T sigmoid(T x) {
    if constexpr (is_builtin_float<T>) return T(1) / (T(1) + exp(-x)); else return T(sigmoid(float(x)));
}

template <class T> inline bool isnan(T x) { return x != x; }
template <class T> inline bool isinf(T x) {
    if constexpr (same_type<T, double>) return abs(x) == __builtin_inf(); else return abs(float(x)) == __builtin_inff();
}
template <class T> inline bool isfinite(T x) { return !isnan(x) && !isinf(x); }

// Float minimum and maximum: a NaN operand is ignored, as the min and max instructions of GPUs do. The propagating forms
// give NaN as soon as one operand is.
template <class T> inline T min(T a, T b) { return a < b || b != b ? a : b; }
template <class T> inline T max(T a, T b) { return a > b || b != b ? a : b; }
template <class T> inline T min_nan(T a, T b) { return a < b || a != a ? a : b; }
template <class T> inline T max_nan(T a, T b) { return a > b || a != a ? a : b; }

inline float ldexp(float x, int exponent) { return __builtin_ldexpf(x, exponent); }
inline double ldexp(double x, int exponent) { return __builtin_ldexp(x, exponent); }
template <class F> inline narrow<F> ldexp(narrow<F> x, int exponent) { return narrow<F>(ldexp(float(x), exponent)); }

inline float nextafter(float x, float y) { return __builtin_nextafterf(x, y); }
inline double nextafter(double x, double y) { return __builtin_nextafter(x, y); }

template <class F> inline narrow<F> nextafter(narrow<F> x, narrow<F> y) {
    const float from = float(x), to = float(y);
    if (from != from || to != to) return narrow<F>(nan);
    if (from == to) return y;
    narrow<F> result = x;
    if (from == 0) {
        result.bits = 1;
        return to > 0 ? result : narrow<F>(-float(result));
    }
    result.bits = typename F::Bits(x.bits + ((to > from) == (from > 0) ? 1 : -1));
    return result;
}

// a * b + c rounded once. A product of narrow floats is exact in float and their sum, made odd when inexact, in double.
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
template <class F> inline narrow<F> fma(narrow<F> a, narrow<F> b, narrow<F> c) {
    const double product = double(float(a)) * double(float(b)), addend = float(c), sum = product + addend;
    const double part = sum - product, error = (product - (sum - part)) + (addend - part);  // exact: sum + error
    uint64_t bits = bits_as<uint64_t>(sum);
    if (error != 0 && (bits & 1) == 0) bits += (error > 0) == (sum > 0) ? 1 : uint64_t(-1);
    return narrow<F>(bits_as<double>(bits));
}

template <class T> inline int popcount(T x) { return __builtin_popcountll(uint64_t(typename unsigned_of<sizeof(T)>::type(x)) &
                                                                         (~uint64_t(0) >> (64 - 8 * sizeof(T)))); }
// Leading zero bits; of 0, the width.
template <class T> inline int clz(T x) {
    const uint64_t bits = uint64_t(x) << (64 - 8 * sizeof(T));
    return bits == 0 ? 8 * int(sizeof(T)) : __builtin_clzll(bits);
}

// What max and min start from, and the absolute value, for every type an element may have.
template <class T> inline T least() {
    if constexpr (same_type<T, double>) return -__builtin_inf();
    else if constexpr (is_integer<T>) return is_signed<T> ? T(uint64_t(1) << (8 * sizeof(T) - 1)) : T(0);
    else return convert<T>(-__builtin_inff());
}
template <class T> inline T largest() {
    if constexpr (same_type<T, double>) return __builtin_inf();
    else if constexpr (is_integer<T>) return T(~least<T>());
    else return convert<T>(__builtin_inff());
}
template <class T> inline T magnitude(T x) {
    if constexpr (is_integer<T>) return x < T(0) ? sub<T>(T(0), x) : x; else return T(abs(x));
}

}  // namespace tile
