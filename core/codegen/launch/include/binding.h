// The state of one loaded kernel, and the steps of a call that do not depend on its signature.
#include "python.h"

#define TILEHAL_CAPSULE "tilehal.launcher"

typedef struct {
    void *tensor, *parameter;         // torch.Tensor and torch.nn.Parameter: other subclasses are the binder's business
    PyObject *miss;                   // given back when a call is not what the check expects
    PyObject *allocators;             // device index -> (callable, its argument or None) for each output, flat
    PyObject *keep;                   // what else must live as long: the binary, the exchange table's owner, the next two
    PyObject *is_negated, *yes;       // torch.Tensor.is_neg and True, borrowed
    const tilehal_exchange *exchange;
    PyObject *made[TILEHAL_DEVICES];  // the allocators' answer for each device
    tilehal_dl_type types[TILEHAL_ARGUMENTS];
#if TILEHAL_CUDA
    const void *image;
    tilehal_device devices[TILEHAL_DEVICES];
#else
    void *entry;
#endif
} tilehal_state;

// A tensor's address, shape and strides, read from the object without a copy.
static inline int tilehal_read(tilehal_state *state, PyObject *object, tilehal_tensor *tensor) {
    if (object->type != state->tensor && object->type != state->parameter) return 0;
    if (state->exchange->view(object, tensor) == 0) return 1;
    PyErr_Clear();
    return 0;
}

// Whether torch negates the tensor's values when it reads them, which no address says. Such a tensor is the imaginary part
// of a conjugated complex one, so its strides are even: torch is asked about few.
static inline int tilehal_negated(tilehal_state *state, PyObject *object, const tilehal_tensor *tensor) {
    for (int axis = tensor->rank - 1; axis >= 0; --axis) {
        if (tensor->shape[axis] != 1 && (tensor->strides[axis] & 1)) return 0;
    }
    PyObject *answer = PyObject_CallFunctionObjArgs(state->is_negated, object, NULL);
    if (answer == NULL) {
        PyErr_Clear();
        return 1;
    }
    const int negated = answer == state->yes;
    Py_DecRef(answer);
    return negated;
}

static inline PyObject *tilehal_again(PyObject *object) {
    Py_IncRef(object);
    return object;
}

static inline PyObject *tilehal_none(tilehal_state *state) {
    return tilehal_again(PyTuple_GetItem(state->keep, 0));
}

#if TILEHAL_OUTPUTS
static inline PyObject *tilehal_sizes(int count, const long long *sizes) {
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple != NULL && i < count; ++i) PyTuple_SetItem(tuple, i, PyLong_FromLongLong(sizes[i]));
    return tuple;
}

// A new tensor for output `number`; takes over `shape` and `strides`.
static PyObject *tilehal_make(tilehal_state *state, int device, int number, PyObject *shape, PyObject *strides) {
    PyObject *made = NULL;
    if (device < 0 || device >= TILEHAL_DEVICES) {
        PyErr_SetString(PyExc_RuntimeError, "a device index beyond what the launcher keeps");
    } else {
        if (state->made[device] == NULL) {
            PyObject *index = PyLong_FromLongLong(device);
            state->made[device] = index ? PyObject_CallFunctionObjArgs(state->allocators, index, NULL) : NULL;
            Py_DecRef(index);
        }
        if (state->made[device] != NULL) {
            PyObject *call = PyTuple_GetItem(state->made[device], 2 * number);
            PyObject *first = shape != NULL ? shape : PyTuple_GetItem(state->made[device], 2 * number + 1);
            made = PyObject_CallFunctionObjArgs(call, first, strides, NULL);
        }
    }
    Py_DecRef(shape);
    Py_DecRef(strides);
    return made;
}

static inline void tilehal_release(PyObject **made) {
    for (int i = 0; i < TILEHAL_OUTPUTS; ++i) Py_DecRef(made[i]);
}
#endif
