// Convolutions as matrix products.

namespace tile {

// Sizes and steps (in elements) of a tensor of images: batch, height, width, channels.
struct Image {
    int64_t batch, height, width, channels;
    int64_t batch_step, height_step, width_step, channel_step;
};

// Rows [m0, m0 + rows) and columns [k0, k0 + columns) of the im2col matrix: row m is an output pixel, column
// k = (kernel_row * kernel + kernel_column) * channels + channel. Pixels outside the image are zero.
template <class T>
inline void im2col(T* dst, int64_t row_step, int64_t column_step, const T* src, Image image, int64_t m0, int64_t rows,
                   int64_t k0, int64_t columns, int64_t kernel, int64_t stride, int64_t dilation, int64_t padding) {
    const int64_t reach = (kernel - 1) * dilation + 1;
    const int64_t out_height = (image.height + 2 * padding - reach) / stride + 1;
    const int64_t out_width = (image.width + 2 * padding - reach) / stride + 1;
    for (int64_t i = 0; i < rows; ++i) {
        const int64_t m = m0 + i, n = m / (out_height * out_width);
        const int64_t top = m % (out_height * out_width) / out_width * stride - padding;
        const int64_t left = m % out_width * stride - padding;
        for (int64_t j = 0; j < columns; ++j) {
            const int64_t k = k0 + j;
            const int64_t y = top + k / (kernel * image.channels) * dilation;
            const int64_t x = left + k / image.channels % kernel * dilation;
            const bool exists = n < image.batch && in_range(y, image.height) && in_range(x, image.width);
            dst[i * row_step + j * column_step] =
                exists ? src[n * image.batch_step + y * image.height_step + x * image.width_step +
                             k % image.channels * image.channel_step]
                       : T(0);
        }
    }
}

}  // namespace tile
