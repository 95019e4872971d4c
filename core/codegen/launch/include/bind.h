// From a tuple of what Python knows to the two functions it calls; included after the generated ones.

static PyObject *tilehal_call_alone(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    return tilehal_call((tilehal_state *)PyCapsule_GetPointer(self, TILEHAL_CAPSULE), args, count);
}

// (device, stream, pointers and numbers..., symbolic dimensions...): what the binder has checked already.
static PyObject *tilehal_raw(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    tilehal_state *state = (tilehal_state *)PyCapsule_GetPointer(self, TILEHAL_CAPSULE);
    tilehal_values values;
    int overflow = 0;
    if (count != TILEHAL_COUNT + 2) {
        PyErr_SetString(PyExc_RuntimeError, "a launch with another number of arguments than the kernel has");
        return NULL;
    }
    const int device = (int)PyLong_AsLongLongAndOverflow(args[0], &overflow);
    void *stream = PyLong_AsVoidPtr(args[1]);
    tilehal_take(args, &values);
    if (PyErr_Occurred()) return NULL;
    const int code = tilehal_queue_on(state, device, stream, &values);
    if (code == 0) return tilehal_none(state);
    if (code == TILEHAL_WRONG_ARGUMENT) PyErr_SetString(PyExc_RuntimeError, tilehal_error);
    return NULL;
}

static void tilehal_free(PyObject *capsule) {
    tilehal_state *state = (tilehal_state *)PyCapsule_GetPointer(capsule, TILEHAL_CAPSULE);
    tilehal_end(state);
    for (int i = 0; i < TILEHAL_DEVICES; ++i) Py_DecRef(state->made[i]);
    Py_DecRef(state->miss);
    Py_DecRef(state->allocators);
    Py_DecRef(state->keep);
    PyMem_Free(state);
}

// config: (torch.Tensor, torch.nn.Parameter, exchange capsule, miss, allocators, prototypes, keep, payload). Prototypes
// are one tensor per tensor parameter (None for a scalar) and say how its dtype reads; keep is (None, payload, exchange
// capsule, torch.Tensor.is_neg, True, what counts torch's active modes).
// Returns (call, raw, and what makes a kernel object's type). An exported library may be older than who loads it: the
// number in the name counts what is agreed here.
__attribute__((visibility("default"))) PyObject *tilehal_bind_2(PyObject *config) {
    static PyMethodDef call = {"launch", tilehal_call_alone, TILEHAL_FASTCALL, NULL};
    static PyMethodDef direct = {"make_direct", tilehal_make_direct, TILEHAL_FASTCALL, NULL};
    static PyMethodDef raw = {"launch_raw", tilehal_raw, TILEHAL_FASTCALL, NULL};
    tilehal_state *state = (tilehal_state *)PyMem_Calloc(1, sizeof(tilehal_state));
    if (state == NULL) return NULL;
    state->tensor = PyTuple_GetItem(config, 0);
    state->parameter = PyTuple_GetItem(config, 1);
    state->exchange = (const tilehal_exchange *)PyCapsule_GetPointer(PyTuple_GetItem(config, 2), "dlpack_exchange_api");
    state->miss = tilehal_again(PyTuple_GetItem(config, 3));
    state->allocators = tilehal_again(PyTuple_GetItem(config, 4));
    PyObject *prototypes = PyTuple_GetItem(config, 5);
    state->keep = tilehal_again(PyTuple_GetItem(config, 6));
    state->is_negated = PyTuple_GetItem(state->keep, 3);
    state->yes = PyTuple_GetItem(state->keep, 4);
    state->modes = PyTuple_GetItem(state->keep, 5);
    PyObject *capsule = PyCapsule_New(state, TILEHAL_CAPSULE, tilehal_free);
    if (capsule == NULL || state->exchange == NULL || state->modes == NULL) goto failed;
    if (state->exchange->version.major != 1 || state->exchange->view == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "torch's exchange table has no view of a tensor, or another version");
        goto failed;
    }
    for (Py_ssize_t i = 0; i < PyTuple_Size(prototypes); ++i) {
        tilehal_tensor tensor;
        PyObject *prototype = PyTuple_GetItem(prototypes, i);
        if (prototype->type != state->tensor) continue;
        if (state->exchange->view(prototype, &tensor) != 0) goto failed;
        state->types[i] = tensor.type;
    }
    if (tilehal_begin(state, PyTuple_GetItem(config, 7)) != 0) goto failed;
    PyObject *functions = PyTuple_New(3);
    if (functions != NULL) {
        PyTuple_SetItem(functions, 0, PyCFunction_NewEx(&call, capsule, NULL));
        PyTuple_SetItem(functions, 1, PyCFunction_NewEx(&raw, capsule, NULL));
        PyTuple_SetItem(functions, 2, PyCFunction_NewEx(&direct, capsule, NULL));
    }
    Py_DecRef(capsule);
    return functions;
failed:
    Py_DecRef(capsule);
    return NULL;
}
