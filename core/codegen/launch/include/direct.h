// What a call of a kernel object is: arguments by position or by name, with no Python around the check. Whatever it cannot
// use, and whatever fails, it hands to two Python functions.
//
// Python finds a call in the object's type, so each kernel object gets a type of its own, made here: one that the
// interpreter enters without looking `__call__` up.

#define TILEHAL_DIRECT "tilehal.direct"

typedef struct tilehal_direct {
    tilehal_state *state;
    PyObject *capsule;         // that holds the state
    PyObject *names;           // of the parameters in order, interned
    PyObject *missed, *failed; // (args, kwargs) -> the result; (error) -> the error to raise
    const void *type;          // of the one kernel object
    struct tilehal_direct *next;
} tilehal_direct;

// Every kernel of this library: nearly always one.
static tilehal_direct *tilehal_directs;

// The arguments in the order of a call, from some by position and the rest by name. Python interns the names of a call
// as it does those of the parameters: other objects, or a mixture that only the binder can judge, are given back.
static PyObject *tilehal_by_name(tilehal_direct *direct, PyObject **given, Py_ssize_t count, PyObject *kwargs) {
    const Py_ssize_t parameters = PyTuple_Size(direct->names);
    PyObject *name, *value;
    Py_ssize_t named = 0, next = 0;
    if (count > parameters) goto miss;
    for (; PyDict_Next(kwargs, &next, &name, &value); ++named) {
        Py_ssize_t at = count;  // by position and by name is a mistake, so nothing before it is looked at
        while (at < parameters && PyTuple_GetItem(direct->names, at) != name) ++at;
        if (at == parameters) goto miss;
        given[at] = value;
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

// Puts what the failure means in the place of the failure.
static PyObject *tilehal_failed(tilehal_direct *direct) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL) PyException_SetTraceback(value, traceback);
    PyObject *result = PyObject_CallFunctionObjArgs(direct->failed, value, NULL);
    Py_DecRef(type);
    Py_DecRef(value);
    Py_DecRef(traceback);
    return result;
}

static PyObject *tilehal_call_kernel(PyObject *self, PyObject *args, PyObject *kwargs) {
    tilehal_direct *direct = tilehal_directs;
    while (direct != NULL && direct->type != self->type) direct = direct->next;
    if (direct == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "a kernel's call without the kernel");
        return NULL;
    }
    PyObject *given[TILEHAL_ARGUMENTS] = {NULL}, *result;
    const Py_ssize_t count = PyTuple_Size(args);
    if (count > TILEHAL_ARGUMENTS) {
        result = tilehal_again(direct->state->miss);
    } else {
        for (Py_ssize_t i = 0; i < count; ++i) given[i] = PyTuple_GetItem(args, i);
        result = kwargs == NULL ? tilehal_call(direct->state, given, count) : tilehal_by_name(direct, given, count, kwargs);
    }
    if (result == NULL) return tilehal_failed(direct);
    if (result != direct->state->miss) return result;
    Py_DecRef(result);
    if (kwargs != NULL) return PyObject_CallFunctionObjArgs(direct->missed, args, kwargs, NULL);
    PyObject *named = PyDict_New();
    if (named != NULL) result = PyObject_CallFunctionObjArgs(direct->missed, args, named, NULL);
    Py_DecRef(named);
    return named != NULL ? result : NULL;
}

static void tilehal_free_direct(PyObject *capsule) {
    tilehal_direct *direct = (tilehal_direct *)PyCapsule_GetPointer(capsule, TILEHAL_DIRECT);
    tilehal_direct **link = &tilehal_directs;
    while (*link != NULL && *link != direct) link = &(*link)->next;
    if (*link != NULL) *link = direct->next;
    Py_DecRef(direct->capsule);
    Py_DecRef(direct->names);
    Py_DecRef(direct->missed);
    Py_DecRef(direct->failed);
    PyMem_Free(direct);
}

// (class, its full name, names, missed, failed) -> (a subclass whose one object is called directly, what it holds).
static PyObject *tilehal_make_direct(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    static tilehal_slot slots[] = {{TILEHAL_SLOT_CALL, (void *)tilehal_call_kernel}, {0, NULL}};
    char *name = NULL;
    Py_ssize_t size = 0;
    if (count != 5 || PyTuple_Size(args[2]) > TILEHAL_ARGUMENTS) {
        PyErr_SetString(PyExc_RuntimeError, "a call made of other things than a class, names and two functions");
        return NULL;
    }
    if (PyBytes_AsStringAndSize(args[1], &name, &size) != 0) return NULL;
    tilehal_direct *direct = (tilehal_direct *)PyMem_Calloc(1, sizeof(tilehal_direct));
    if (direct == NULL) return NULL;
    PyObject *capsule = PyCapsule_New(direct, TILEHAL_DIRECT, tilehal_free_direct);
    if (capsule == NULL) {
        PyMem_Free(direct);
        return NULL;
    }
    direct->state = (tilehal_state *)PyCapsule_GetPointer(self, TILEHAL_CAPSULE);
    direct->capsule = tilehal_again(self);
    direct->names = tilehal_again(args[2]);
    direct->missed = tilehal_again(args[3]);
    direct->failed = tilehal_again(args[4]);
    direct->next = tilehal_directs;
    tilehal_directs = direct;
    PyObject *bases = PyTuple_New(1), *type = NULL, *made = NULL;
    tilehal_spec spec = {name, 0, 0, TILEHAL_BASE_TYPE, slots};
    if (bases == NULL) goto failed;
    PyTuple_SetItem(bases, 0, tilehal_again(args[0]));
    type = PyType_FromSpecWithBases(&spec, bases);
    direct->type = type;
    made = type != NULL ? PyTuple_New(2) : NULL;
    if (made != NULL) {
        PyTuple_SetItem(made, 0, tilehal_again(type));
        PyTuple_SetItem(made, 1, tilehal_again(capsule));
    }
failed:
    Py_DecRef(bases);
    Py_DecRef(type);
    Py_DecRef(capsule);
    return made;
}
