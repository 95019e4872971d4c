// Inclusive scans of lines in shared memory, one wave a line. Source and destination may be the same.
#pragma once

#include "numeric.h"
#include "shuffle.h"

namespace tilehal {

// Scans `count` elements `step` apart, from the other end when Reverse. Every lane of the wave calls it.
template <class Combine, bool Reverse, typename T>
TILEHAL_DEVICE void scan_line(const T *source, T *destination, int count, int source_step, int destination_step) {
  const int lane = platform::thread_x() % TILEHAL_WAVE_LANES;
  T carry{};
  for (int first = 0; first < count; first += TILEHAL_WAVE_LANES) {
    const int position = first + lane;
    const bool active = position < count;
    const int index = Reverse ? count - 1 - position : position;
    T value = active ? source[index * source_step] : T{};
#pragma unroll
    for (int offset = 1; offset < TILEHAL_WAVE_LANES; offset *= 2) {
      const T earlier = lane_up(value, offset);
      if (lane >= offset && active) value = Combine()(earlier, value);
    }
    if (first > 0 && active) value = Combine()(carry, value);
    if (active) destination[index * destination_step] = value;
    carry = lane_get(value, TILEHAL_WAVE_LANES - 1);  // used only when another full segment precedes the next
  }
}

template <class Combine, int Threads, bool Reverse = false> struct Scan1D {
  static_assert(Threads >= TILEHAL_WAVE_LANES, "a scan needs a whole wave");
  template <typename T> static TILEHAL_DEVICE void run(const T *source, T *destination, int count) {
    if (platform::thread_x() < TILEHAL_WAVE_LANES) scan_line<Combine, Reverse>(source, destination, count, 1, 1);
  }
};

// Rows of a height x width matrix are scanned along Axis (0: down the columns, 1: along the rows).
template <class Combine, int Threads, int Axis, bool Reverse = false> struct Scan2D {
  static_assert(Threads >= TILEHAL_WAVE_LANES && Threads % TILEHAL_WAVE_LANES == 0, "a scan needs whole waves");
  template <typename T>
  static TILEHAL_DEVICE void run(const T *source, T *destination, int height, int width, int source_row,
                                 int destination_row) {
    constexpr int waves = Threads / TILEHAL_WAVE_LANES;
    const int wave = platform::thread_x() / TILEHAL_WAVE_LANES;
    const int lines = Axis == 1 ? height : width;
    for (int line = wave; line < lines; line += waves) {
      if (Axis == 1)
        scan_line<Combine, Reverse>(source + line * source_row, destination + line * destination_row, width, 1, 1);
      else
        scan_line<Combine, Reverse>(source + line, destination + line, height, source_row, destination_row);
    }
  }
};

template <int Threads, bool Reverse = false> using CumSum1D = Scan1D<Sum, Threads, Reverse>;
template <int Threads, bool Reverse = false> using CumMax1D = Scan1D<Max, Threads, Reverse>;
template <int Threads, int Axis = 0, bool Reverse = false> using CumSum2D = Scan2D<Sum, Threads, Axis, Reverse>;
template <int Threads, int Axis = 0, bool Reverse = false> using CumMax2D = Scan2D<Max, Threads, Axis, Reverse>;

} // namespace tilehal
