// T.print on the device, and device assertions.
#pragma once

#include "types.h"

namespace tilehal {

#define TILEHAL_WHERE                                                                                                  \
  platform::block_x(), platform::block_y(), platform::block_z(), platform::thread_x(), platform::thread_y(),            \
      platform::thread_z()

TILEHAL_DEVICE void debug_print_msg(const char *message) {
  printf("msg='%s' block=(%d, %d, %d) thread=(%d, %d, %d)\n", message, TILEHAL_WHERE);
}

template <typename T> TILEHAL_DEVICE void debug_print_var(const char *message, T value) {
  printf("msg='%s' block=(%d, %d, %d) thread=(%d, %d, %d) value=%g\n", message, TILEHAL_WHERE, (double)value);
}

template <typename T>
TILEHAL_DEVICE void debug_print_buffer_value(const char *message, const char *buffer, int index, T value) {
  printf("msg='%s' block=(%d, %d, %d) thread=(%d, %d, %d) buffer=%s index=%d value=%g\n", message, TILEHAL_WHERE, buffer,
         index, (double)value);
}

#undef TILEHAL_WHERE

} // namespace tilehal
