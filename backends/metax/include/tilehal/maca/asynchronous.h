// MACA's copies from global to shared memory that do not wait (the vendor calls them BSM).
//
// Lanes are taken in groups of 16, and the base of each group's destination is rounded down to 256 bytes: destinations
// must be dense and in lane order, which swizzled and padded tiles are not. Hence an option, off by default, and only
// for 16 bytes a lane, where a group fills its 256 bytes; narrower copies are ordinary ones.
#pragma once

namespace tilehal {
namespace platform {

template <int Bytes> TILEHAL_DEVICE void async_copy(void *shared, const void *global, bool condition) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "a thread copies 4, 8 or 16 bytes at a time");
  if (Bytes == 16)
    __builtin_mxc_ldg_b128_bsm_predicator(shared, (void *)global, 0, true, true, false, true, condition ? 1 : 0, 1,
                                          MACA_ICMP_EQ);
  else if (Bytes == 8)
    *(uint2 *)shared = condition ? *(const uint2 *)global : make_uint2(0, 0);
  else
    *(unsigned int *)shared = condition ? *(const unsigned int *)global : 0u;
}

// There are no commit groups, only a counter of outstanding copies; how many copies a group has is not known here, so
// a wait for any group waits for all.
TILEHAL_DEVICE void async_commit() { __asm__ __volatile__("" ::: "memory"); }
template <int Pending> TILEHAL_DEVICE void async_wait() {
  __builtin_mxc_arrive_gvmcnt(0);
  __builtin_mxc_barrier_inst();
}

} // namespace platform
} // namespace tilehal
