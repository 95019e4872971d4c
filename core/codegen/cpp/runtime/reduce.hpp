// Reductions and scans.

namespace tile {

// What a reduction or a scan does with two values of its type, and the value it starts from.
struct Sum {
    template <class T> static T identity() { return T(0); }
    template <class T> static T map(T x) { return x; }
    template <class T> static T combine(T a, T b) {
        if constexpr (is_integer<T>) return add<T>(a, b); else return a + b;
    }
};
struct AbsSum : Sum {
    template <class T> static T map(T x) { return magnitude(x); }
};
struct Max {
    template <class T> static T identity() { return least<T>(); }
    template <class T> static T map(T x) { return x; }
    template <class T> static T combine(T a, T b) { return max<T>(a, b); }
};
struct MaxNan : Max {
    template <class T> static T combine(T a, T b) { return max_nan<T>(a, b); }
};
struct AbsMax : Max {
    template <class T> static T identity() { return T(0); }
    template <class T> static T map(T x) { return magnitude(x); }
};
struct AbsMaxNan : AbsMax {
    template <class T> static T combine(T a, T b) { return max_nan<T>(a, b); }
};
struct Min {
    template <class T> static T identity() { return largest<T>(); }
    template <class T> static T map(T x) { return x; }
    template <class T> static T combine(T a, T b) { return min<T>(a, b); }
};
struct MinNan : Min {
    template <class T> static T combine(T a, T b) { return min_nan<T>(a, b); }
};
struct BitAnd {
    template <class T> static T identity() { return T(~T(0)); }
    template <class T> static T map(T x) { return x; }
    template <class T> static T combine(T a, T b) { return T(a & b); }
};
struct BitOr {
    template <class T> static T identity() { return T(0); }
    template <class T> static T map(T x) { return x; }
    template <class T> static T combine(T a, T b) { return T(a | b); }
};
struct BitXor : BitOr {
    template <class T> static T combine(T a, T b) { return T(a ^ b); }
};

// What a sum is kept in: sums of narrow floats are rounded once, at the end.
template <class Op, class T> struct running { using type = T; };
template <class T> struct running_sum { using type = T; };
template <class F> struct running_sum<narrow<F>> { using type = float; };
template <class T> struct running<Sum, T> : running_sum<T> {};
template <class T> struct running<AbsSum, T> : running_sum<T> {};

template <class Op, class T, class From>
inline typename running<Op, T>::type mapped(From value) {
    return typename running<Op, T>::type(Op::template map<T>(convert<T>(value)));
}

// A partial result and one value more. A partial maximum or minimum starts from infinity and so is never NaN, which leaves
// one instruction to ignore a value that is.
template <class Op, class R>
inline R accumulate(R partial, R value) {
    if constexpr (same_type<Op, Max> || same_type<Op, AbsMax>) return value > partial ? value : partial;
    else if constexpr (same_type<Op, Min>) return value < partial ? value : partial;
    else return Op::template combine<R>(partial, value);
}

// The reduction of a row in `lanes` partial results, which make it a vector loop; they are combined in pairs at the end.
template <int lanes, class Op, class T, class From>
inline typename running<Op, T>::type reduce_lanes(const From* src, int64_t step, int64_t count) {
    using R = typename running<Op, T>::type;
    R partial[lanes];
    for (int lane = 0; lane < lanes; ++lane) partial[lane] = Op::template identity<R>();
    int64_t j = 0;
    if (step == 1) {
        for (; j + lanes <= count; j += lanes) {
            for (int lane = 0; lane < lanes; ++lane) {
                partial[lane] = accumulate<Op, R>(partial[lane], mapped<Op, T>(src[j + lane]));
            }
        }
    } else {
        for (; j + lanes <= count; j += lanes) {
            for (int lane = 0; lane < lanes; ++lane) {
                partial[lane] = accumulate<Op, R>(partial[lane], mapped<Op, T>(src[(j + lane) * step]));
            }
        }
    }
    for (int lane = 0; j < count; ++j, ++lane) {
        partial[lane] = accumulate<Op, R>(partial[lane], mapped<Op, T>(src[j * step]));
    }
    for (int width = lanes / 2; width > 0; width /= 2) {
        for (int lane = 0; lane < width; ++lane) {
            partial[lane] = accumulate<Op, R>(partial[lane], partial[lane + width]);
        }
    }
    return partial[0];
}

// The reduction of a row, combined with `start`. The order depends on the row's length alone, and not on the machine. Long
// rows have as many partial results as it takes for no vector operation to wait for the one before it.
template <class Op, class T, class From>
inline T reduce_row(T start, const From* src, int64_t step, int64_t count) {
    using R = typename running<Op, T>::type;
    R total = R(start);
    if (count < 32) {
        for (int64_t j = 0; j < count; ++j) total = Op::template combine<R>(total, mapped<Op, T>(src[j * step]));
        return T(total);
    }
    const R row = count < 128 ? reduce_lanes<16, Op, T>(src, step, count) : reduce_lanes<64, Op, T>(src, step, count);
    return T(Op::template combine<R>(total, row));
}

// dst[j] = dst[j] op src[j]: one step of a reduction over an outer axis, for a whole row.
template <class Op, class T, class From>
inline void combine_row(T* dst, int64_t dst_step, const From* src, int64_t src_step, int64_t count) {
    if (dst_step == 1 && src_step == 1) {
        for (int64_t j = 0; j < count; ++j) dst[j] = Op::template combine<T>(dst[j], mapped<Op, T>(src[j]));
    } else {
        for (int64_t j = 0; j < count; ++j) {
            T& total = dst[j * dst_step];
            total = Op::template combine<T>(total, mapped<Op, T>(src[j * src_step]));
        }
    }
}

// Inclusive prefix scan of one line. Source and destination may be the same line.
template <class Op, class T, class From>
inline void scan_line(T* dst, int64_t dst_step, const From* src, int64_t src_step, int64_t count, bool reverse) {
    using R = typename running<Op, T>::type;
    R total = Op::template identity<R>();
    for (int64_t j = 0; j < count; ++j) {
        const int64_t at = reverse ? count - 1 - j : j;
        total = Op::template combine<R>(total, R(convert<T>(src[at * src_step])));
        dst[at * dst_step] = T(total);
    }
}

}  // namespace tile
