// What a generated launch stands on: the CUDA driver, found when it is first needed. Nothing of CUDA is included or
// linked: the declarations below are the driver's own binary interface, and the library is opened by name.
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "integers.h"

// Codes of the functions here: 0, a positive CUresult of the driver, or one of these.
#define TILEHAL_NO_DRIVER (-1)      // no driver, or too old a one
#define TILEHAL_WRONG_DEVICE (-2)   // the binary is for another compute capability
#define TILEHAL_WRONG_ARGUMENT (-3) // a number that the launch cannot use
#define TILEHAL_DAMAGED (-4)        // a file is missing or is not the one that was exported

// What went wrong last in this thread.
static __thread char tilehal_error[768];

typedef struct { int id; int padding; union { uint32_t dims[3]; int flag; char bytes[64]; } value; } tilehal_attribute;
typedef struct {
    uint32_t grid[3], block[3], shared_bytes;
    void *stream;
    tilehal_attribute *attributes;
    uint32_t count;
} tilehal_config;
typedef struct {
    int type, handles;
    struct { int type, id; } place;
    void *security;
    size_t largest;
    unsigned short usage;
    unsigned char reserved[54];
} tilehal_pool;
typedef struct { unsigned char bytes[128]; } __attribute__((aligned(128))) tilehal_map;

static struct {
    int ready;
    int version;
    int (*init)(unsigned);
    int (*driver_version)(int *);
    int (*error_name)(int, const char **);
    int (*error_text)(int, const char **);
    int (*device)(int *, int);
    int (*device_attribute)(int *, int, int);
    int (*retain_context)(void **, int);
    int (*release_context)(int);
    int (*current_context)(void **);
    int (*push_context)(void *);
    int (*pop_context)(void **);
    int (*load)(void **, const void *);
    int (*unload)(void *);
    int (*function)(void **, void *, const char *);
    int (*function_attribute)(int *, int, void *);
    int (*set_function_attribute)(void *, int, int);
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
    int (*launch_config)(const tilehal_config *, void *, void **, void **);
    int (*make_pool)(void **, const tilehal_pool *);
    int (*set_pool)(void *, int, void *);
    int (*end_pool)(void *);
    int (*allocate)(uint64_t *, size_t, void *, void *);
    int (*give_back)(uint64_t, void *);
    int (*capture_mode)(int *);
    int (*is_capturing)(void *, int *);
    int (*tiled)(tilehal_map *, int, uint32_t, void *, const uint64_t *, const uint64_t *, const uint32_t *,
                 const uint32_t *, int, int, int, int);
    int (*im2col)(tilehal_map *, int, uint32_t, void *, const uint64_t *, const uint64_t *, const int *, const int *,
                  uint32_t, uint32_t, const uint32_t *, int, int, int, int);
} tilehal_driver;

static int tilehal_fail(int code, const char *what) {
    const char *name = NULL, *text = NULL;
    if (code > 0 && tilehal_driver.ready) {
        tilehal_driver.error_name(code, &name);
        tilehal_driver.error_text(code, &text);
    }
    if (name != NULL) {
        snprintf(tilehal_error, sizeof tilehal_error, "%s: %s (%d): %s", what, name, code, text ? text : "");
    } else {
        snprintf(tilehal_error, sizeof tilehal_error, code > 0 ? "%s: error %d" : "%s", what, code);
    }
    return code;
}

