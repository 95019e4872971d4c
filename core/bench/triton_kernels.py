"""Row operators in Triton, as its users write them: whole rows in registers, one pass, float32 arithmetic.

With `OVERLAPPED`, which goes with `launch_pdl=True`, the next launch may begin while this one works, and this one waits
for the launch in front of it before its first load. Imported only where Triton is installed.
"""

import triton
import triton.language as tl

try:
    from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
except ImportError:  # an older Triton; the kernels without them compile all the same
    gdc_launch_dependents = gdc_wait = None

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _place(rows, columns: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    return row.to(tl.int64) * columns + column, (row < rows) & (column < columns), column


@triton.jit
def softmax_rows(
    x,
    y,
    rows,
    columns: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    EXACT: tl.constexpr,
    OVERLAPPED: tl.constexpr,
):
    at, inside, _ = _place(rows, columns, ROWS, WIDTH)
    if OVERLAPPED:
        gdc_launch_dependents()
        gdc_wait()
    if EXACT:
        value = tl.load(x + at).to(tl.float32)
    else:
        value = tl.load(x + at, mask=inside, other=-float("inf")).to(tl.float32)
    power = tl.exp2((value - tl.max(value, 1)[:, None]) * LOG2_E)
    result = power * (1.0 / tl.sum(power, 1))[:, None]
    if EXACT:
        tl.store(y + at, result.to(y.dtype.element_ty))
    else:
        tl.store(y + at, result.to(y.dtype.element_ty), mask=inside)


@triton.jit
def layernorm_rows(
    x,
    weight,
    bias,
    y,
    rows,
    columns: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    EXACT: tl.constexpr,
    OVERLAPPED: tl.constexpr,
):
    at, inside, column = _place(rows, columns, ROWS, WIDTH)
    if OVERLAPPED:
        gdc_launch_dependents()
        gdc_wait()
    if EXACT:
        value = tl.load(x + at).to(tl.float32)
        w = tl.load(weight + column).to(tl.float32)
        b = tl.load(bias + column).to(tl.float32)
    else:
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        w = tl.load(weight + column, mask=column < columns, other=0.0).to(tl.float32)
        b = tl.load(bias + column, mask=column < columns, other=0.0).to(tl.float32)
    centred = value - (tl.sum(value, 1) / columns)[:, None]
    if not EXACT:
        centred = tl.where(inside, centred, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 1) / columns + 1e-5)
    result = centred * scale[:, None] * w + b
    if EXACT:
        tl.store(y + at, result.to(y.dtype.element_ty))
    else:
        tl.store(y + at, result.to(y.dtype.element_ty), mask=inside)


@triton.jit
def rmsnorm_rows(
    x,
    weight,
    y,
    rows,
    columns: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    EXACT: tl.constexpr,
    OVERLAPPED: tl.constexpr,
):
    at, inside, column = _place(rows, columns, ROWS, WIDTH)
    if OVERLAPPED:
        gdc_launch_dependents()
        gdc_wait()
    if EXACT:
        value = tl.load(x + at).to(tl.float32)
        w = tl.load(weight + column).to(tl.float32)
    else:
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        w = tl.load(weight + column, mask=column < columns, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, 1) / columns + 1e-6)
    result = value * scale[:, None] * w
    if EXACT:
        tl.store(y + at, result.to(y.dtype.element_ty))
    else:
        tl.store(y + at, result.to(y.dtype.element_ty), mask=inside)


@triton.jit
def scale_rows(source, target, columns: tl.constexpr):
    """Y = 2 X: the kernel whose launch is timed."""
    offsets = tl.program_id(0) * columns + tl.arange(0, columns)
    tl.store(target + offsets, tl.load(source + offsets) * 2.0)
