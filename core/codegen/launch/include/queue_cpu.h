// A call on the CPU: it returns when the kernel has ended.

static int tilehal_begin(tilehal_state *state, PyObject *payload) {
    state->entry = PyLong_AsVoidPtr(payload);
    return PyErr_Occurred() ? -1 : 0;
}

static void tilehal_end(tilehal_state *state) { (void)state; }

static int tilehal_queue_on(tilehal_state *state, int number, void *stream, const tilehal_values *values) {
    (void)number;
    (void)stream;
    void *thread = PyEval_SaveThread();
    const char *failed = tilehal_launch(state->entry, values);
    PyEval_RestoreThread(thread);
    if (failed == tilehal_error) return TILEHAL_WRONG_ARGUMENT;
    if (failed != NULL) PyErr_SetString(PyExc_RuntimeError, failed);
    return failed != NULL;
}

static int tilehal_queue(tilehal_state *state, int number, const tilehal_values *values) {
    return tilehal_queue_on(state, number, NULL, values);
}
