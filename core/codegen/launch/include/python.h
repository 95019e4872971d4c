// What a generated argument check stands on: Python's stable ABI and DLPack's table of functions, declared here so that
// neither Python's headers nor torch's are needed. Both are fixed: https://docs.python.org/3/c-api/stable.html and
// DLPack 1.2 (struct DLPackExchangeAPI), which torch and apache-tvm-ffi fill in as `Tensor.__dlpack_c_exchange_api__`.
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>

typedef ptrdiff_t Py_ssize_t;
typedef struct tilehal_object { Py_ssize_t references; void *type; } PyObject;
typedef PyObject *(*tilehal_method)(PyObject *, PyObject *const *, Py_ssize_t);
typedef struct { const char *name; tilehal_method function; int flags; const char *doc; } PyMethodDef;
#define TILEHAL_FASTCALL 0x0080
typedef struct { int slot; void *function; } tilehal_slot;
typedef struct { const char *name; int size, item_size; unsigned flags; tilehal_slot *slots; } tilehal_spec;
#define TILEHAL_SLOT_CALL 50
#define TILEHAL_BASE_TYPE (1u << 10)

extern PyObject *PyExc_RuntimeError;
extern char PyLong_Type[], PyBool_Type[], PyFloat_Type[];
void Py_IncRef(PyObject *);
void Py_DecRef(PyObject *);
PyObject *PyCFunction_NewEx(PyMethodDef *, PyObject *, PyObject *);
PyObject *PyCapsule_New(void *, const char *, void (*)(PyObject *));
void *PyCapsule_GetPointer(PyObject *, const char *);
PyObject *PyObject_CallFunctionObjArgs(PyObject *, ...);
PyObject *PyObject_CallObject(PyObject *, PyObject *);
PyObject *PyTuple_New(Py_ssize_t);
int PyTuple_SetItem(PyObject *, Py_ssize_t, PyObject *);
PyObject *PyTuple_GetItem(PyObject *, Py_ssize_t);
Py_ssize_t PyTuple_Size(PyObject *);
PyObject *PyDict_New(void);
int PyDict_Next(PyObject *, Py_ssize_t *, PyObject **, PyObject **);
PyObject *PyType_FromSpecWithBases(tilehal_spec *, PyObject *);
PyObject *PyList_New(Py_ssize_t);
int PyList_SetItem(PyObject *, Py_ssize_t, PyObject *);
PyObject *PyLong_FromLongLong(long long);
long long PyLong_AsLongLongAndOverflow(PyObject *, int *);
unsigned long long PyLong_AsUnsignedLongLong(PyObject *);
void *PyLong_AsVoidPtr(PyObject *);
double PyFloat_AsDouble(PyObject *);
int PyBytes_AsStringAndSize(PyObject *, char **, Py_ssize_t *);
PyObject *PyErr_Occurred(void);
void PyErr_Clear(void);
int PyErr_ExceptionMatches(PyObject *);
void PyErr_Fetch(PyObject **, PyObject **, PyObject **);
void PyErr_NormalizeException(PyObject **, PyObject **, PyObject **);
void PyErr_SetString(PyObject *, const char *);
int PyException_SetTraceback(PyObject *, PyObject *);
void *PyEval_SaveThread(void);
void PyEval_RestoreThread(void *);
void *PyMem_Calloc(size_t, size_t);
void PyMem_Free(void *);

typedef struct { int32_t type, id; } tilehal_dl_device;
typedef struct { uint8_t code, bits; uint16_t lanes; } tilehal_dl_type;
typedef struct {
    void *data;
    tilehal_dl_device device;
    int32_t rank;
    tilehal_dl_type type;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} tilehal_tensor;
typedef struct {
    struct { uint32_t major, minor; } version;
    void *previous;
    void *allocate, *from_object, *to_object;
    int (*view)(void *, tilehal_tensor *);
    int (*stream)(int32_t, int32_t, void **);
} tilehal_exchange;

static inline int tilehal_same_type(tilehal_dl_type a, tilehal_dl_type b) {
    return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

// Row-major and packed, as torch sees it: axes of one element have no stride to be wrong.
static inline int tilehal_contiguous(const tilehal_tensor *tensor) {
    int64_t expected = 1, elements = 1;
    int packed = 1;
    for (int axis = tensor->rank - 1; axis >= 0; --axis) {
        const int64_t extent = tensor->shape[axis];
        elements *= extent;
        if (extent != 1 && tensor->strides[axis] != expected) packed = 0;
        expected *= extent;
    }
    return packed || elements == 0;
}

static inline int tilehal_has_elements(const tilehal_tensor *tensor) {
    for (int axis = 0; axis < tensor->rank; ++axis) {
        if (tensor->shape[axis] == 0) return 0;
    }
    return 1;
}

static inline void *tilehal_data(const tilehal_tensor *tensor) {
    return tensor->data == NULL ? NULL : (char *)tensor->data + tensor->byte_offset;
}

// A Python int (or bool) within the bounds of a C type. Anything else is no match, and leaves no exception.
static inline int tilehal_integer(PyObject *object, int64_t least, int64_t most, int64_t *value) {
    int overflow = 0;
    if (object->type != (void *)PyLong_Type && object->type != (void *)PyBool_Type) return 0;
    *value = PyLong_AsLongLongAndOverflow(object, &overflow);
    return !overflow && *value >= least && *value <= most;
}

// A Python float, or an int that a double holds. Finite numbers from `overflow` on are beyond the C type.
static inline int tilehal_number(PyObject *object, double overflow, double *value) {
    if (object->type == (void *)PyFloat_Type) {
        *value = PyFloat_AsDouble(object);
        return !(*value >= overflow || *value <= -overflow) || isinf(*value);
    }
    int64_t whole;
    if (!tilehal_integer(object, -(INT64_C(1) << 53), INT64_C(1) << 53, &whole)) return 0;
    *value = (double)whole;
    return 1;
}
