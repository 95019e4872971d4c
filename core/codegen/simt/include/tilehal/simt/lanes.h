// Values that a kernel passes between lanes itself, in groups of `width` lanes of a wave; `width` is a power of two.
//
// A lane that names one outside of its group gets its own value. The masks of CUDA-like code say who takes part; here all
// lanes that are active do, and a mask of 32 bits would leave out half of a wave of 64.
//
// The platform gives tilehal::platform::lane(), the place of a thread in its wave, besides what shuffle.h needs.
#pragma once

#include "shuffle.h"

namespace tilehal {

template <typename T> TILEHAL_DEVICE T shuffle(T value, int source, int width) {
  const int first = platform::lane() & ~(width - 1);
  return lane_get(value, first + (source & (width - 1)));
}
template <typename T> TILEHAL_DEVICE T shuffle_xor(T value, int mask, int width) {
  const int own = platform::lane(), source = own ^ mask;
  return lane_get(value, source < (own & ~(width - 1)) + width ? source : own);
}
template <typename T> TILEHAL_DEVICE T shuffle_up(T value, int delta, int width) {
  const int own = platform::lane(), source = own - delta;
  return lane_get(value, source >= (own & ~(width - 1)) ? source : own);
}
template <typename T> TILEHAL_DEVICE T shuffle_down(T value, int delta, int width) {
  const int own = platform::lane(), source = own + delta;
  return lane_get(value, source < (own & ~(width - 1)) + width ? source : own);
}

template <typename T> TILEHAL_DEVICE T shuffle_masked(unsigned long long, T value, int source, int width) {
  return shuffle(value, source, width);
}
template <typename T> TILEHAL_DEVICE T shuffle_up_masked(unsigned long long, T value, int delta, int width) {
  return shuffle_up(value, delta, width);
}
template <typename T> TILEHAL_DEVICE T shuffle_down_masked(unsigned long long, T value, int delta, int width) {
  return shuffle_down(value, delta, width);
}

} // namespace tilehal
