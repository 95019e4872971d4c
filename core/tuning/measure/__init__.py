"""Measuring how long a call takes, on every device, for the tuner, the benchmarks and the baselines alike.

    measure(lambda: kernel(a, b, c), "cuda")
    measure_together({"ours": ours, "theirs": theirs}, "cuda").ratio("ours", "theirs")

How it is done, and said in each :class:`Measurement`:

- On an accelerator the device's own events are read, around a CUDA graph of so many calls that launch gaps do not
  count, or around calls that were queued while the device was busy (see `device.py`). On the CPU and in a
  simulator it is the wall clock, or the processor time of the process.
- Every contender is warmed up for the same time; then they are sampled in turn, A B B A A B ..., so that clocks,
  temperature and other processes are the same for all, and neither is always the one that comes after the other.
- Warm caches: the call before in the row was the same call. Cold caches: the same work goes round so many sets of
  buffers that nothing is left of a set when its turn comes again, or, where there is one set, something else is read
  through the caches before every call.
- Outliers stay: the estimate is the median, its interval lies between two order statistics, and neither moves when a
  few samples are far off. The interval says how well this run knows its median, not how far another run may be from
  it; for that, repeat the run (`tilehal baseline` does).
"""

from core.tuning.measure.caches import cache_bytes
from core.tuning.measure.host import Call, Clock
from core.tuning.measure.interleaved import LEAST_SAMPLES, Measurement, Together, Work, measure, measure_together
from core.tuning.measure.statistics import Interval

__all__ = [
    "LEAST_SAMPLES",
    "Call",
    "Clock",
    "Interval",
    "Measurement",
    "Together",
    "Work",
    "cache_bytes",
    "measure",
    "measure_together",
]