// Opens the driver once; `required` is the oldest version that has what the binary needs (12000 is CUDA 12.0).
static int tilehal_open_driver(int required) {
    if (!tilehal_driver.ready) {
        const char *const names[] = {"libcuda.so.1", "libcuda.so"};
        void *library = dlopen(names[0], RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) library = dlopen(names[1], RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) {
            snprintf(tilehal_error, sizeof tilehal_error, "the CUDA driver cannot be loaded: %s", dlerror());
            return TILEHAL_NO_DRIVER;
        }
        const struct { const char *name; void *slot; int optional; } wanted[] = {
            {"cuInit", &tilehal_driver.init, 0},
            {"cuDriverGetVersion", &tilehal_driver.driver_version, 0},
            {"cuGetErrorName", &tilehal_driver.error_name, 0},
            {"cuGetErrorString", &tilehal_driver.error_text, 0},
            {"cuDeviceGet", &tilehal_driver.device, 0},
            {"cuDeviceGetAttribute", &tilehal_driver.device_attribute, 0},
            {"cuDevicePrimaryCtxRetain", &tilehal_driver.retain_context, 0},
            {"cuDevicePrimaryCtxRelease_v2", &tilehal_driver.release_context, 0},
            {"cuCtxGetCurrent", &tilehal_driver.current_context, 0},
            {"cuCtxPushCurrent_v2", &tilehal_driver.push_context, 0},
            {"cuCtxPopCurrent_v2", &tilehal_driver.pop_context, 0},
            {"cuModuleLoadData", &tilehal_driver.load, 0},
            {"cuModuleUnload", &tilehal_driver.unload, 0},
            {"cuModuleGetFunction", &tilehal_driver.function, 0},
            {"cuFuncGetAttribute", &tilehal_driver.function_attribute, 0},
            {"cuFuncSetAttribute", &tilehal_driver.set_function_attribute, 0},
            {"cuLaunchKernel", &tilehal_driver.launch, 0},
            {"cuThreadExchangeStreamCaptureMode", &tilehal_driver.capture_mode, 0},
            {"cuStreamIsCapturing", &tilehal_driver.is_capturing, 0},
            {"cuMemPoolCreate", &tilehal_driver.make_pool, 0},
            {"cuMemPoolSetAttribute", &tilehal_driver.set_pool, 0},
            {"cuMemPoolDestroy", &tilehal_driver.end_pool, 0},
            {"cuMemAllocFromPoolAsync", &tilehal_driver.allocate, 0},
            {"cuMemFreeAsync", &tilehal_driver.give_back, 0},
            {"cuLaunchKernelEx", &tilehal_driver.launch_config, 1},
            {"cuTensorMapEncodeTiled", &tilehal_driver.tiled, 1},
            {"cuTensorMapEncodeIm2col", &tilehal_driver.im2col, 1},
        };
        for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; ++i) {
            void *found = dlsym(library, wanted[i].name);
            if (found == NULL && !wanted[i].optional) {
                snprintf(tilehal_error, sizeof tilehal_error, "the CUDA driver has no %s: it is too old", wanted[i].name);
                return TILEHAL_NO_DRIVER;
            }
            memcpy(wanted[i].slot, &found, sizeof found);
        }
        int code = tilehal_driver.init(0);
        if (code == 0) code = tilehal_driver.driver_version(&tilehal_driver.version);
        tilehal_driver.ready = 1;
        if (code != 0) {
            tilehal_fail(code, "cuInit");
            tilehal_driver.ready = 0;
            return code;
        }
    }
    if (tilehal_driver.version < required) {
        snprintf(tilehal_error, sizeof tilehal_error, "the driver supports CUDA %d.%d, the kernel needs %d.%d",
                 tilehal_driver.version / 1000, tilehal_driver.version % 1000 / 10, required / 1000, required % 1000 / 10);
        return TILEHAL_NO_DRIVER;
    }
    return 0;
}

// An entry point as it is loaded: dynamic shared memory is what a launch will ask for, or -1 when that varies.
typedef struct { const char *name; int64_t shared_bytes; int cluster; } tilehal_entry;

// The kernel on one device.
typedef struct {
    int ready, number;
    int captured;  // a graph may hold its launches: the module then stays loaded
    void *context, *module;
    void *pool;  // of scratch memory, null for a kernel that needs none
    void *functions[TILEHAL_LAUNCHES];
} tilehal_device;

// Whether a binary for `wanted` (major * 10 + minor) runs on `found`; an architecture-specific one runs on its own only.
static int tilehal_check_capability(int number, int wanted, int exact) {
    int device, major = 0, minor = 0;
    int code = tilehal_driver.device(&device, number);
    if (code == 0) code = tilehal_driver.device_attribute(&major, 75, device);
    if (code == 0) code = tilehal_driver.device_attribute(&minor, 76, device);
    if (code != 0) return tilehal_fail(code, "asking the device for its compute capability");
    const int fits = exact ? major * 10 + minor == wanted : major == wanted / 10 && minor >= wanted % 10;
    if (fits) return 0;
    snprintf(tilehal_error, sizeof tilehal_error, "the kernel was built for compute capability %d.%d%s, device %d has %d.%d",
             wanted / 10, wanted % 10, exact ? " exactly" : "", number, major, minor);
    return TILEHAL_WRONG_DEVICE;
}

#ifdef TILEHAL_WORKSPACES
// A pool that keeps what it was given back: it is as large as what the kernel's calls under way took at most.
static int tilehal_make_pool(tilehal_device *device, int handle) {
    const tilehal_pool wanted = {.type = 1, .place = {1, handle}};  // device memory, mapped for good
    uint64_t kept = UINT64_MAX;
    const int code = tilehal_driver.make_pool(&device->pool, &wanted);
    return code != 0 ? code : tilehal_driver.set_pool(device->pool, 4, &kept);
}

// Scratch memory for launches queued on `stream` until tilehal_give_back; null for 0 bytes.
static int tilehal_scratch(tilehal_device *device, void *stream, int64_t bytes, char **scratch) {
    uint64_t address = 0;
    if (bytes <= 0) return 0;
    const int code = tilehal_driver.allocate(&address, (size_t)bytes, device->pool, stream);
    if (code != 0) {
        char text[96];
        snprintf(text, sizeof text, "allocating %lld bytes of scratch memory", (long long)bytes);
        return tilehal_fail(code, text);
    }
    *scratch = (char *)(uintptr_t)address;
    return 0;
}

