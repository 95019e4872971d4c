// The platform header of a chip that does not exist: other names, waves of 32 lanes.
#pragma once

#include <zephyr.h>

#if TILEHAL_WAVE_LANES != 32
#error "Zephyr waves have 32 lanes"
#endif

#define TILEHAL_DEVICE zeph_inline

using half_t = zeph_half;

namespace tilehal {
namespace platform {

TILEHAL_DEVICE int thread_x() { return (int)zeph_local.x; }
TILEHAL_DEVICE int thread_y() { return (int)zeph_local.y; }
TILEHAL_DEVICE int thread_z() { return (int)zeph_local.z; }
TILEHAL_DEVICE unsigned int block_x() { return zeph_group.x; }
TILEHAL_DEVICE unsigned int block_y() { return zeph_group.y; }
TILEHAL_DEVICE unsigned int block_z() { return zeph_group.z; }
TILEHAL_DEVICE unsigned int grid_x() { return zeph_groups.x; }
TILEHAL_DEVICE unsigned int grid_y() { return zeph_groups.y; }
TILEHAL_DEVICE void block_barrier() { zeph_barrier(); }
TILEHAL_DEVICE int lane() { return zeph_lane(); }
TILEHAL_DEVICE unsigned int lane_get(unsigned int word, int lane) { return zeph_shuffle(word, lane); }
TILEHAL_DEVICE unsigned int lane_xor(unsigned int word, int mask) { return zeph_shuffle_xor(word, mask); }
TILEHAL_DEVICE unsigned int lane_up(unsigned int word, int delta) { return zeph_shuffle_up(word, delta); }
TILEHAL_DEVICE unsigned int lane_down(unsigned int word, int delta) { return zeph_shuffle_down(word, delta); }
TILEHAL_DEVICE int atomic_add(int *address, int value) { return zeph_fetch_add(address, value); }
TILEHAL_DEVICE unsigned int atomic_add(unsigned int *address, unsigned int value) { return zeph_fetch_add(address, value); }
TILEHAL_DEVICE float atomic_add(float *address, float value) { return zeph_fetch_add(address, value); }
TILEHAL_DEVICE int atomic_max(int *address, int value) { return zeph_fetch_max(address, value); }
TILEHAL_DEVICE int atomic_min(int *address, int value) { return zeph_fetch_min(address, value); }
template <typename Word> TILEHAL_DEVICE Word compare_and_swap(Word *address, Word expected, Word wanted) {
  return zeph_swap_if(address, expected, wanted);
}

using f16x4 = zeph_vector(4, zeph_half);
using f32x2 = zeph_vector(2, float);

} // namespace platform
} // namespace tilehal
