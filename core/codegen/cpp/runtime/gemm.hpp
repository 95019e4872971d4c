// Matrix products of tiles. Operands are widened once into panels of the accumulator's type, then a block of
// `gemm_rows` x `gemm_columns` accumulators is kept in vector registers while k runs.

namespace tile {

#if defined(__AVX512F__)
constexpr int vector_bytes = 64;
#elif defined(__AVX__)
constexpr int vector_bytes = 32;
#else
constexpr int vector_bytes = 16;
#endif

constexpr int gemm_rows = vector_bytes == 64 ? 8 : 4;
template <class T> inline constexpr int gemm_columns = 2 * vector_bytes / int(sizeof(T));

constexpr int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Scratch that one product needs: panels of A and B, and a copy of B when it must be transposed.
template <class T>
constexpr int64_t gemm_scratch_bytes(int64_t m, int64_t n, int64_t k) {
    return int64_t(sizeof(T)) * (round_up(m, gemm_rows) * k + 2 * round_up(n, gemm_columns<T>) * k) + 3 * 64;
}

// acc = a @ b for one register block. Rows of `a` are `row_step` apart and its k `k_step`; `b` is k rows of
// gemm_columns. Multiply and add are fused where the machine can: a product kept exact is what matrix units do.
template <class T>
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((noinline, optimize("fp-contract=fast")))
#else
__attribute__((noinline))
#endif
void gemm_block(int64_t k, const T* a, int64_t row_step, int64_t k_step, const T* b, T* out) {
#if defined(__clang__)
#pragma clang fp contract(fast)
#endif
    typedef T Vector __attribute__((vector_size(vector_bytes), aligned(vector_bytes)));
    Vector sum[gemm_rows][2] = {};
    const Vector* columns = reinterpret_cast<const Vector*>(b);
    for (int64_t step = 0; step < k; ++step) {
        const Vector left = columns[2 * step], right = columns[2 * step + 1];
#pragma GCC unroll 8
        for (int row = 0; row < gemm_rows; ++row) {
            const T factor = a[row * row_step + step * k_step];
            sum[row][0] += factor * left;
            sum[row][1] += factor * right;
        }
    }
    memcpy(out, sum, sizeof(sum));
}

// A matrix in memory: element (i, j) is data[i * row_step + j * column_step].
template <class T>
struct Matrix {
    T* data;
    int64_t row_step, column_step;
    Matrix transposed() const { return {data, column_step, row_step}; }
};

// dst[i][j] = src(i, j), row by row; `width` elements between the rows of dst.
template <class T, class S>
inline void widen(T* __restrict dst, int64_t width, Matrix<const S> src, int64_t rows, int64_t columns) {
    for (int64_t i = 0; i < rows; ++i) {
        const S* row = src.data + i * src.row_step;
        if (src.column_step == 1) {
            for (int64_t j = 0; j < columns; ++j) dst[i * width + j] = T(row[j]);
        } else {
            for (int64_t j = 0; j < columns; ++j) dst[i * width + j] = T(row[j * src.column_step]);
        }
    }
}

// C = (clear ? 0 : C) + A @ B with A (m, k), B (k, n), C (m, n). T is C's type; float when that is narrower, and for
// integers, which wrap, its unsigned twin.
template <class T, class SA, class SB, class SC>
void gemm(Matrix<const SA> a, Matrix<const SB> b, Matrix<SC> c, int64_t m, int64_t n, int64_t k, bool clear, char* scratch) {
    constexpr int columns = gemm_columns<T>;
    const int64_t padded_rows = round_up(m, gemm_rows);
    T* a_panel = reinterpret_cast<T*>(round_up(reinterpret_cast<int64_t>(scratch), 64));
    T* b_panel = reinterpret_cast<T*>(round_up(reinterpret_cast<int64_t>(a_panel + padded_rows * k), 64));
    // A is widened in the order it is stored, so that the loop runs along memory.
    const bool by_column = a.row_step == 1 && a.column_step != 1;
    int64_t row_step = by_column ? 1 : k, k_step = by_column ? padded_rows : 1;
    if (m != padded_rows) memset(static_cast<void*>(a_panel), 0, size_t(padded_rows * k) * sizeof(T));
    if (by_column) {
        widen(a_panel, k_step, a.transposed(), k, m);
    } else {
        widen(a_panel, row_step, a, m, k);
    }
    if (b.row_step == 1 && b.column_step != 1) {
        T* rows_of_b = reinterpret_cast<T*>(
            round_up(reinterpret_cast<int64_t>(b_panel + round_up(n, columns) * k), 64));
        widen(rows_of_b, k, b.transposed(), n, k);
        for (int64_t j0 = 0; j0 < n; j0 += columns) {
            const int64_t width = n - j0 < columns ? n - j0 : columns;
            T* panel = b_panel + j0 * k;
            for (int64_t step = 0; step < k; ++step) {
                const T* source = rows_of_b + j0 * k + step;
                for (int64_t j = 0; j < width; ++j) panel[step * columns + j] = source[j * k];
                for (int64_t j = width; j < columns; ++j) panel[step * columns + j] = T(0);
            }
        }
    } else {
        for (int64_t j0 = 0; j0 < n; j0 += columns) {
            const int64_t width = n - j0 < columns ? n - j0 : columns;
            T* panel = b_panel + j0 * k;
            if (width < columns) memset(static_cast<void*>(panel), 0, size_t(columns * k) * sizeof(T));
            widen<T, SB>(panel, columns, {b.data + j0 * b.column_step, b.row_step, b.column_step}, k, width);
        }
    }
    alignas(64) T block[gemm_rows * columns];
    for (int64_t j0 = 0; j0 < n; j0 += columns) {
        const int64_t width = n - j0 < columns ? n - j0 : columns;
        for (int64_t i0 = 0; i0 < m; i0 += gemm_rows) {
            const int64_t height = m - i0 < gemm_rows ? m - i0 : gemm_rows;
            gemm_block(k, a_panel + i0 * row_step, row_step, k_step, b_panel + j0 * k, block);
            for (int64_t i = 0; i < height; ++i) {
                SC* row = c.data + (i0 + i) * c.row_step + j0 * c.column_step;
                const T* sums = block + i * columns;
                if (c.column_step == 1) {
                    for (int64_t j = 0; j < width; ++j) row[j] = clear ? SC(sums[j]) : SC(T(row[j]) + sums[j]);
                } else {
                    for (int64_t j = 0; j < width; ++j) {
                        SC& element = row[j * c.column_step];
                        element = clear ? SC(sums[j]) : SC(T(element) + sums[j]);
                    }
                }
            }
        }
    }
}

}  // namespace tile
