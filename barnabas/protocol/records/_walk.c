/* summarize(): reads every field of every record of a batch. walk.py describes its purpose and has the fallback in
Python. Both refuse the same batches with the same error texts (tests/barnabas/protocol/records/test_walk.py).

Threads: any; a large batch is walked without the interpreter's lock.
*/
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdio.h>

#define LARGE (256 * 1024)

typedef struct {
    int64_t timestamp_min, timestamp_max, keyless;
    int is_contiguous;
    char error[96]; /* empty: none */
} Summary;

typedef struct {
    const uint8_t *at, *end;
} Cursor;

typedef struct {
    PyObject *malformed; /* MalformedMessageError */
} State;

#define REFUSE(...) (snprintf(summary->error, sizeof summary->error, __VA_ARGS__), -1)

static int bad_varint(Summary *summary)
{
    return REFUSE("a varint is cut short, or longer than its type");
}

/* A varint of at most `bytes_max` bytes, the last of them at most `last_max`. */
static int long_varint(Cursor *cursor, int bytes_max, uint8_t last_max, int64_t *value, Summary *summary)
{
    uint64_t raw = 0;
    int index;

    for (index = 0; index < bytes_max && cursor->at < cursor->end; index++) {
        uint8_t byte = *cursor->at++;
        if (index == bytes_max - 1 && byte > last_max)
            break;
        raw |= (uint64_t)(byte & 0x7F) << (7 * index);
        if (byte < 0x80) {
            *value = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            return 0;
        }
    }
    return bad_varint(summary);
}

static inline int varint(Cursor *cursor, int64_t *value, Summary *summary)
{
    const uint8_t *at = cursor->at;

    if (at < cursor->end && at[0] < 0x80) {
        *value = (int64_t)(at[0] >> 1) ^ -(int64_t)(at[0] & 1);
        cursor->at = at + 1;
        return 0;
    }
    return long_varint(cursor, 5, 0x0F, value, summary);
}

static inline int varlong(Cursor *cursor, int64_t *value, Summary *summary)
{
    return long_varint(cursor, 10, 0x01, value, summary);
}

/* The content of a field of this length; -1 means null. */
static inline int skip_field(Cursor *cursor, int64_t length, Summary *summary)
{
    if (length > cursor->end - cursor->at)
        return REFUSE("a field of %lld bytes does not fit its record", (long long)length);
    if (length >= 0)
        cursor->at += length;
    else if (length != -1)
        return REFUSE("a length of %lld in a record", (long long)length);
    return 0;
}

static int skip_headers(Cursor *cursor, int64_t count, Summary *summary)
{
    int64_t length;

    if (count < 0 || count > cursor->end - cursor->at)
        return REFUSE("a record cannot have %lld headers", (long long)count);
    while (count-- > 0) {
        if (varint(cursor, &length, summary))
            return -1;
        if (length < 0)
            return REFUSE("a record header without a key");
        if (skip_field(cursor, length, summary) || varint(cursor, &length, summary) ||
            skip_field(cursor, length, summary))
            return -1;
    }
    return 0;
}

static int walk_record(Cursor *cursor, int64_t index, Summary *summary)
{
    int64_t length, timestamp_delta, offset_delta, headers;
    Cursor record;

    if (varint(cursor, &length, summary))
        return -1;
    if (length < 1 || length > cursor->end - cursor->at)
        return REFUSE("a record of %lld bytes does not fit its batch", (long long)length);
    record.at = cursor->at + 1; /* after the attributes */
    record.end = cursor->at += length;
    if (varlong(&record, &timestamp_delta, summary) || varint(&record, &offset_delta, summary) ||
        varint(&record, &length, summary) || skip_field(&record, length, summary))
        return -1;
    if (length < 0)
        summary->keyless++;
    if (varint(&record, &length, summary) || skip_field(&record, length, summary) ||
        varint(&record, &headers, summary))
        return -1;
    if (headers && skip_headers(&record, headers, summary))
        return -1;
    if (record.at != record.end)
        return REFUSE("a record's fields end %lld bytes before the record", (long long)(record.end - record.at));
    if (index == 0 || timestamp_delta > summary->timestamp_max)
        summary->timestamp_max = timestamp_delta;
    if (index == 0 || timestamp_delta < summary->timestamp_min)
        summary->timestamp_min = timestamp_delta;
    if (offset_delta != index)
        summary->is_contiguous = 0;
    return 0;
}

static int walk(const uint8_t *data, Py_ssize_t size, int64_t count, Summary *summary)
{
    Cursor cursor = {data, data + size};
    int64_t index;

    for (index = 0; index < count; index++)
        if (walk_record(&cursor, index, summary))
            return -1;
    if (count < 0 || cursor.at != cursor.end)
        return REFUSE("%lld bytes follow the last of %lld records", (long long)(cursor.end - cursor.at),
                      (long long)count);
    return 0;
}

static PyObject *summarize(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    Summary summary = {0, 0, 0, 1, ""};
    Py_buffer payload;
    long long count;
    int failed;

    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "summarize(payload, count)");
        return NULL;
    }
    count = PyLong_AsLongLong(args[1]);
    if (count == -1 && PyErr_Occurred())
        return NULL;
    if (PyObject_GetBuffer(args[0], &payload, PyBUF_SIMPLE))
        return NULL;
    if (payload.len < LARGE) {
        failed = walk(payload.buf, payload.len, count, &summary);
    } else {
        Py_BEGIN_ALLOW_THREADS
        failed = walk(payload.buf, payload.len, count, &summary);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&payload);
    if (failed) {
        PyErr_SetString(((State *)PyModule_GetState(module))->malformed, summary.error);
        return NULL;
    }
    return Py_BuildValue("LLOL", (long long)summary.timestamp_min, (long long)summary.timestamp_max,
                         summary.is_contiguous ? Py_True : Py_False, (long long)summary.keyless);
}

static int module_exec(PyObject *module)
{
    PyObject *errors = PyImport_ImportModule("barnabas.protocol.errors");
    State *state = PyModule_GetState(module);

    if (errors == NULL)
        return -1;
    state->malformed = PyObject_GetAttrString(errors, "MalformedMessageError");
    Py_DECREF(errors);
    return state->malformed == NULL ? -1 : 0;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    Py_VISIT(((State *)PyModule_GetState(module))->malformed);
    return 0;
}

static int module_clear(PyObject *module)
{
    Py_CLEAR(((State *)PyModule_GetState(module))->malformed);
    return 0;
}

static PyMethodDef methods[] = {
    {"summarize", (PyCFunction)(void (*)(void))summarize, METH_FASTCALL,
     "summarize(payload, count): (least, greatest timestamp delta, whether the offset deltas are 0, 1, 2 ..., the number "
     "of missing keys). Raises MalformedMessageError."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, module_exec},
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_walk",
    .m_doc = "The records of a batch, all looked at.",
    .m_size = sizeof(State),
    .m_methods = methods,
    .m_slots = slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
};

PyMODINIT_FUNC PyInit__walk(void)
{
    return PyModuleDef_Init(&module);
}
