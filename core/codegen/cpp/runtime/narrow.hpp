// 16- and 8-bit floats: stored as bits, computed in float, rounded to nearest even after every operation, as a unit that
// has the type in hardware does. float has more than twice their significant bits, so rounding the float result of one
// +, -, *, / or sqrt once more is exact. The conversions have no branches: compilers turn loops over them into vectors.

namespace tile {

template <class Format>
struct narrow {
    typename Format::Bits bits;

    narrow() = default;
    template <class From> explicit narrow(From value) : bits(Format::from_float(to_odd_float(value))) {}
    operator float() const { return Format::to_float(bits); }

    // A float that rounds to the same narrow value as the argument: rounding it again is not double rounding, because
    // everything that float cannot hold is kept in its last bit.
    static float to_odd_float(float value) { return value; }
    static float to_odd_float(double value) {
        const float nearest = float(value);
        if (double(nearest) == value || value != value) return nearest;
        uint32_t bits = bits_as<uint32_t>(nearest);
        const bool away = (nearest < 0 ? -double(nearest) : double(nearest)) > (value < 0 ? -value : value);
        return bits_as<float>((away ? bits - 1 : bits) | 1u);
    }
    template <class Other> static float to_odd_float(narrow<Other> value) { return float(value); }
    template <class Integer> static float to_odd_float(Integer value) {
        if constexpr (sizeof(Integer) <= 2) return float(value);
        if constexpr (sizeof(Integer) == 4) return to_odd_float(double(value));
        const bool negative = value < Integer(0);
        uint64_t magnitude = negative ? uint64_t(0) - uint64_t(value) : uint64_t(value);
        if (magnitude >> 52) magnitude = (magnitude & ~uint64_t(0xfff)) | ((magnitude & 0xfff) != 0 ? 0x800 : 0);
        return to_odd_float(negative ? -double(magnitude) : double(magnitude));
    }
};

#define TILE_NARROW_OPERATOR(op)                                                          \
    template <class F> inline narrow<F> operator op(narrow<F> a, narrow<F> b) {           \
        return narrow<F>(float(a) op float(b));                                           \
    }
TILE_NARROW_OPERATOR(+)
TILE_NARROW_OPERATOR(-)
TILE_NARROW_OPERATOR(*)
TILE_NARROW_OPERATOR(/)
#undef TILE_NARROW_OPERATOR

struct float16_format {  // 1 sign, 5 exponent, 10 fraction bits
    using Bits = uint16_t;

    static float to_float(Bits half) {
#if defined(__aarch64__) || (defined(__clang__) && defined(__F16C__))
        return float(bits_as<_Float16>(half));
#else
        // g++ keeps _Float16 conversions scalar on x86, so they are spelled in integers.
        const uint32_t magnitude = half & 0x7fffu;
        const uint32_t normal = (magnitude << 13) + ((magnitude >= 0x7c00u ? 255u - 31u : 127u - 15u) << 23);
        const uint32_t subnormal = bits_as<uint32_t>(float(int32_t(magnitude)) * 0x1p-24f);
        return bits_as<float>((magnitude < 0x0400u ? subnormal : normal) | (uint32_t(half & 0x8000u) << 16));
#endif
    }

    static Bits from_float(float value) {
#if defined(__aarch64__) || (defined(__clang__) && defined(__F16C__))
        return bits_as<Bits>(_Float16(value));
#else
        const uint32_t bits = bits_as<uint32_t>(value), magnitude = bits & 0x7fffffffu;
        // Adding 0.5 leaves a subnormal result's fraction, rounded to nearest even, in the low bits.
        const uint32_t subnormal = bits_as<uint32_t>(bits_as<float>(magnitude) + 0.5f) - 0x3f000000u;
        const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
        const uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
        const uint32_t finite = magnitude < 0x38800000u ? subnormal : normal;
        return Bits((magnitude >= 0x47800000u ? special : finite) | ((bits >> 16) & 0x8000u));
#endif
    }
};

struct bfloat16_format {  // 1 sign, 8 exponent, 7 fraction bits: the upper half of a float
    using Bits = uint16_t;

    static float to_float(Bits half) { return bits_as<float>(uint32_t(half) << 16); }

    static Bits from_float(float value) {
        const uint32_t bits = bits_as<uint32_t>(value);
        const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
        return Bits((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x0040u : rounded);
    }
};

struct float8_e4m3fn_format {  // 1 sign, 4 exponent, 3 fraction bits; no infinity, largest value 448
    using Bits = uint8_t;

    static float to_float(Bits byte) {
        const uint32_t magnitude = byte & 0x7fu;
        const uint32_t normal = (magnitude << 20) + ((127u - 7u) << 23);
        const uint32_t subnormal = bits_as<uint32_t>(float(int32_t(magnitude)) * 0x1p-9f);
        const uint32_t finite = magnitude < 0x08u ? subnormal : normal;
        return bits_as<float>((magnitude == 0x7fu ? 0x7fc00000u : finite) | (uint32_t(byte & 0x80u) << 24));
    }

    static Bits from_float(float value) {  // saturates: whatever lies beyond the largest value becomes it, infinity too
        const uint32_t bits = bits_as<uint32_t>(value), magnitude = bits & 0x7fffffffu;
        const uint32_t subnormal = bits_as<uint32_t>(bits_as<float>(magnitude) + 0x1p14f) - 0x46800000u;
        const uint32_t normal = (magnitude - (120u << 23) + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20;
        const uint32_t finite = magnitude < 0x3c800000u ? subnormal : normal;
        const uint32_t limited = magnitude >= 0x43e00000u ? 0x7eu : finite;
        return Bits((magnitude > 0x7f800000u ? 0x7fu : limited) | ((bits >> 24) & 0x80u));
    }
};

struct float8_e5m2_format {  // 1 sign, 5 exponent, 2 fraction bits; largest value 57344, has infinity
    using Bits = uint8_t;

    static float to_float(Bits byte) { return float16_format::to_float(uint16_t(byte << 8)); }

    static Bits from_float(float value) {  // saturates, infinity too
        const uint32_t bits = bits_as<uint32_t>(value), magnitude = bits & 0x7fffffffu;
        const uint32_t subnormal = bits_as<uint32_t>(bits_as<float>(magnitude) + 128.0f) - 0x43000000u;
        const uint32_t normal = (magnitude - (112u << 23) + 0xfffffu + ((magnitude >> 21) & 1u)) >> 21;
        const uint32_t finite = magnitude < 0x38800000u ? subnormal : normal;
        const uint32_t limited = magnitude >= 0x47600000u ? 0x7bu : finite;
        return Bits((magnitude > 0x7f800000u ? 0x7eu : limited) | ((bits >> 24) & 0x80u));
    }
};

using float16 = narrow<float16_format>;
using bfloat16 = narrow<bfloat16_format>;
using float8_e4m3fn = narrow<float8_e4m3fn_format>;
using float8_e5m2 = narrow<float8_e5m2_format>;

}  // namespace tile
