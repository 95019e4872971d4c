// Loading an exported kernel and queueing its launches. The folder's files are checked against what was exported.
#include <pthread.h>
#include <stdlib.h>

static int tilehal_damaged(const char *path, const char *what) {
    snprintf(tilehal_error, sizeof tilehal_error, "%.150s %.100s", path, what);
    return TILEHAL_DAMAGED;
}

// Reads a file of the folder; its size and FNV-1a hash must be those of the export. The content is the caller's.
static int tilehal_read_file(const char *directory, const char *name, size_t size, uint64_t hash, char **content) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path) {
        return tilehal_damaged(name, "has too long a path");
    }
    FILE *file = fopen(path, "rb");
    if (file == NULL) return tilehal_damaged(path, "cannot be opened");
    char *bytes = (char *)malloc(size + 1);
    const size_t got = bytes != NULL ? fread(bytes, 1, size + 1, file) : 0;
    fclose(file);
    uint64_t found = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < got; ++i) found = (found ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
    if (got != size || found != hash) {
        free(bytes);
        return tilehal_damaged(path, "is not the file that was exported");
    }
    *content = bytes;
    return 0;
}
