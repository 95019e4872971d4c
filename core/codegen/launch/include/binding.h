// The state of one loaded kernel, and the steps of a call that do not depend on its signature.
#include "python.h"

#define TILEHAL_CAPSULE "tilehal.launcher"

typedef struct {
    void *tensor, *parameter;         // torch.Tensor and torch.nn.Parameter: other subclasses are the binder's business
    PyObject *miss;                   // given back when a call is not what the check expects
    PyObject *allocators;             // device index -> how each output is made there, see tilehal_make()
    PyObject *keep;                   // what else must live as long: the binary, the exchange table's owner, the next three
    PyObject *is_negated, *yes;       // torch.Tensor.is_neg and True, borrowed
    PyObject *modes;                  // counts the modes that want to see torch's operators, borrowed
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
static PyObject *tilehal_sizes(int count, const long long *sizes) {
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple != NULL && i < count; ++i) PyTuple_SetItem(tuple, i, PyLong_FromLongLong(sizes[i]));
    return tuple;
}

// Strides of rows one behind the other, as torch gives them: an empty axis counts as one element.
static PyObject *tilehal_packed(int rank, const long long *shape) {
    PyObject *tuple = PyTuple_New(rank);
    long long expected = 1;
    for (int i = rank - 1; tuple != NULL && i >= 0; --i) {
        PyTuple_SetItem(tuple, i, PyLong_FromLongLong(expected));
        expected *= shape[i] > 1 ? shape[i] : 1;
    }
    return tuple;
}

// Whether no mode is active that would see an output being made, and may make something else of it.
static int tilehal_unseen(tilehal_state *state) {
    int overflow = 0;
    PyObject *count = PyObject_CallObject(state->modes, NULL);
    if (count == NULL) {
        PyErr_Clear();
        return 0;
    }
    const int none = PyLong_AsLongLongAndOverflow(count, &overflow) == 0;
    Py_DecRef(count);
    return none;
}

// Whether an output may be made past torch's dispatcher: what is made on the thread's current device is on this one.
static int tilehal_past_dispatcher(tilehal_state *state, int device) {
    (void)state;
    (void)device;
#if TILEHAL_CUDA
    void *current = NULL;
    if (!state->devices[device].ready || tilehal_driver.current_context(&current) != 0) return 0;
    if (current != state->devices[device].context) return 0;
#endif
    return 1;
}

// A new tensor for output `number`. The allocators say of each output: the dtype; the function that takes (shape,
// strides, dtype) past the dispatcher, or None, and these arguments where they are fixed, or None; the function that
// takes (shape) or (shape, strides), and its arguments where they are fixed, or None. Without strides it is packed.
static PyObject *tilehal_make(tilehal_state *state, int device, int number, int rank, const long long *shape,
                              const long long *strides) {
    if (device < 0 || device >= TILEHAL_DEVICES) {
        PyErr_SetString(PyExc_RuntimeError, "a device index beyond what the launcher keeps");
        return NULL;
    }
    if (!tilehal_unseen(state)) {  // the binder knows what a mode makes of a call
        PyErr_SetString(PyExc_RuntimeError, "a mode is active");
        return NULL;
    }
    if (state->made[device] == NULL) {
        PyObject *index = PyLong_FromLongLong(device);
        PyObject *allocators = index ? PyObject_CallFunctionObjArgs(state->allocators, index, NULL) : NULL;
        Py_DecRef(index);
        if (allocators == NULL) return NULL;
        if (state->made[device] == NULL) {
            state->made[device] = allocators;
        } else {  // another thread was faster, and may be using its own
            Py_DecRef(allocators);
        }
    }
    PyObject *output = PyTuple_GetItem(state->made[device], number), *none = PyTuple_GetItem(state->keep, 0);
    const int past = PyTuple_GetItem(output, 1) != none && tilehal_past_dispatcher(state, device);
    PyObject *arguments = PyTuple_GetItem(output, past ? 2 : 4), *made = NULL;
    if (arguments != none) {
        Py_IncRef(arguments);
    } else {
        arguments = PyTuple_New(past ? 3 : strides != NULL ? 2 : 1);
        if (arguments == NULL) return NULL;
        PyTuple_SetItem(arguments, 0, tilehal_sizes(rank, shape));
        if (strides != NULL) {
            PyTuple_SetItem(arguments, 1, tilehal_sizes(rank, strides));
        } else if (past) {
            PyTuple_SetItem(arguments, 1, tilehal_packed(rank, shape));
        }
        if (past) PyTuple_SetItem(arguments, 2, tilehal_again(PyTuple_GetItem(output, 0)));
    }
    if (!PyErr_Occurred()) made = PyObject_CallObject(PyTuple_GetItem(output, past ? 1 : 3), arguments);
    Py_DecRef(arguments);
    return made;
}

// Whether an output that could not be made is left to the binder: nothing is queued yet, and torch's own error, of memory
// that is not there, is raised where the binder allocates. What ends a program is no such error.
static int tilehal_left_to_binder(void) {
    if (!PyErr_ExceptionMatches(PyExc_RuntimeError)) return 0;
    PyErr_Clear();
    return 1;
}

static inline void tilehal_release(PyObject **made) {
    for (int i = 0; i < TILEHAL_OUTPUTS; ++i) Py_DecRef(made[i]);
}
#endif
