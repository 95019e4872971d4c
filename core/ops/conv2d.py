"""Convolution of images, channels last, as a matrix product whose left operand is gathered on the fly."""

from typing import Any

from core._tilelang import import_tilelang
from core.errors import KernelError
from core.ops._convolution import output_extents
from core.ops._dtypes import PRODUCT
from core.tiling import kernel, stages, threads, tile

import_tilelang()

import tilelang.language as T  # noqa: E402  (tilelang goes before anybody's tvm)


@kernel(out=["Y"], dtypes=PRODUCT, symbolic=("batch", "height", "width", "filters"))
def conv2d(
    batch: int,
    height: int,
    width: int,
    channels: int,
    filters: int,
    size: int,
    *,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    M: int | None = None,
    N: int | None = None,
    K: int | None = None,
    dtype: str = "float16",
    out_dtype: str | None = None,
    accum_dtype: str = "float32",
    block_M: int = tile("M", multiple=16),
    block_N: int = tile("N", multiple=16),
    block_K: int = tile("K", multiple=16),
    num_stages: int = stages(),
    threads: int = threads(),
) -> Any:
    """`Y[n, y, x, f] = Σ X[n, y·stride + i·dilation - padding, x·stride + j·dilation - padding, c] · W[i, j, c, f]`.

    X is (batch, height, width, channels), W (size, size, channels, filters), Y (batch, height', width', filters) with
    `height' = (height + 2·padding - dilation·(size - 1) - 1) // stride + 1`. Beyond the borders X is zero.

    A product of pixels by filters over size·size·channels terms. Where tiles of the terms divide the channels, rows of
    pixels are copied whole (on Hopper by the copy engine's im2col mode); elsewhere element by element.

    Args:
        batch, filters: images and filters; may be symbolic (`T.dynamic`).
        height, width: of the images, pixels; may be symbolic, and pixels are then copied element by element.
        stride, padding, dilation: elements, the same in both directions.
        M, N, K: what is tiled: pixels of Y, filters, terms. Leave them out, or say them to have tiles chosen for them.
        dtype, out_dtype, accum_dtype: of X and W, of Y (None is `dtype`), and of the sums: "int32" for integers.

    Raises:
        ShapeMismatch: there is no product of such operands, sums and results.
        KernelError: M, N or K is not what it is, the images are smaller than W, or a number is none of elements.
    """
    out_height, out_width = output_extents(height, width, size, stride=stride, padding=padding, dilation=dilation)
    pixels, depth = batch * out_height * out_width, size * size * channels
    for name, given, actual in (("M", M, pixels), ("N", N, filters), ("K", K, depth)):
        if given not in (None, actual):
            raise KernelError(f"conv2d: {name}={given}, but there are {actual}", hint=f"leave {name} out")
    out_dtype = out_dtype or dtype
    # Not every chip's lowering has an im2col of images whose extents a call says.
    columns = T.ceildiv(filters, block_N)
    whole = isinstance(height, int) and isinstance(width, int) and channels % block_K == 0

    @T.prim_func
    def main(
        X: T.Tensor((batch, height, width, channels), dtype),
        W: T.Tensor((size, size, channels, filters), dtype),
        Y: T.Tensor((batch, out_height, out_width, filters), out_dtype),
    ):
        # Of a grid only the first axis is long enough for any number of pixels. Blocks of the same ones are neighbours.
        with T.Kernel(columns * T.ceildiv(pixels, block_M), threads=threads) as b:
            bx, by = b % columns, b // columns
            x = T.alloc_shared((block_M, block_K), dtype)
            w = T.alloc_shared((block_K, block_N), dtype)
            y = T.alloc_shared((block_M, block_N), out_dtype)
            accumulator = T.alloc_fragment((block_M, block_N), accum_dtype)
            weights = T.Tensor((depth, filters), dtype, W.data)
            result = T.Tensor((pixels, filters), out_dtype, Y.data)
            T.clear(accumulator)
            for k in T.Pipelined(T.ceildiv(depth, block_K), num_stages=num_stages):
                if whole:
                    T.im2col(X, x, by, k, size, stride, dilation, padding)
                else:
                    for i, j in T.Parallel(block_M, block_K):
                        place = k * block_K + j
                        row, column = place // channels // size, place // channels % size
                        pixel = by * block_M + i
                        image, line = pixel // (out_height * out_width), pixel // out_width % out_height
                        top = line * stride + row * dilation - padding
                        left = pixel % out_width * stride + column * dilation - padding
                        inside = (top >= 0) & (top < height) & (left >= 0) & (left < width)
                        x[i, j] = T.if_then_else(
                            inside & (place < depth) & (image < batch), X[image, top, left, place % channels], 0
                        )
                T.copy(weights[k * block_K, bx * block_N], w)
                T.gemm(x, w, accumulator)
            T.copy(accumulator, y)
            T.copy(y, result[by * block_M, bx * block_N])

    return main
