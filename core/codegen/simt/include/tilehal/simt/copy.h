// Copies from global to shared memory of 4, 8 or 16 bytes a thread. Synchronous unless the kernel was compiled for
// asynchronous copies (TILEHAL_ASYNC_COPY 1), which the platform then provides.
#pragma once

#include "types.h"

namespace tilehal {

#if TILEHAL_ASYNC_COPY
template <int Bytes> TILEHAL_DEVICE void copy_start(void *shared, const void *global) {
  platform::async_copy<Bytes>(shared, global, true);
}
template <int Bytes> TILEHAL_DEVICE void copy_start_if(void *shared, const void *global, bool condition) {
  platform::async_copy<Bytes>(shared, global, condition);
}
TILEHAL_DEVICE void copy_commit() { platform::async_commit(); }
template <int Pending = 0> TILEHAL_DEVICE void copy_wait() { platform::async_wait<Pending>(); }
#else
template <int Bytes> TILEHAL_DEVICE void copy_start_if(void *shared, const void *global, bool condition) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "a thread copies 4, 8 or 16 bytes at a time");
  if (Bytes == 16)
    *(uint4 *)shared = condition ? *(const uint4 *)global : make_uint4(0, 0, 0, 0);
  else if (Bytes == 8)
    *(uint2 *)shared = condition ? *(const uint2 *)global : make_uint2(0, 0);
  else
    *(unsigned int *)shared = condition ? *(const unsigned int *)global : 0u;
}
template <int Bytes> TILEHAL_DEVICE void copy_start(void *shared, const void *global) {
  copy_start_if<Bytes>(shared, global, true);
}
TILEHAL_DEVICE void copy_commit() {}
template <int Pending = 0> TILEHAL_DEVICE void copy_wait() {}
#endif

} // namespace tilehal
