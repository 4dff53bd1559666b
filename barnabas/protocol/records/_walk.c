/* summarize(): reads every field of every record of a batch. walk.py describes its purpose and has the fallback in
Python. Both refuse the same batches with the same error texts (tests/barnabas/protocol/records/test_walk.py).

read_plain(): reads and checks the header, the CRC and the records of a batch, if nothing about it is unusual. The
fallbacks of this and of peek_one() are in plain.py, which describes both; that of set_offset_and_epoch() is in batch.py.

Threads: any; a large batch is walked without the interpreter's lock.
*/
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define LARGE (256 * 1024)

/* Where fields of a batch lie; batch.py has the whole table. */
enum { BATCH_LENGTH_AT = 8, LEADER_EPOCH_AT = 12, MAGIC_AT = 16, CRC_AT = 17, ATTRIBUTES_AT = 21, COUNT_AT = 57 };
enum { HEADER_SIZE = 61, LOG_OVERHEAD = 12, MAGIC_V2 = 2, COMPRESSION_MASK = 7 };

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
    PyObject *crc32c;    /* of the package */
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

static int walk_payload(const uint8_t *data, Py_ssize_t size, int64_t count, Summary *summary)
{
    int failed;

    if (size < LARGE)
        return walk(data, size, count, summary);
    Py_BEGIN_ALLOW_THREADS
    failed = walk(data, size, count, summary);
    Py_END_ALLOW_THREADS
    return failed;
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
    failed = walk_payload(payload.buf, payload.len, count, &summary);
    PyBuffer_Release(&payload);
    if (failed) {
        PyErr_SetString(((State *)PyModule_GetState(module))->malformed, summary.error);
        return NULL;
    }
    return Py_BuildValue("LLOL", (long long)summary.timestamp_min, (long long)summary.timestamp_max,
                         summary.is_contiguous ? Py_True : Py_False, (long long)summary.keyless);
}

/* Whole batches. */

static int64_t signed_number(const uint8_t *at, int size)
{
    uint64_t value = at[0] < 0x80 ? 0 : UINT64_MAX;

    for (int index = 0; index < size; index++)
        value = value << 8 | at[index];
    return (int64_t)value;
}

static void set_number(uint8_t *at, int size, uint64_t value)
{
    for (int index = size - 1; index >= 0; index--, value >>= 8)
        at[index] = (uint8_t)value;
}

static int is_one_whole_batch(const Py_buffer *batch)
{
    const uint8_t *data = batch->buf;

    return batch->len >= HEADER_SIZE && data[MAGIC_AT] == MAGIC_V2 &&
           signed_number(data + BATCH_LENGTH_AT, 4) + LOG_OVERHEAD == batch->len;
}

/* Small batches are checked here if the processor can: a call of the package takes longer than such a CRC. */
#define CRC_HERE_MAX 1024
#if defined(__x86_64__) && defined(__GNUC__)
#define HAS_CRC_INSTRUCTION __builtin_cpu_supports("sse4.2")

__attribute__((target("sse4.2"))) static uint32_t crc_by_instruction(const uint8_t *at, Py_ssize_t size)
{
    uint64_t crc = UINT32_MAX, word;

    for (; size >= (Py_ssize_t)sizeof word; size -= sizeof word, at += sizeof word) {
        memcpy(&word, at, sizeof word);
        crc = __builtin_ia32_crc32di(crc, word);
    }
    for (; size > 0; size--)
        crc = __builtin_ia32_crc32qi((uint32_t)crc, *at++);
    return ~(uint32_t)crc;
}
#else
#define HAS_CRC_INSTRUCTION 0
#define crc_by_instruction(at, size) 0
#endif

/* The CRC-32C of these bytes; -1 with an exception. */
static int64_t crc_of(const State *state, uint8_t *data, Py_ssize_t size)
{
    PyObject *view, *crc;
    int64_t computed;

    if (size <= CRC_HERE_MAX && HAS_CRC_INSTRUCTION)
        return crc_by_instruction(data, size);
    view = PyMemoryView_FromMemory((char *)data, size, PyBUF_READ);
    crc = view == NULL ? NULL : PyObject_CallOneArg(state->crc32c, view);
    computed = crc == NULL ? -1 : PyLong_AsLongLong(crc);
    Py_XDECREF(view);
    Py_XDECREF(crc);
    return computed;
}

/* Put an item that may be NULL into a tuple; -1 if it is. */
static int put(PyObject *tuple, Py_ssize_t index, PyObject *item)
{
    PyTuple_SET_ITEM(tuple, index, item);
    return item == NULL ? -1 : 0;
}

