#include <stdint.h>

// Division and remainder that round down.
static inline int64_t tilehal_divide(int64_t a, int64_t b) {
    if (b == 0) return 0;
    int64_t quotient = a / b;
    return a % b != 0 && (a % b < 0) != (b < 0) ? quotient - 1 : quotient;
}
static inline int64_t tilehal_remainder(int64_t a, int64_t b) { return b == 0 ? 0 : a - tilehal_divide(a, b) * b; }
