/* A stand-in for libascendcl.so: the calls a launch makes, each checking its arguments as the real runtime's ABI asks.
 *
 * A "device image" is text: `entry magic\n` per kernel. What a kernel does and how its argument block looks is told by
 * the test (`standin_kernel`), from the compiled module's entry and independently of the launcher. Launches queue up on
 * their stream and run when it is synchronised, on the copy of the arguments taken at the launch. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define MOST 64
#define MOST_SLOTS 64

enum { PARAM_INVALID = 107000, INVALID_DEVICE = 107001, STREAM_CONTEXT = 107003, KERNEL_LOOKUP = 507027 };
#define MAGIC_VECTOR 0x41415246u
#define MAGIC_AI_CORE 0x43554245u

typedef void (*run_blocks)(const uint64_t *slots, int64_t *next, int64_t total, int32_t x, int32_t y, int32_t z);

/* kind: s sync address, L lock, W workspace, p tensor, 1 2 4 8 number of so many bytes, g extent of the grid,
 * b block's place (not in the argument block). */
typedef struct { char name[64]; char kinds[MOST_SLOTS]; int64_t workspace_per_block, locks, lock_value; run_blocks run;
                 uint32_t magic; } kernel_t;
typedef struct { const kernel_t *kernel; uint32_t blocks; void *stream; size_t size; unsigned char *block; } task_t;
typedef struct { uint32_t type; uint32_t value[4]; } option_t;
typedef struct { option_t *options; size_t count; } options_t;
typedef struct { kernel_t *kernel; uint32_t magic; int32_t device; } function_t;
typedef struct { char text[512]; uint32_t magic; int32_t device; } binary_t;

static kernel_t kernels[MOST];
static int kernel_count;
static struct { uintptr_t begin, end; } regions[4 * MOST];
static int region_count;
static task_t tasks[4 * MOST];
static int task_count;
static char fail_name[64];
static int fail_code;
static int32_t device = -1;
static uint64_t sync_word;
static char message[512];
static char calls[1 << 16];
static uintptr_t streams[8];
static int stream_count;
static void *pinned[MOST];
static int pinned_count;

static int called(const char *name) {
    if (strlen(calls) + strlen(name) + 2 < sizeof calls) { strcat(calls, name); strcat(calls, "\n"); }
    message[0] = 0;
    if (strcmp(name, fail_name) == 0) { snprintf(message, sizeof message, "asked to fail"); return fail_code; }
    return 0;
}
#define CALLED() do { int code_ = called(__func__); if (code_) return code_; } while (0)
#define REFUSE(code, ...) do { snprintf(message, sizeof message, __VA_ARGS__); return code; } while (0)

static int known(uintptr_t address, int64_t bytes) {
    for (int i = 0; i < region_count; i++)
        if (address >= regions[i].begin && address + (uintptr_t)bytes <= regions[i].end) return 1;
    return 0;
}

static int known_stream(const void *stream) {
    for (int i = 0; i < stream_count; i++)
        if (streams[i] == (uintptr_t)stream) return 1;
    return 0;
}

/* ---------------------------------------------------------------- what the test says */

EXPORT void standin_reset(void) {
    for (int i = 0; i < task_count; i++) free(tasks[i].block);
    for (int i = 0; i < pinned_count; i++) free(pinned[i]);
    pinned_count = 0;
    kernel_count = region_count = task_count = stream_count = fail_code = 0;
    fail_name[0] = message[0] = calls[0] = 0;
    device = 0;
}
EXPORT void standin_kernel(const char *name, const char *kinds, int64_t workspace_per_block, int64_t locks,
                           int64_t lock_value, run_blocks run) {
    kernel_t *kernel = &kernels[kernel_count++];
    snprintf(kernel->name, sizeof kernel->name, "%s", name);
    snprintf(kernel->kinds, sizeof kernel->kinds, "%s", kinds);
    kernel->workspace_per_block = workspace_per_block;
    kernel->locks = locks;
    kernel->lock_value = lock_value;
    kernel->run = run;
}
EXPORT void standin_region(uint64_t begin, uint64_t bytes) {
    regions[region_count].begin = begin;
    regions[region_count++].end = begin + bytes;
}
EXPORT void standin_stream(uint64_t handle) { streams[stream_count++] = handle; }
EXPORT void standin_fail(const char *name, int code) {
    snprintf(fail_name, sizeof fail_name, "%s", name);
    fail_code = code;
}
EXPORT const char *standin_calls(void) { return calls; }
EXPORT int standin_pending(void) { return task_count; }

