// What a kernel object's own call is: arguments by position or by name, with no Python around the check. Whatever it cannot
// use, and whatever fails, it hands to two Python functions.

#define TILEHAL_DIRECT "tilehal.direct"

typedef struct {
    tilehal_state *state;
    PyObject *capsule;         // that holds the state
    PyObject *names;           // of the parameters in order, interned
    PyObject *missed, *failed; // (args, kwargs) -> the result; (error) -> the error to raise
} tilehal_direct;

// The arguments in the order of a call, from some by position and the rest by name. Python interns the names of a call
// as it does those of the parameters: other objects, or a mixture that only the binder can judge, are given back.
static PyObject *tilehal_by_name(tilehal_direct *direct, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    PyObject *given[TILEHAL_ARGUMENTS] = {NULL};
    const Py_ssize_t named = PyTuple_Size(names), parameters = PyTuple_Size(direct->names);
    if (count + named > parameters) goto miss;
    for (Py_ssize_t i = 0; i < count; ++i) given[i] = args[i];
    for (Py_ssize_t i = 0; i < named; ++i) {
        PyObject *name = PyTuple_GetItem(names, i);
        Py_ssize_t at = count;  // by position and by name is a mistake, so nothing before it is looked at
        while (at < parameters && PyTuple_GetItem(direct->names, at) != name) ++at;
        if (at == parameters || given[at] != NULL) goto miss;
        given[at] = args[count + i];
    }
    if (count + named < parameters) {  // without the outputs: all inputs, and no output
        Py_ssize_t filled = 0;
        for (Py_ssize_t i = 0; i < parameters; ++i) {
            if ((given[i] == NULL) != tilehal_is_output[i]) goto miss;
            if (given[i] != NULL) given[filled++] = given[i];
        }
        return tilehal_call(direct->state, given, filled);
    }
    return tilehal_call(direct->state, given, parameters);
miss:
    return tilehal_again(direct->state->miss);
}

static PyObject *tilehal_missed(tilehal_direct *direct, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    PyObject *result = NULL, *positional = PyTuple_New(count), *named = PyDict_New();
    int failed = positional == NULL || named == NULL;
    for (Py_ssize_t i = 0; !failed && i < count; ++i) PyTuple_SetItem(positional, i, tilehal_again(args[i]));
    for (Py_ssize_t i = 0; !failed && names != NULL && i < PyTuple_Size(names); ++i) {
        failed = PyDict_SetItem(named, PyTuple_GetItem(names, i), args[count + i]) != 0;
    }
    if (!failed) result = PyObject_CallFunctionObjArgs(direct->missed, positional, named, NULL);
    Py_DecRef(positional);
    Py_DecRef(named);
    return result;
}

// Puts what the failure means in the place of the failure.
static PyObject *tilehal_failed(tilehal_direct *direct) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyObject *result = PyObject_CallFunctionObjArgs(direct->failed, value, NULL);
    Py_DecRef(type);
    Py_DecRef(value);
    Py_DecRef(traceback);
    return result;
}

static PyObject *tilehal_call_direct(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    tilehal_direct *direct = (tilehal_direct *)PyCapsule_GetPointer(self, TILEHAL_DIRECT);
    PyObject *result = names == NULL ? tilehal_call(direct->state, args, count)
                                     : tilehal_by_name(direct, args, count, names);
    if (result == NULL) return tilehal_failed(direct);
    if (result != direct->state->miss) return result;
    Py_DecRef(result);
    return tilehal_missed(direct, args, count, names);
}

static void tilehal_free_direct(PyObject *capsule) {
    tilehal_direct *direct = (tilehal_direct *)PyCapsule_GetPointer(capsule, TILEHAL_DIRECT);
    Py_DecRef(direct->capsule);
    Py_DecRef(direct->names);
    Py_DecRef(direct->missed);
    Py_DecRef(direct->failed);
    PyMem_Free(direct);
}

// (names, missed, failed) -> a callable.
static PyObject *tilehal_make_direct(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    static PyMethodDef call = {
        "launch", (tilehal_method)(void (*)(void))tilehal_call_direct, TILEHAL_FASTCALL | TILEHAL_KEYWORDS,
        "launch(*args, stream=None, **kwargs)\n--\n\nRuns the kernel; see core.Kernel.__call__."};
    if (count != 3 || PyTuple_Size(args[0]) > TILEHAL_ARGUMENTS) {
        PyErr_SetString(PyExc_RuntimeError, "a call made of other things than names and two functions");
        return NULL;
    }
    tilehal_direct *direct = (tilehal_direct *)PyMem_Calloc(1, sizeof(tilehal_direct));
    if (direct == NULL) return NULL;
    direct->state = (tilehal_state *)PyCapsule_GetPointer(self, TILEHAL_CAPSULE);
    direct->capsule = tilehal_again(self);
    direct->names = tilehal_again(args[0]);
    direct->missed = tilehal_again(args[1]);
    direct->failed = tilehal_again(args[2]);
    PyObject *capsule = PyCapsule_New(direct, TILEHAL_DIRECT, tilehal_free_direct);
    PyObject *made = capsule != NULL ? PyCFunction_NewEx(&call, capsule, NULL) : NULL;
    Py_DecRef(capsule);
    return made;
}
