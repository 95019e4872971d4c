// Values moved between the lanes of a wave, for every element width, on the platform's 32-bit shuffles.
//
// The platform gives tilehal::platform::lane_get(word, lane), lane_xor(word, mask), lane_up(word, delta) and
// lane_down(word, delta) over a whole wave of TILEHAL_WAVE_LANES lanes, every lane taking part.
#pragma once

#include "types.h"

namespace tilehal {

template <typename T, typename Move> TILEHAL_DEVICE T move_words(T value, Move move) {
  constexpr int words = (sizeof(T) + 3) / 4;
  unsigned int packed[words] = {};
  __builtin_memcpy(packed, &value, sizeof(T));
#pragma unroll
  for (int i = 0; i < words; ++i) packed[i] = move(packed[i]);
  T result;
  __builtin_memcpy(&result, packed, sizeof(T));
  return result;
}

template <typename T> TILEHAL_DEVICE T lane_get(T value, int lane) {
  return move_words(value, [lane](unsigned int word) { return platform::lane_get(word, lane); });
}
template <typename T> TILEHAL_DEVICE T lane_xor(T value, int mask) {
  return move_words(value, [mask](unsigned int word) { return platform::lane_xor(word, mask); });
}
template <typename T> TILEHAL_DEVICE T lane_up(T value, int delta) {
  return move_words(value, [delta](unsigned int word) { return platform::lane_up(word, delta); });
}
template <typename T> TILEHAL_DEVICE T lane_down(T value, int delta) {
  return move_words(value, [delta](unsigned int word) { return platform::lane_down(word, delta); });
}

} // namespace tilehal