/* The fields of the header, then the summary. */
static PyObject *found_in(const uint8_t *data, const Summary *summary)
{
    static const uint8_t SIZES[] = {8, 4, 4, 1, 4, 2, 4, 8, 8, 8, 2, 4, 4};
    enum { FIELDS = sizeof SIZES, CRC_FIELD = 4 };
    PyObject *found = PyTuple_New(FIELDS + 4);
    int failed = 0;

    if (found == NULL)
        return NULL;
    for (int index = 0; index < FIELDS; index++) {
        int64_t value = signed_number(data, SIZES[index]);
        failed |= put(found, index, PyLong_FromLongLong(index == CRC_FIELD ? (int64_t)(uint32_t)value : value));
        data += SIZES[index];
    }
    failed |= put(found, FIELDS, PyLong_FromLongLong(summary->timestamp_min));
    failed |= put(found, FIELDS + 1, PyLong_FromLongLong(summary->timestamp_max));
    failed |= put(found, FIELDS + 2, PyBool_FromLong(summary->is_contiguous));
    failed |= put(found, FIELDS + 3, PyLong_FromLongLong(summary->keyless));
    if (failed)
        Py_CLEAR(found);
    return found;
}

/* The CRC is wrong or a record damaged: 0; neither: 1; -1 with an exception. */
static int is_undamaged(const State *state, const Py_buffer *batch, Summary *summary)
{
    uint8_t *data = batch->buf;
    int64_t crc = crc_of(state, data + ATTRIBUTES_AT, batch->len - ATTRIBUTES_AT);

    if (crc < 0)
        return -1;
    return (uint32_t)crc == (uint32_t)signed_number(data + CRC_AT, 4) &&
           walk_payload(data + HEADER_SIZE, batch->len - HEADER_SIZE, signed_number(data + COUNT_AT, 4), summary) == 0;
}

static PyObject *read_plain(PyObject *module, PyObject *records)
{
    Summary summary = {0, 0, 0, 1, ""};
    PyObject *found = NULL;
    Py_buffer batch;
    const uint8_t *data;
    int is_plain;

    if (PyObject_GetBuffer(records, &batch, PyBUF_SIMPLE))
        return NULL;
    data = batch.buf;
    is_plain = is_one_whole_batch(&batch) && !(data[ATTRIBUTES_AT + 1] & COMPRESSION_MASK);
    if (is_plain)
        is_plain = is_undamaged(PyModule_GetState(module), &batch, &summary);
    if (is_plain >= 0)
        found = is_plain ? found_in(data, &summary) : Py_NewRef(Py_None);
    PyBuffer_Release(&batch);
    return found;
}

static PyObject *set_offset_and_epoch(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer batch;
    long long offset;
    long epoch;

    if (nargs != 3) {
        PyErr_SetString(PyExc_TypeError, "set_offset_and_epoch(batch, base_offset, leader_epoch)");
        return NULL;
    }
    offset = PyLong_AsLongLong(args[1]);
    epoch = PyLong_AsLong(args[2]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &batch, PyBUF_WRITABLE))
        return NULL;
    if (batch.len < HEADER_SIZE || epoch != (int32_t)epoch)
        PyErr_SetString(PyExc_ValueError, "no whole batch, or no 32-bit leader epoch");
    else {
        set_number(batch.buf, 8, (uint64_t)offset);
        set_number((uint8_t *)batch.buf + LEADER_EPOCH_AT, 4, (uint64_t)epoch);
    }
    PyBuffer_Release(&batch);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyObject *peek_one(PyObject *Py_UNUSED(module), PyObject *records)
{
    Py_buffer batch;
    int attributes = -1;

    if (PyObject_GetBuffer(records, &batch, PyBUF_SIMPLE))
        return NULL;
    if (is_one_whole_batch(&batch))
        attributes = ((const uint8_t *)batch.buf)[ATTRIBUTES_AT + 1];
    PyBuffer_Release(&batch);
    return PyLong_FromLong(attributes);
}

static PyObject *imported(const char *module, const char *name)
{
    PyObject *found = PyImport_ImportModule(module), *value = NULL;

    if (found != NULL)
        value = PyObject_GetAttrString(found, name);
    Py_XDECREF(found);
    return value;
}

static int module_exec(PyObject *module)
{
    State *state = PyModule_GetState(module);

    state->malformed = imported("barnabas.protocol.errors", "MalformedMessageError");
    state->crc32c = imported("barnabas.protocol.records.crc", "crc32c");
    return state->malformed == NULL || state->crc32c == NULL ? -1 : 0;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);

    Py_VISIT(state->malformed);
    Py_VISIT(state->crc32c);
    return 0;
}

static int module_clear(PyObject *module)
{
    State *state = PyModule_GetState(module);

    Py_CLEAR(state->malformed);
    Py_CLEAR(state->crc32c);
    return 0;
}

static PyMethodDef methods[] = {
    {"summarize", (PyCFunction)(void (*)(void))summarize, METH_FASTCALL,
     "summarize(payload, count): (least, greatest timestamp delta, whether the offset deltas are 0, 1, 2 ..., the number "
     "of missing keys). Raises MalformedMessageError."},
    {"read_plain", read_plain, METH_O, "read_plain(records): the fields of the header and the summary, or None."},
    {"peek_one", peek_one, METH_O, "peek_one(records): the attributes of the one whole batch, or -1."},
    {"set_offset_and_epoch", (PyCFunction)(void (*)(void))set_offset_and_epoch, METH_FASTCALL,
     "set_offset_and_epoch(batch, base_offset, leader_epoch): writes both into a whole batch."},
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
