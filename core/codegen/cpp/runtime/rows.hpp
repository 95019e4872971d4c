// Copies and fills, one row (the innermost axis) at a time. Steps are in elements.

namespace tile {

// dst[j] = src[j] for the j of `write`; the j outside of `read` do not exist in the source and give `fill`.
template <class To, class From>
inline void copy_row(To* dst, int64_t dst_step, const From* src, int64_t src_step, Span write, Span read, To fill) {
    const int64_t begin = read.begin < write.begin ? write.begin : read.begin < write.end ? read.begin : write.end;
    const int64_t end = read.end > write.end ? write.end : read.end > begin ? read.end : begin;
    for (int64_t j = write.begin; j < begin; ++j) dst[j * dst_step] = fill;
    if (dst_step == 1 && src_step == 1) {
        if constexpr (same_type<To, From>) {
            if (end > begin) memmove(static_cast<void*>(dst + begin), src + begin, size_t(end - begin) * sizeof(To));
        } else {
            for (int64_t j = begin; j < end; ++j) dst[j] = convert<To>(src[j]);
        }
    } else {
        for (int64_t j = begin; j < end; ++j) dst[j * dst_step] = convert<To>(src[j * src_step]);
    }
    for (int64_t j = end; j < write.end; ++j) dst[j * dst_step] = fill;
}

template <class To, class From>
inline void copy_row(To* dst, int64_t dst_step, const From* src, int64_t src_step, int64_t count) {
    for (int64_t j = 0; j < count; ++j) dst[j * dst_step] = convert<To>(src[j * src_step]);
}

template <class To, class From>
inline void copy_row(To* dst, const From* src, int64_t count) {
    if constexpr (same_type<To, From>) {
        memmove(static_cast<void*>(dst), src, size_t(count) * sizeof(To));
    } else {
        for (int64_t j = 0; j < count; ++j) dst[j] = convert<To>(src[j]);
    }
}

template <class T>
inline void fill_row(T* dst, int64_t step, Span write, T value) {
    for (int64_t j = write.begin; j < write.end; ++j) dst[j * step] = value;
}

}  // namespace tile
