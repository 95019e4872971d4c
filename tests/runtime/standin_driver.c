// A CUDA driver without a device: it writes down what it is asked to launch, and refuses what the real one refuses.
//   STANDIN_LOG         file the calls are written to
//   STANDIN_CAPABILITY  compute capability of its devices, e.g. 90
//   STANDIN_VERSION     CUDA version, e.g. 12040
//   STANDIN_ARGUMENTS   what each entry point takes: ;name=letters;..., with m (128 bytes), p and l (8), i and f (4)
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_IMAGE = 200, INVALID_CONTEXT = 201, NOT_FOUND = 500 };
#define CAPTURING_STREAM ((void *)0xc0)

typedef struct { char name[64]; void *context; int shared; } function;
static __thread void *stack[16];
static __thread int depth;

static void note(const char *text) {
    FILE *log = fopen(getenv("STANDIN_LOG"), "a");
    if (log != NULL) {
        fprintf(log, "%s\n", text);
        fclose(log);
    }
}

static int number(const char *name, int otherwise) { return getenv(name) ? atoi(getenv(name)) : otherwise; }

// The letters of an entry point's arguments; null for one that the binary lacks.
static const char *letters_of(const char *name) {
    char key[80];
    const char *all = getenv("STANDIN_ARGUMENTS"), *found;
    snprintf(key, sizeof key, ";%s=", name);
    found = strstr(all, key);
    return found == NULL ? NULL : found + strlen(key);
}

int cuInit(unsigned flags) { return flags == 0 ? OK : INVALID_VALUE; }
int cuDriverGetVersion(int *version) { *version = number("STANDIN_VERSION", 12040); return OK; }
int cuGetErrorName(int code, const char **name) {
    *name = code == INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" : code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
          : code == INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT"
          : code == INVALID_IMAGE ? "CUDA_ERROR_INVALID_IMAGE" : code == NOT_FOUND ? "CUDA_ERROR_NOT_FOUND" : "OTHER";
    return OK;
}
int cuGetErrorString(int code, const char **text) { *text = "as the stand-in says"; return code < 0; }
int cuDeviceGet(int *device, int index) { *device = 7 + index; return index >= 0 && index < 2 ? OK : NO_DEVICE; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    if (device < 7) return INVALID_VALUE;
    *value = attribute == 75 ? number("STANDIN_CAPABILITY", 90) / 10
           : attribute == 76 ? number("STANDIN_CAPABILITY", 90) % 10 : attribute == 97 ? 232448 : -1;
    return *value < 0 ? INVALID_VALUE : OK;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)(intptr_t)(0x1000 + device); return OK; }
int cuDevicePrimaryCtxRelease_v2(int device) { return device < 7; }
int cuCtxGetCurrent(void **context) { *context = depth ? stack[depth - 1] : NULL; return OK; }
int cuCtxPushCurrent_v2(void *context) { stack[depth++] = context; return OK; }
int cuCtxPopCurrent_v2(void **context) { *context = stack[--depth]; return OK; }
int cuThreadExchangeStreamCaptureMode(int *mode) {
    static __thread int current = 0;
    const int before = current;
    current = *mode;
    *mode = before;
    return OK;
}
int cuStreamIsCapturing(void *stream, int *status) { *status = stream == CAPTURING_STREAM; return OK; }

// Pools and what is allocated from them are numbered in order; one allocation in flight is all that kernels here need.
static int in_flight;
int cuMemPoolCreate(void **pool, const int *properties) {
    if (properties[0] != 1 || properties[2] != 1 || properties[3] < 7 || depth == 0) return INVALID_VALUE;
    *pool = (void *)(intptr_t)(0x500 + properties[3]);
    note("pool");
    return OK;
}
int cuMemPoolSetAttribute(void *pool, int attribute, uint64_t *value) {
    return pool == NULL || attribute != 4 || *value != UINT64_MAX ? INVALID_VALUE : OK;
}
int cuMemPoolDestroy(void *pool) { note("end of pool"); return pool == NULL; }
int cuMemAllocFromPoolAsync(uint64_t *address, size_t bytes, void *pool, void *stream) {
    char text[96];
    if (pool != (void *)(intptr_t)((intptr_t)stack[depth - 1] - 0x1000 + 0x500) || in_flight) return INVALID_VALUE;
    if (bytes > (size_t)1 << 39) return OUT_OF_MEMORY;
    snprintf(text, sizeof text, "allocate %zu on %p", bytes, stream);
    note(text);
    *address = 0xa00000;
    in_flight = 1;
    return OK;
}
int cuMemFreeAsync(uint64_t address, void *stream) {
    char text[96];
    snprintf(text, sizeof text, "give back on %p", stream);
    note(text);
    if (address != 0xa00000 || !in_flight) return INVALID_VALUE;
    in_flight = 0;
    return OK;
}

