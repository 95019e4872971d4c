// A call on a CUDA device: on torch's current stream of it, or on the one given.

// An argument that no launch can use is found before the first launch: the binder says it better than we do.
static int tilehal_raise(int code) {
    if (code != 0 && code != TILEHAL_WRONG_ARGUMENT) PyErr_SetString(PyExc_RuntimeError, tilehal_error);
    return code;
}

static int tilehal_begin(tilehal_state *state, PyObject *payload) {
    char *bytes = NULL;
    Py_ssize_t size = 0;
    if (PyBytes_AsStringAndSize(payload, &bytes, &size) != 0) return -1;
    state->image = bytes;
    return 0;
}

// Unloading waits for launches that are still queued.
static void tilehal_end(tilehal_state *state) {
    void *thread = PyEval_SaveThread();
    for (int i = 0; i < TILEHAL_DEVICES; ++i) tilehal_unload(&state->devices[i]);
    PyEval_RestoreThread(thread);
}

static int tilehal_queue_on(tilehal_state *state, int number, void *stream, const tilehal_values *values) {
    if (number < 0 || number >= TILEHAL_DEVICES) {
        PyErr_SetString(PyExc_RuntimeError, "a device index beyond what the launcher keeps");
        return -1;
    }
    tilehal_device *device = &state->devices[number];
    if (!device->ready) {
        int code = tilehal_open_driver(TILEHAL_DRIVER);
        if (code == 0) {
            code = tilehal_load(device, number, state->image, TILEHAL_CAPABILITY, TILEHAL_EXACT, tilehal_entries);
        }
        if (code != 0) return tilehal_raise(code);
    }
    int pushed;
    // A full queue makes the driver wait, perhaps for a host function that needs Python: nobody is held up meanwhile.
    void *thread = PyEval_SaveThread();
    int code = tilehal_enter(device, stream, &pushed);
    if (code == 0) {
        code = tilehal_launch(device, stream, values);
        tilehal_leave(pushed);
    }
    PyEval_RestoreThread(thread);
    return tilehal_raise(code);
}

static int tilehal_queue(tilehal_state *state, int number, const tilehal_values *values) {
    void *stream = NULL;
    if (number >= 0 && state->exchange->stream(2, number, &stream) != 0) return -1;
    return tilehal_queue_on(state, number, stream, values);
}