// Gives scratch memory back behind what is queued. Returns `code`, or if that is 0 what went wrong.
static int tilehal_give_back(char *scratch, void *stream, int code) {
    if (scratch == NULL) return code;
    const int given = tilehal_driver.give_back((uint64_t)(uintptr_t)scratch, stream);
    return code == 0 && given != 0 ? tilehal_fail(given, "giving scratch memory back") : code;
}
#endif

// Loads the binary on a device. Also inside the capture of a graph: loading is no work on the stream.
static int tilehal_load(tilehal_device *device, int number, const void *image, int capability, int exact,
                        const tilehal_entry *entries) {
    int handle, most = 0, mode = 2, code = tilehal_check_capability(number, capability, exact);
    if (code != 0) return code;
    code = tilehal_driver.device(&handle, number);
    if (code == 0) code = tilehal_driver.device_attribute(&most, 97, handle);  // shared memory a block may opt in to
    if (code == 0) code = tilehal_driver.retain_context(&device->context, handle);
    if (code == 0) code = tilehal_driver.push_context(device->context);
    if (code != 0) return tilehal_fail(code, "making the device current");
    tilehal_driver.capture_mode(&mode);
    const char *what = "loading the kernel's binary";
    code = tilehal_driver.load(&device->module, image);
    for (int i = 0; code == 0 && i < TILEHAL_LAUNCHES; ++i) {
        what = entries[i].name;
        code = tilehal_driver.function(&device->functions[i], device->module, entries[i].name);
        int64_t bytes = entries[i].shared_bytes;
        if (code == 0 && bytes < 0) {
            int fixed = 0;
            code = tilehal_driver.function_attribute(&fixed, 1, device->functions[i]);
            bytes = most - fixed;
        }
        if (code == 0 && bytes > 0) {
            what = "reserving dynamic shared memory";
            code = tilehal_driver.set_function_attribute(device->functions[i], 8, (int)bytes);
        }
        if (code == 0 && entries[i].cluster) {
            what = "allowing clusters of more than 8 blocks";
            code = tilehal_driver.set_function_attribute(device->functions[i], 14, 1);
        }
    }
#ifdef TILEHAL_WORKSPACES
    if (code == 0) {
        what = "making a pool of scratch memory";
        code = tilehal_make_pool(device, handle);
    }
#endif
    tilehal_driver.capture_mode(&mode);
    void *popped;
    tilehal_driver.pop_context(&popped);
    if (code != 0) return tilehal_fail(code, what);
    device->number = number;
    device->ready = 1;
    return 0;
}

static void tilehal_unload(tilehal_device *device) {
    void *popped;
    int mode = 2;
    if (!device->ready || device->captured) return;
    device->ready = 0;
    if (tilehal_driver.push_context(device->context) != 0) return;
    tilehal_driver.capture_mode(&mode);
    tilehal_driver.unload(device->module);
#ifdef TILEHAL_WORKSPACES
    tilehal_driver.end_pool(device->pool);
#endif
    tilehal_driver.capture_mode(&mode);
    tilehal_driver.pop_context(&popped);
}

// Makes the device's context current for a launch; *pushed says whether it was not, and has to be taken back.
static inline int tilehal_enter(tilehal_device *device, void *stream, int *pushed) {
    void *current = NULL;
    *pushed = 0;
    int code = tilehal_driver.current_context(&current);
    if (code == 0 && current != device->context) {
        code = tilehal_driver.push_context(device->context);
        *pushed = code == 0;
    }
    if (code != 0) return tilehal_fail(code, "making the device current");
    if (stream != NULL && !device->captured) {  // the default stream cannot be captured
        int capturing = 0;
        if (tilehal_driver.is_capturing(stream, &capturing) == 0 && capturing) device->captured = 1;
    }
    return 0;
}

static inline void tilehal_leave(int pushed) {
    void *popped;
    if (pushed) tilehal_driver.pop_context(&popped);
}

// Whether data starts where the kernel cannot access it; notes which parameter it is.
static __attribute__((unused, cold, noinline)) int tilehal_misaligned(const char *name, const void *address, int alignment) {
    if ((uintptr_t)address % (unsigned)alignment == 0) return 0;
    snprintf(tilehal_error, sizeof tilehal_error, "%s starts at %p, its data must start at a multiple of %d bytes", name,
             address, alignment);
    return 1;
}

static __attribute__((unused)) int tilehal_fail_map(int code, const char *name, const void *address, int rank, const uint64_t *dims,
                            const uint64_t *strides) {
    char text[256];
    const char *reason = "";
    for (int i = 0; i < rank; ++i) {
        if (dims[i] == 0) reason = "; an axis is empty";
        if (i > 0 && strides[i - 1] % 16 != 0) reason = "; strides must be multiples of 16 bytes";
    }
    if ((uintptr_t)address % 16 != 0) reason = "; its data must start at a multiple of 16 bytes";
    snprintf(text, sizeof text, "no bulk tensor copy (TMA) can describe %s at %p%s", name, address, reason);
    return tilehal_fail(code, text);
}