int cuModuleLoadData(void **module, const void *image) {
    int mode = 2, again;
    cuThreadExchangeStreamCaptureMode(&mode);
    again = mode;
    cuThreadExchangeStreamCaptureMode(&again);
    if (depth == 0) return INVALID_CONTEXT;
    if (mode != 2 || (memcmp(image, "IMAGE", 5) && memcmp(image, "\177ELF", 4))) return INVALID_IMAGE;
    *module = stack[depth - 1];
    note("load");
    return OK;
}
int cuModuleUnload(void *module) { note("unload"); return module == NULL || depth == 0; }
int cuModuleGetFunction(void **found, void *module, const char *name) {
    if (letters_of(name) == NULL) return NOT_FOUND;
    function *made = (function *)calloc(1, sizeof(function));
    snprintf(made->name, sizeof made->name, "%s", name);
    made->context = module;
    *found = made;
    return OK;
}
int cuFuncGetAttribute(int *value, int attribute, void *of) { *value = attribute == 1 ? 1024 : 0; return of == NULL; }
int cuFuncSetAttribute(void *of, int attribute, int value) {
    char text[128];
    if (attribute == 8) ((function *)of)->shared = value;
    snprintf(text, sizeof text, "set %s %d %d", ((function *)of)->name, attribute, value);
    note(text);
    return value > 232448 ? INVALID_VALUE : OK;
}

static int record(function *of, const uint32_t *grid, const uint32_t *block, uint32_t shared, void *stream, void **values,
                  const char *attributes) {
    char text[2048];
    int at = snprintf(text, sizeof text, "launch %s grid=%u,%u,%u block=%u,%u,%u shared=%u stream=%p%s arguments=", of->name,
                      grid[0], grid[1], grid[2], block[0], block[1], block[2], shared, stream, attributes);
    if (depth == 0 || stack[depth - 1] != of->context) return INVALID_CONTEXT;
    if (grid[0] * grid[1] * grid[2] == 0 || (shared > 48 * 1024 && (int)shared > of->shared)) return INVALID_VALUE;
    const char *letters = letters_of(of->name);
    for (int i = 0; letters[i] != ';' && letters[i] != 0; ++i) {
        const unsigned char *bytes = (const unsigned char *)values[i];
        const int size = letters[i] == 'm' ? 128 : letters[i] == 'p' || letters[i] == 'l' ? 8 : 4;
        if (letters[i] == 'm' && (uintptr_t)bytes % 64 != 0) return INVALID_VALUE;
        at += snprintf(text + at, sizeof text - at, "%s", i ? "," : "");
        for (int k = 0; k < size; ++k) at += snprintf(text + at, sizeof text - at, "%02x", bytes[k]);
    }
    note(text);
    return OK;
}
int cuLaunchKernel(void *of, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **values, void **extra) {
    const uint32_t grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
    return extra != NULL ? INVALID_VALUE : record((function *)of, grid, block, shared, stream, values, "");
}

typedef struct { int id; int padding; uint32_t value[16]; } attribute;
typedef struct { uint32_t grid[3], block[3], shared; void *stream; attribute *attributes; uint32_t count; } config;
int cuLaunchKernelEx(const config *with, void *of, void **values, void **extra) {
    char text[256] = "";
    int at = 0;
    for (uint32_t i = 0; i < with->count; ++i) {
        const attribute *one = &with->attributes[i];
        at += snprintf(text + at, sizeof text - at, " with=%d:%u,%u,%u", one->id, one->value[0], one->value[1], one->value[2]);
    }
    return extra ? INVALID_VALUE : record((function *)of, with->grid, with->block, with->shared, with->stream, values, text);
}

static int encode(unsigned char *map, const int *numbers, int count, uint32_t rank, void *address, const uint64_t *dims,
                  const uint64_t *strides, const uint32_t *box, const uint32_t *steps) {
    if ((uintptr_t)address % 16 || (uintptr_t)map % 64) return INVALID_VALUE;
    memset(map, 0, 128);
    for (int i = 0; i < count; ++i) map[i] = (unsigned char)numbers[i];
    memcpy(map + 16, &address, 8);
    for (uint32_t i = 0; i < rank; ++i) {
        if (dims[i] == 0 || (i && strides[i - 1] % 16)) return INVALID_VALUE;
        memcpy(map + 24 + 8 * i, &dims[i], 8);
        if (i) memcpy(map + 64 + 4 * i, &strides[i - 1], 4);
        if (box) memcpy(map + 84 + 4 * i, &box[i], 4);
        map[104 + i] = (unsigned char)steps[i];
    }
    note("encode");
    return OK;
}
int cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *address, const uint64_t *dims, const uint64_t *strides,
                           const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int l2, int fill) {
    const int numbers[] = {type, (int)rank, interleave, swizzle, l2, fill};
    return encode((unsigned char *)map, numbers, 6, rank, address, dims, strides, box, steps);
}
int cuTensorMapEncodeIm2col(void *map, int type, uint32_t rank, void *address, const uint64_t *dims, const uint64_t *strides,
                            const int *lower, const int *upper, uint32_t channels, uint32_t pixels, const uint32_t *steps,
                            int interleave, int swizzle, int l2, int fill) {
    const int numbers[] = {type, (int)rank, interleave, swizzle, l2, fill, lower[0], upper[0], (int)channels, (int)pixels};
    return encode((unsigned char *)map, numbers, 10, rank, address, dims, strides, NULL, steps);
}
