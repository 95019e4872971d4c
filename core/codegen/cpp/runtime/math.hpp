// Mathematical functions through the C library: float and double directly, narrower floats by way of float.

namespace tile {

#define TILE_MATH_1(name, builtin)                                                              \
    inline float name(float x) { return __builtin_##builtin##f(x); }                            \
    inline double name(double x) { return __builtin_##builtin(x); }                             \
    template <class F> inline narrow<F> name(narrow<F> x) { return narrow<F>(name(float(x))); }
TILE_MATH_1(exp, exp)
TILE_MATH_1(exp2, exp2)
TILE_MATH_1(expm1, expm1)
TILE_MATH_1(log, log)
TILE_MATH_1(log2, log2)
TILE_MATH_1(log10, log10)
TILE_MATH_1(log1p, log1p)
TILE_MATH_1(sqrt, sqrt)
TILE_MATH_1(tanh, tanh)
TILE_MATH_1(erf, erf)
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

template <class T> inline T clamp(T x, T low, T high) {  // a NaN stays one
    const T raised = x < low ? low : x;
    return raised > high ? high : raised;
}

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
