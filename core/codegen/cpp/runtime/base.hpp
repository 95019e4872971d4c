// Numbers of tile kernels in plain C++17: the section every generated file starts with.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace tile {

template <class Format> struct narrow;  // floats of 16 and 8 bits: a section of its own, when a kernel has any

constexpr float infinity = __builtin_inff();
constexpr float nan = __builtin_nanf("");

// The same bits as another type.
template <class To, class From>
inline To bits_as(From value) {
    static_assert(sizeof(To) == sizeof(From), "bits_as needs two types of one size");
    To result;
    memcpy(&result, &value, sizeof(To));
    return result;
}

template <class A, class B> inline constexpr bool same_type = false;
template <class A> inline constexpr bool same_type<A, A> = true;
template <class T> inline constexpr bool is_builtin_float = same_type<T, float> || same_type<T, double>;
template <class T> inline constexpr bool is_integer =
    same_type<T, int8_t> || same_type<T, int16_t> || same_type<T, int32_t> || same_type<T, int64_t> ||
    same_type<T, uint8_t> || same_type<T, uint16_t> || same_type<T, uint32_t> || same_type<T, uint64_t>;
template <class T> inline constexpr bool is_signed = T(-1) < T(0);

template <size_t bytes> struct bits_of;
template <> struct bits_of<1> { using type = uint8_t; };
template <> struct bits_of<2> { using type = uint16_t; };
template <> struct bits_of<4> { using type = uint32_t; };
template <> struct bits_of<8> { using type = uint64_t; };

// The unsigned type in which integers of 1, 2, 4 or 8 bytes wrap; never narrower than int, which C++ promotes to anyway.
template <size_t bytes> struct unsigned_of { using type = uint32_t; };
template <> struct unsigned_of<8> { using type = uint64_t; };

// Integer arithmetic that wraps (C++ leaves signed overflow undefined).
template <class T> inline T add(T a, T b) { using U = typename unsigned_of<sizeof(T)>::type; return T(U(a) + U(b)); }
template <class T> inline T sub(T a, T b) { using U = typename unsigned_of<sizeof(T)>::type; return T(U(a) - U(b)); }
template <class T> inline T mul(T a, T b) { using U = typename unsigned_of<sizeof(T)>::type; return T(U(a) * U(b)); }

// Integer division. Dividing by zero gives 0 and the least value divided by -1 wraps: a block must never end the process.
template <class T>
inline T div(T a, T b) {
    if constexpr (is_signed<T>) {
        if (b == T(-1)) return sub<T>(T(0), a);
    }
    return b == T(0) ? T(0) : T(a / b);
}
template <class T>
inline T mod(T a, T b) {
    if constexpr (is_signed<T>) {
        if (b == T(-1)) return T(0);
    }
    return b == T(0) ? T(0) : T(a % b);
}
template <class T>
inline T floor_div(T a, T b) {
    const T quotient = div<T>(a, b), rest = mod<T>(a, b);
    return rest != T(0) && ((rest < T(0)) != (b < T(0))) ? T(quotient - 1) : quotient;
}
template <class T>
inline T floor_mod(T a, T b) {
    const T rest = mod<T>(a, b);
    return rest != T(0) && ((rest < T(0)) != (b < T(0))) ? T(rest + b) : rest;
}

// Shifts by the width or more give what shifting one bit at a time would.
template <class T>
inline T shift_left(T a, T count) {
    using U = typename unsigned_of<sizeof(T)>::type;
    constexpr int width = 8 * int(sizeof(T));
    return uint64_t(count) >= width ? T(0) : T(U(a) << int(count));
}
template <class T>
inline T shift_right(T a, T count) {
    constexpr int width = 8 * int(sizeof(T));
    return T(a >> (uint64_t(count) >= width ? (is_signed<T> ? width - 1 : 0) : int(count))) *
           T(is_signed<T> || uint64_t(count) < width);
}

// A bool in memory: one byte, true when it is not zero.
struct boolean {
    uint8_t byte;
    boolean() = default;
    template <class From> explicit boolean(From value) : byte(value != From(0)) {}
    operator bool() const { return byte != 0; }
};

// Float to integer: truncates; NaN gives 0 and what lies outside the type its nearest value.
template <class To, class From>
inline To to_integer(From value) {
    if constexpr (is_builtin_float<From>) {
        constexpr int bits = 8 * int(sizeof(To)) - (is_signed<To> ? 1 : 0);
        constexpr From above = From(uint64_t(1) << (bits - 1)) * From(2);  // the first value above the type
        constexpr To largest = To(~uint64_t(0) >> (64 - bits)), least = is_signed<To> ? To(-largest - 1) : To(0);
        if (value != value) return To(0);
        if (value >= above) return largest;
        if (value <= (is_signed<To> ? -above : From(0))) return least;
        return To(value);
    } else {
        return to_integer<To>(float(value));
    }
}

// The value as another type, by the rules of a cast.
template <class To, class From>
inline To convert(From value) {
    if constexpr (same_type<To, From>) {
        return value;
    } else if constexpr (same_type<From, boolean>) {
        return convert<To>(bool(value));
    } else if constexpr (same_type<To, bool>) {
        return value != From(0);
    } else if constexpr (is_integer<To> && !is_integer<From> && !same_type<From, bool>) {
        return to_integer<To>(value);
    } else {
        return To(value);
    }
}

inline constexpr int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

// Part [begin, end) of an axis.
struct Span {
    int64_t begin, end;
};

// Which of `count` consecutive indices, the first of which is `first`, exist in a dimension of `extent` elements.
inline Span inside(int64_t first, int64_t count, int64_t extent) {
    int64_t begin = first < 0 ? -first : 0;
    int64_t end = extent - first < count ? extent - first : count;
    if (begin > count) begin = count;
    if (end < begin) end = begin;
    return {begin, end};
}

inline bool in_range(int64_t index, int64_t extent) { return index >= 0 && index < extent; }

}  // namespace tile