/* ---------------------------------------------------------------- the runtime's calls */

EXPORT const char *aclGetRecentErrMsg(void) { return message[0] ? message : NULL; }

EXPORT int aclrtGetDevice(int32_t *id) {
    CALLED();
    if (device < 0) return 107002;
    *id = device;
    return 0;
}
EXPORT int aclrtSetDevice(int32_t id) {
    CALLED();
    if (id < 0 || id > 1) REFUSE(INVALID_DEVICE, "there are 2 devices, not %d", id + 1);
    device = id;
    return 0;
}
EXPORT int aclrtBinaryLoadFromData(const void *data, size_t length, const options_t *options, void **handle) {
    CALLED();
    if (!data || !length || !handle) REFUSE(PARAM_INVALID, "no data");
    if (!options || options->count < 1) REFUSE(PARAM_INVALID, "no options");
    binary_t *binary = calloc(1, sizeof *binary);
    for (size_t i = 0; i < options->count; i++) {
        if (options->options[i].type == 2) binary->magic = options->options[i].value[0];
        else if (options->options[i].type != 1) REFUSE(PARAM_INVALID, "option %u", options->options[i].type);
    }
    if (binary->magic != MAGIC_VECTOR && binary->magic != MAGIC_AI_CORE)
        REFUSE(PARAM_INVALID, "magic %x", binary->magic);
    if (length >= sizeof binary->text || memcmp(data, "standin\n", 8)) REFUSE(PARAM_INVALID, "not a device image");
    memcpy(binary->text, data, length);
    binary->device = device;
    *handle = binary;
    return 0;
}
EXPORT int aclrtBinaryGetFunction(const binary_t *binary, const char *name, void **handle) {
    CALLED();
    if (!binary || !name || !handle) REFUSE(PARAM_INVALID, "null");
    char line[128];
    uint32_t magic = 0;
    snprintf(line, sizeof line, "\n%s ", name);
    const char *found = strstr(binary->text, line);
    if (!found) REFUSE(KERNEL_LOOKUP, "the image has no %s", name);
    sscanf(found + strlen(line), "%x", &magic);
    if (magic != binary->magic) REFUSE(PARAM_INVALID, "loaded for cores %x, made for %x", binary->magic, magic);
    for (int i = kernel_count - 1; i >= 0; i--)
        if (strcmp(kernels[i].name, name) == 0) {
            function_t *function = calloc(1, sizeof *function);
            function->kernel = &kernels[i];
            function->device = binary->device;
            *handle = function;
            return 0;
        }
    REFUSE(KERNEL_LOOKUP, "no test has described %s", name);
}
EXPORT int aclrtGetHardwareSyncAddr(void **address) {
    CALLED();
    *address = &sync_word;
    return 0;
}
EXPORT int aclrtMallocHost(void **address, size_t bytes) {
    CALLED();
    if (!address || !bytes || pinned_count == MOST) REFUSE(PARAM_INVALID, "%zu bytes of host memory", bytes);
    *address = pinned[pinned_count++] = malloc(bytes);
    return 0;
}
EXPORT int aclrtMemcpyAsync(void *target, size_t most, const void *source, size_t count, int kind, void *stream) {
    CALLED();
    if (kind != 1 || count > most || !target) REFUSE(PARAM_INVALID, "copy kind %d of %zu bytes", kind, count);
    if (!known_stream(stream)) REFUSE(STREAM_CONTEXT, "stream %p is not one of this context", stream);
    int found = 0;
    for (int i = 0; i < pinned_count; i++) found |= pinned[i] == source;
    if (!found) REFUSE(PARAM_INVALID, "a copy in a stream's order from memory that is not pinned");
    memcpy(target, source, count);
    return 0;
}

static size_t place(size_t offset, size_t size) { return (offset + size - 1) / size * size; }

static int64_t number(const unsigned char *at, int size) {
    int64_t value = 0;
    memcpy(&value, at, size);
    return value;
}

EXPORT int aclrtLaunchKernelWithHostArgs(const function_t *function, uint32_t blocks, void *stream, void *config,
                                         const unsigned char *arguments, size_t size, void *holders,
                                         size_t holder_count) {
    CALLED();
    if (!function || !arguments || config || holders || holder_count)
        REFUSE(PARAM_INVALID, "null or unexpected arguments");
    if (function->device != device)
        REFUSE(PARAM_INVALID, "loaded on device %d, launched on %d", function->device, device);
    if (!known_stream(stream)) REFUSE(STREAM_CONTEXT, "stream %p is not one of this context", stream);
    if (blocks == 0 || blocks > 65535) REFUSE(PARAM_INVALID, "%u blocks", blocks);
    const kernel_t *kernel = function->kernel;
    size_t offset = 0;
    int64_t grid = 1;
    for (const char *kind = kernel->kinds; *kind; kind++) {
        if (*kind == 'b') continue;
        size_t bytes = strchr("sLWp8", *kind) ? 8 : 4;
        offset = place(offset, bytes);
        if (offset + bytes > size)
            REFUSE(PARAM_INVALID, "%zu bytes of arguments end before argument %c", size, *kind);
        uintptr_t address = (uintptr_t)number(arguments + offset, (int)bytes);
        switch (*kind) {
        case 's':
            if (address != (uintptr_t)&sync_word) REFUSE(PARAM_INVALID, "the first argument is not the sync address");
            break;
        case 'L':
            if (!kernel->locks != !address)
                REFUSE(PARAM_INVALID, "lock is %p for %ld locks", (void *)address, (long)kernel->locks);
            for (int64_t i = 0; i < kernel->locks; i++)
                if (((int64_t *)address)[i] != kernel->lock_value)
                    REFUSE(PARAM_INVALID, "lock %ld is not initialised", (long)i);
            break;
        case 'W':
            if (!kernel->workspace_per_block != !address) REFUSE(PARAM_INVALID, "workspace is %p", (void *)address);
            /* Writes all of it: a launcher that gives too little is caught by the allocator or the sanitizer. */
            if (address) memset((void *)address, 0xA5, (size_t)kernel->workspace_per_block * blocks);
            break;
        case 'p':
            if (address && !known(address, 1))
                REFUSE(PARAM_INVALID, "%p is not a tensor of this call", (void *)address);
            break;
        case 'g':
            grid *= (int32_t)address;
            break;
        }
        offset += bytes;
    }
    if (place(offset, 8) != size)
        REFUSE(PARAM_INVALID, "%zu bytes of arguments, the kernel has %zu", size, place(offset, 8));
    if (grid != (int64_t)blocks) REFUSE(PARAM_INVALID, "%u blocks, the grid has %ld", blocks, (long)grid);
    if (task_count == 4 * MOST) REFUSE(PARAM_INVALID, "the queue is full");
    task_t *task = &tasks[task_count++];
    *task = (task_t){kernel, blocks, stream, size, malloc(size)};
    memcpy(task->block, arguments, size);
    return 0;
}

static void run(const task_t *task) {
    uint64_t slots[MOST_SLOTS] = {0};
    int32_t grid[3] = {1, 1, 1};
    int slot = 0, axis = 0;
    size_t offset = 0;
    for (const char *kind = task->kernel->kinds; *kind; kind++) {
        if (*kind == 'b') { slot++; continue; }
        size_t bytes = strchr("sLWp8", *kind) ? 8 : 4;
        offset = place(offset, bytes);
        int used = *kind >= '1' && *kind <= '8' ? *kind - '0' : (int)bytes;
        int64_t value = number(task->block + offset, used);
        if (*kind == 'g') grid[axis++] = (int32_t)value;
        if (*kind != 's') slots[slot++] = (uint64_t)value;
        offset += bytes;
    }
    int64_t next = 0;
    task->kernel->run(slots, &next, task->blocks, grid[0], grid[1], grid[2]);
}

EXPORT int aclrtSynchronizeStream(void *stream) {
    CALLED();
    int kept = 0;
    for (int i = 0; i < task_count; i++) {
        if (tasks[i].stream != stream) { tasks[kept++] = tasks[i]; continue; }
        run(&tasks[i]);
        free(tasks[i].block);
    }
    task_count = kept;
    return 0;
}
