/* Table-driven codecs of messages. plans.py builds the plans; codec.py generates a Python fallback for each.

A plan handles ordinary messages only. Anything else (damage, a value of another type, an unknown tag) goes to the
Python fallback, which starts again from the first byte and either succeeds or raises the error. Both codecs therefore
report the same errors. tests/barnabas/protocol/test_codec_fallback.py compares them.

A message's fields are slots. The codec reads and writes them at their offsets, without an attribute lookup. A class
can also get its constructor from here (`Plan.construct`).

Bounds: every read is checked against the end of the buffer first. A count is compared with the remaining bytes, and
with the elements that the message may still have, before a list of that size is allocated.
Turns: a large message is decoded in turns; other threads may run between them.
Threads: plans never change once built. One thread decodes a message; a message that is encoded no longer changes.
*/
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>

#define STRING_BYTES_MAX 0x7FFF
#define WRITER_BYTES 1024
#define TURN_ELEMENTS 2048

/* As KINDS in plans.py. */
enum kind { BOOL, INT8, INT16, UINT16, INT32, INT64, FLOAT64, UUID, STRING, BYTES, RECORDS, ARRAY, STRUCT, KIND_COUNT };

/* As Flag in plans.py. */
enum { PRESENT = 1, NULLABLE = 2, TAGGED = 4, IGNORABLE = 8, FRESH = 16 };

static const uint8_t SIZES[KIND_COUNT] = {[BOOL] = 1, [INT8] = 1, [INT16] = 2, [UINT16] = 2, [INT32] = 4,
                                          [INT64] = 8, [FLOAT64] = 8, [UUID] = 16};

typedef struct Plan Plan;

typedef struct {
    PyObject *name;
    PyObject *value; /* the default; unless it is a fresh one each time */
    Plan *element;   /* of a structure, or of an array of structures */
    Py_ssize_t slot; /* where in the object */
    uint32_t tag;
    uint8_t kind;
    uint8_t element_kind; /* of an array */
    uint8_t flags;
} Row;

struct Plan {
    PyObject_HEAD
    PyTypeObject *cls;
    PyObject *fallback_decode; /* the fallback; NULL for a structure inside a message */
    PyObject *fallback_encode;
    Row *rows;
    Py_ssize_t size;
    Py_ssize_t unknown_slot;
    Py_ssize_t elements_max; /* of all arrays of a message together */
    int is_flexible;
    int tagged_count;
};

typedef struct {
    PyTypeObject *plan_type;
    PyObject *records_size;
} State;

#define SLOT(object, offset) (*(PyObject **)((char *)(object) + (offset)))

/* Big-endian numbers. */

static uint64_t get_number(const uint8_t *at, int size)
{
    uint64_t value = 0;

    for (int index = 0; index < size; index++)
        value = value << 8 | at[index];
    return value;
}

static void set_number(uint8_t *at, int size, uint64_t value)
{
    for (int index = size - 1; index >= 0; index--, value >>= 8)
        at[index] = (uint8_t)value;
}

/* Reading. A function that fails returns NULL or -1, with or without an exception: the fallback finds the error. */

typedef struct {
    const uint8_t *start;
    const uint8_t *at;
    const uint8_t *end;
    PyObject *buffer;
    PyObject *view; /* of the buffer, once one is needed */
    int is_flexible;
    int64_t elements_left; /* that the message may still have */
    int turn_left;         /* elements until other threads may run */
} Reader;

static PyObject *read_struct(Reader *reader, const Plan *plan);

static int read_uvarint(Reader *reader, uint32_t *value)
{
    uint64_t sum = 0;

    for (int shift = 0; shift < 35; shift += 7) {
        uint8_t byte;

        if (reader->at == reader->end)
            return -1;
        byte = *reader->at++;
        sum |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = (uint32_t)sum;
            return sum > UINT32_MAX ? -1 : 0;
        }
    }
    return -1;
}

/* A length or count; below 0 means null. */
static int read_length(Reader *reader, int kind, int64_t *length)
{
    if (reader->is_flexible) {
        uint32_t value;

        if (read_uvarint(reader, &value) || (kind == STRING && value > STRING_BYTES_MAX + 1))
            return -1;
        *length = (int64_t)value - 1;
        return 0;
    }
    if (reader->end - reader->at < (kind == STRING ? 2 : 4))
        return -1;
    *length = kind == STRING ? (int16_t)get_number(reader->at, 2) : (int32_t)get_number(reader->at, 4);
    reader->at += kind == STRING ? 2 : 4;
    return 0;
}

static PyObject *read_fixed(Reader *reader, int kind)
{
    const uint8_t *at = reader->at;

    if (reader->end - at < SIZES[kind])
        return NULL;
    reader->at += SIZES[kind];
    switch (kind) {
    case BOOL:
        return PyBool_FromLong(*at);
    case INT8:
        return PyLong_FromLong((int8_t)*at);
    case INT16:
        return PyLong_FromLong((int16_t)get_number(at, 2));
    case UINT16:
        return PyLong_FromLong((uint16_t)get_number(at, 2));
    case INT32:
        return PyLong_FromLong((int32_t)get_number(at, 4));
    case INT64:
        return PyLong_FromLongLong((int64_t)get_number(at, 8));
    case FLOAT64: {
        uint64_t bits = get_number(at, 8);
        double value;

        memcpy(&value, &bits, sizeof(value));
        return PyFloat_FromDouble(value);
    }
    default:
        return PyBytes_FromStringAndSize((const char *)at, 16);
    }
}

/* A view of the next `length` bytes, uncopied. */
static PyObject *read_records(Reader *reader, int64_t length)
{
    Py_ssize_t first = reader->at - reader->start;
    PyObject *low, *high, *slice, *found = NULL;

    if (reader->view == NULL) {
        reader->view = PyMemoryView_Check(reader->buffer) ? Py_NewRef(reader->buffer)
                                                          : PyMemoryView_FromObject(reader->buffer);
        if (reader->view == NULL)
            return NULL;
    }
    low = PyLong_FromSsize_t(first);
    high = PyLong_FromSsize_t(first + (Py_ssize_t)length);
    slice = low == NULL || high == NULL ? NULL : PySlice_New(low, high, NULL);
    if (slice != NULL)
        found = PyObject_GetItem(reader->view, slice);
    Py_XDECREF(low);
    Py_XDECREF(high);
    Py_XDECREF(slice);
    reader->at += length;
    return found;
}

/* As `primitives.read_text`. */
static PyObject *read_text(const char *at, Py_ssize_t length)
{
    PyObject *text = PyUnicode_DecodeUTF8(at, length, "strict");
    Py_ssize_t size;

    if (text != NULL || !PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
        return text;
    PyErr_Clear();
    text = PyUnicode_DecodeUTF8(at, length, "replace");
    if (text == NULL)
        return NULL;
    if (PyUnicode_AsUTF8AndSize(text, &size) != NULL && size <= INT16_MAX)
        return text;
    Py_DECREF(text);
    return PyErr_Occurred() ? NULL : PyUnicode_DecodeUTF8(at, length, "strict"); /* raises */
}

/* A value with a length, not null. */
static PyObject *read_slice(Reader *reader, int kind, int64_t length)
{
    const char *at = (const char *)reader->at;

    if (length < 0 || length > reader->end - reader->at)
        return NULL;
    if (kind == RECORDS)
        return read_records(reader, length);
    reader->at += length;
    if (kind == STRING)
        return read_text(at, (Py_ssize_t)length);
    return PyBytes_FromStringAndSize(at, (Py_ssize_t)length);
}

/* Safe: no other thread can reach the unfinished message, and the buffer is held. */
static void let_others_run(Reader *reader)
{
    reader->turn_left = TURN_ELEMENTS;
    Py_BEGIN_ALLOW_THREADS
    Py_END_ALLOW_THREADS
}

static PyObject *read_array(Reader *reader, const Row *row, int64_t count)
{
    PyObject *items;
    int kind = row->element_kind;

    if (count > reader->end - reader->at || count > reader->elements_left)
        return NULL;
    reader->elements_left -= count;
    items = PyList_New((Py_ssize_t)count);
    for (Py_ssize_t index = 0; items != NULL && index < (Py_ssize_t)count; index++) {
        PyObject *item = NULL;
        int64_t length;

        if (--reader->turn_left < 0)
            let_others_run(reader);
        if (kind == STRUCT)
            item = read_struct(reader, row->element);
        else if (kind < STRING)
            item = read_fixed(reader, kind);
        else if (read_length(reader, kind, &length) == 0)
            item = read_slice(reader, kind, length);
        if (item == NULL)
            Py_CLEAR(items);
        else
            PyList_SET_ITEM(items, index, item);
    }
    return items;
}

static PyObject *read_field(Reader *reader, const Row *row)
{
    int64_t length;

    if (row->kind < STRING)
        return read_fixed(reader, row->kind);
    if (row->kind == STRUCT) {
        if (row->flags & NULLABLE) {
            if (reader->at == reader->end)
                return NULL;
            if ((int8_t)*reader->at++ < 0)
                return Py_NewRef(Py_None);
        }
        return read_struct(reader, row->element);
    }
    if (read_length(reader, row->kind, &length))
        return NULL;
    if (length < 0)
        return row->flags & NULLABLE ? Py_NewRef(Py_None) : NULL;
    return row->kind == ARRAY ? read_array(reader, row, length) : read_slice(reader, row->kind, length);
}

static PyObject *default_of(const Row *row)
{
    PyObject *object;
    const Plan *plan = row->element;

    if (!(row->flags & FRESH))
        return Py_NewRef(row->value);
    if (row->kind == ARRAY)
        return PyList_New(0);
    object = plan->cls->tp_alloc(plan->cls, 0);
    if (object == NULL)
        return NULL;
    for (Py_ssize_t index = 0; index < plan->size; index++) {
        PyObject *value = default_of(&plan->rows[index]);

        if (value == NULL) {
            Py_DECREF(object);
            return NULL;
        }
        SLOT(object, plan->rows[index].slot) = value;
    }
    SLOT(object, plan->unknown_slot) = PyTuple_New(0);
    return object;
}

static int read_tags(Reader *reader, const Plan *plan, PyObject *object)
{
    uint32_t count;
    int64_t last = -1;

    if (read_uvarint(reader, &count) || count > reader->end - reader->at)
        return -1;
    for (; count > 0; count--) {
        uint32_t tag, size;
        const uint8_t *stop;
        const Row *row = NULL;
        PyObject *value, *before;

        if (read_uvarint(reader, &tag) || tag <= last || read_uvarint(reader, &size) || size > reader->end - reader->at)
            return -1;
        last = tag;
        stop = reader->at + size;
        for (Py_ssize_t index = 0; plan->tagged_count && index < plan->size; index++)
            if (plan->rows[index].flags & TAGGED && plan->rows[index].tag == tag)
                row = &plan->rows[index];
        if (row == NULL)
            return -1; /* unknown */
        if (row->kind == STRUCT && row->flags & NULLABLE) {
            uint32_t is_there; /* a varint here, not a byte */

            if (read_uvarint(reader, &is_there))
                return -1;
            value = is_there ? read_struct(reader, row->element) : Py_NewRef(Py_None);
        } else
            value = read_field(reader, row);
        if (value == NULL)
            return -1;
        before = SLOT(object, row->slot);
        SLOT(object, row->slot) = value;
        Py_XDECREF(before);
        if (reader->at != stop)
            return -1;
    }
    return 0;
}

static PyObject *read_struct(Reader *reader, const Plan *plan)
{
    PyObject *object = plan->cls->tp_alloc(plan->cls, 0);

    if (object == NULL)
        return NULL;
    for (Py_ssize_t index = 0; index < plan->size; index++) {
        const Row *row = &plan->rows[index];
        PyObject *value = (row->flags & (PRESENT | TAGGED)) == PRESENT ? read_field(reader, row) : default_of(row);

        if (value == NULL) {
            Py_DECREF(object);
            return NULL;
        }
        SLOT(object, row->slot) = value;
    }
    SLOT(object, plan->unknown_slot) = PyTuple_New(0);
    if (plan->is_flexible && read_tags(reader, plan, object)) {
        Py_DECREF(object);
        return NULL;
    }
    return object;
}

/* Writing. A function that fails returns -1, with or without an exception: the fallback finds the error. */

typedef struct {
    uint8_t *data;
    Py_ssize_t size;
    Py_ssize_t capacity;
    PyObject *pieces; /* what is complete; NULL if all must be one piece */
    PyObject *marks;  /* which of the pieces are records */
    PyObject *records_size;
    int is_flexible;
    uint8_t first[WRITER_BYTES]; /* most messages fit here */
} Writer;

static int write_struct(Writer *writer, const Plan *plan, PyObject *object);

static uint8_t *room(Writer *writer, Py_ssize_t size)
{
    if (size > writer->capacity - writer->size) {
        Py_ssize_t capacity = 2 * (writer->size + size);
        uint8_t *data = writer->data == writer->first ? PyMem_Malloc(capacity) : PyMem_Realloc(writer->data, capacity);

        if (data == NULL)
            return NULL;
        if (writer->data == writer->first)
            memcpy(data, writer->first, writer->size);
        writer->data = data;
        writer->capacity = capacity;
    }
    writer->size += size;
    return writer->data + writer->size - size;
}

static int write_bytes(Writer *writer, const void *data, Py_ssize_t size)
{
    uint8_t *at = room(writer, size);

    if (at == NULL)
        return -1;
    memcpy(at, data, size);
    return 0;
}

static int write_number(Writer *writer, int size, uint64_t value)
{
    uint8_t *at = room(writer, size);

    if (at == NULL)
        return -1;
    set_number(at, size, value);
    return 0;
}

static int varint_bytes(uint8_t *at, uint32_t value)
{
    int size = 0;

    for (; value > 0x7F; value >>= 7)
        at[size++] = (uint8_t)(value | 0x80);
    at[size++] = (uint8_t)value;
    return size;
}

static int write_uvarint(Writer *writer, uint32_t value)
{
    uint8_t bytes[5];

    return write_bytes(writer, bytes, varint_bytes(bytes, value));
}

static int write_null(Writer *writer, int kind)
{
    if (writer->is_flexible)
        return write_number(writer, 1, 0);
    return write_number(writer, kind == STRING ? 2 : 4, (uint64_t)-1);
}

static int write_length(Writer *writer, int kind, Py_ssize_t length)
{
    if (length > (kind == STRING ? STRING_BYTES_MAX : INT32_MAX))
        return -1;
    if (writer->is_flexible)
        return write_uvarint(writer, (uint32_t)length + 1);
    return write_number(writer, kind == STRING ? 2 : 4, (uint64_t)length);
}

static int write_fixed(Writer *writer, int kind, PyObject *value)
{
    static const long long LOW[] = {0, INT8_MIN, INT16_MIN, 0, INT32_MIN, INT64_MIN};
    static const long long HIGH[] = {UINT8_MAX, INT8_MAX, INT16_MAX, UINT16_MAX, INT32_MAX, INT64_MAX};
    long long number;
    int overflow;

    if (kind == UUID)
        return PyBytes_Check(value) && PyBytes_GET_SIZE(value) == 16
                   ? write_bytes(writer, PyBytes_AS_STRING(value), 16)
                   : -1;
    if (kind == FLOAT64) {
        double real;
        uint64_t bits;

        if (!PyFloat_CheckExact(value))
            return -1;
        real = PyFloat_AS_DOUBLE(value);
        memcpy(&bits, &real, sizeof(bits));
        return write_number(writer, 8, bits);
    }
    if (!PyLong_Check(value))
        return -1;
    number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow || number < LOW[kind] || number > HIGH[kind])
        return -1;
    return write_number(writer, SIZES[kind], (uint64_t)number);
}

static Py_ssize_t pieces_of(const Writer *writer)
{
    return writer->pieces == NULL ? 0 : PyList_GET_SIZE(writer->pieces);
}

/* Append the bytes written so far to the pieces. */
static int flush(Writer *writer)
{
    PyObject *piece;
    int failed;

    if (writer->pieces == NULL)
        return -1;
    piece = PyBytes_FromStringAndSize((const char *)writer->data, writer->size);
    failed = piece == NULL || PyList_Append(writer->pieces, piece);
    Py_XDECREF(piece);
    writer->size = 0;
    return failed ? -1 : 0;
}

static int write_records(Writer *writer, PyObject *records)
{
    Py_ssize_t size;
    PyObject *mark;
    int failed;

    if (PyBytes_CheckExact(records))
        size = PyBytes_GET_SIZE(records);
    else {
        PyObject *number = PyObject_CallOneArg(writer->records_size, records);

        if (number == NULL)
            return -1;
        size = PyLong_AsSsize_t(number);
        Py_DECREF(number);
    }
    if (size < 0 || write_length(writer, RECORDS, size))
        return -1;
    if (size == 0)
        return 0;
    if (flush(writer))
        return -1;
    mark = PyLong_FromSsize_t(PyList_GET_SIZE(writer->pieces));
    failed = mark == NULL || PyList_Append(writer->marks, mark) || PyList_Append(writer->pieces, records);
    Py_XDECREF(mark);
    return failed ? -1 : 0;
}

/* A value with a length that is not an array. */
static int write_slice(Writer *writer, int kind, PyObject *value)
{
    const char *data;
    Py_ssize_t size;

    if (kind == RECORDS)
        return write_records(writer, value);
    if (kind == STRING) {
        if (!PyUnicode_Check(value) || (data = PyUnicode_AsUTF8AndSize(value, &size)) == NULL)
            return -1;
    } else if (PyBytes_Check(value)) {
        data = PyBytes_AS_STRING(value);
        size = PyBytes_GET_SIZE(value);
    } else
        return -1;
    return write_length(writer, kind, size) || write_bytes(writer, data, size) ? -1 : 0;
}

static int write_array(Writer *writer, const Row *row, PyObject *items)
{
    int kind = row->element_kind;

    if (!PyList_CheckExact(items) || write_length(writer, ARRAY, PyList_GET_SIZE(items)))
        return -1;
    for (Py_ssize_t index = 0; index < PyList_GET_SIZE(items); index++) {
        PyObject *item = PyList_GET_ITEM(items, index);
        int failed = kind == STRUCT   ? write_struct(writer, row->element, item)
                     : kind < STRING ? write_fixed(writer, kind, item)
                                     : write_slice(writer, kind, item);

        if (failed)
            return -1;
    }
    return 0;
}

static int write_field(Writer *writer, const Row *row, PyObject *value)
{
    if (value == NULL)
        return -1;
    if (row->kind < STRING)
        return write_fixed(writer, row->kind, value);
    if (row->kind == STRUCT) {
        if (row->flags & NULLABLE) {
            /* A byte; in a tagged section a varint, where null is 0. */
            int null = row->flags & TAGGED ? 0 : -1;

            if (write_number(writer, 1, value == Py_None ? (uint64_t)null : 1))
                return -1;
            if (value == Py_None)
                return 0;
        }
        return write_struct(writer, row->element, value);
    }
    if (value == Py_None)
        return row->flags & NULLABLE ? write_null(writer, row->kind) : -1;
    return row->kind == ARRAY ? write_array(writer, row, value) : write_slice(writer, row->kind, value);
}

/* 1 if a field differs from its default, 0 if not, -1 if the fallback must decide. */
static int is_set(const Row *row, PyObject *value)
{
    if (value == NULL)
        return -1;
    if (!(row->flags & FRESH))
        return value == row->value ? 0 : row->value == Py_None ? 1 : PyObject_RichCompareBool(value, row->value, Py_NE);
    if (row->kind == ARRAY)
        return PyList_CheckExact(value) ? PyList_GET_SIZE(value) > 0 : -1;
    if (Py_TYPE(value) != row->element->cls)
        return -1;
    for (Py_ssize_t index = 0; index < row->element->size; index++) {
        const Row *inner = &row->element->rows[index];
        int found = is_set(inner, SLOT(value, inner->slot));

        if (found)
            return found;
    }
    value = SLOT(value, row->element->unknown_slot);
    return value != NULL && PyTuple_CheckExact(value) && PyTuple_GET_SIZE(value) == 0 ? 0 : -1;
}

/* The known fields that differ from their defaults; plans have their tagged rows in the order of their tags. */
static int write_tags(Writer *writer, const Plan *plan, PyObject *object)
{
    Py_ssize_t count_at = writer->size;
    int count = 0;

    if (write_number(writer, 1, 0))
        return -1;
    for (Py_ssize_t index = 0; plan->tagged_count && index < plan->size; index++) {
        const Row *row = &plan->rows[index];
        PyObject *value = SLOT(object, row->slot);
        Py_ssize_t start, size, pieces;
        uint8_t head[5];
        int is_written, head_size;

        if (!(row->flags & TAGGED))
            continue;
        is_written = is_set(row, value);
        if (is_written < 0)
            return -1;
        if (!is_written)
            continue;
        count++;
        pieces = pieces_of(writer);
        if (write_uvarint(writer, row->tag))
            return -1;
        start = writer->size;
        if (write_field(writer, row, value) || pieces_of(writer) != pieces)
            return -1;
        size = writer->size - start;
        head_size = varint_bytes(head, (uint32_t)size);
        if (room(writer, head_size) == NULL)
            return -1;
        memmove(writer->data + start + head_size, writer->data + start, size);
        memcpy(writer->data + start, head, head_size);
    }
    if (count > 0x7F)
        return -1;
    writer->data[count_at] = (uint8_t)count;
    return 0;
}

static int write_struct(Writer *writer, const Plan *plan, PyObject *object)
{
    PyObject *unknown;

    if (Py_TYPE(object) != plan->cls)
        return -1;
    unknown = SLOT(object, plan->unknown_slot);
    if (unknown == NULL || !PyTuple_CheckExact(unknown) || PyTuple_GET_SIZE(unknown) > 0)
        return -1;
    for (Py_ssize_t index = 0; index < plan->size; index++) {
        const Row *row = &plan->rows[index];
        PyObject *value = SLOT(object, row->slot);

        if (!(row->flags & PRESENT)) {
            if (!(row->flags & IGNORABLE) && is_set(row, value))
                return -1;
        } else if (!(row->flags & TAGGED) && write_field(writer, row, value))
            return -1;
    }
    return plan->is_flexible ? write_tags(writer, plan, object) : 0;
}

/* The methods. */

/* A tuple that takes over both references; NULL if one is. */
static PyObject *pair(PyObject *first, PyObject *second)
{
    PyObject *made = first == NULL || second == NULL ? NULL : PyTuple_New(2);

    if (made == NULL) {
        Py_XDECREF(first);
        Py_XDECREF(second);
        return NULL;
    }
    PyTuple_SET_ITEM(made, 0, first);
    PyTuple_SET_ITEM(made, 1, second);
    return made;
}

static PyObject *plan_decode(PyObject *object, PyObject *const *args, Py_ssize_t nargs)
{
    Plan *self = (Plan *)object;
    Py_buffer data;
    Py_ssize_t position;
    PyObject *found = NULL;

    if (nargs != 2 || self->fallback_decode == NULL) {
        PyErr_SetString(PyExc_TypeError, "decode(buffer, position), of a whole message");
        return NULL;
    }
    if (PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) == 0) {
        position = PyLong_Check(args[1]) ? PyLong_AsSsize_t(args[1]) : -1;
        if (position >= 0 && position <= data.len) {
            const uint8_t *start = data.buf;
            Reader reader = {.start = start,
                             .at = start + position,
                             .end = start + data.len,
                             .buffer = args[0],
                             .is_flexible = self->is_flexible,
                             .elements_left = self->elements_max,
                             .turn_left = TURN_ELEMENTS};
            PyObject *message = read_struct(&reader, self);

            if (message != NULL)
                found = pair(message, PyLong_FromSsize_t(reader.at - start));
            Py_XDECREF(reader.view);
        }
        PyBuffer_Release(&data);
    }
    if (found != NULL)
        return found;
    PyErr_Clear();
    return PyObject_Vectorcall(self->fallback_decode, args, 2, NULL);
}

static void start_writing(Writer *writer, const Plan *plan, const State *state)
{
    writer->data = writer->first;
    writer->size = 0;
    writer->capacity = WRITER_BYTES;
    writer->pieces = writer->marks = NULL;
    writer->records_size = state->records_size;
    writer->is_flexible = plan->is_flexible;
}

static PyObject *plan_encode(PyObject *object, PyObject *message)
{
    Plan *self = (Plan *)object;
    State *state = PyType_GetModuleState(Py_TYPE(object));
    Writer writer;
    PyObject *result = NULL;

    if (self->fallback_encode == NULL || state == NULL) {
        PyErr_SetString(PyExc_TypeError, "encode(message), of a whole message");
        return NULL;
    }
    start_writing(&writer, self, state);
    writer.pieces = PyList_New(0);
    writer.marks = PyList_New(0);
    if (writer.pieces != NULL && writer.marks != NULL && write_struct(&writer, self, message) == 0 &&
        (writer.size == 0 || flush(&writer) == 0))
        result = PyTuple_Pack(2, writer.pieces, writer.marks);
    Py_XDECREF(writer.pieces);
    Py_XDECREF(writer.marks);
    if (writer.data != writer.first)
        PyMem_Free(writer.data);
    if (result != NULL)
        return result;
    PyErr_Clear();
    return PyObject_CallOneArg(self->fallback_encode, message);
}

static PyObject *plan_frame(PyObject *object, PyObject *const *args, Py_ssize_t nargs)
{
    enum { SIZE_BYTES = 4 };
    Plan *self = (Plan *)object;
    State *state = PyType_GetModuleState(Py_TYPE(object));
    PyObject *frame = NULL;
    Writer writer;

    if (nargs != 2 || state == NULL) {
        PyErr_SetString(PyExc_TypeError, "frame(message, correlation id)");
        return NULL;
    }
    start_writing(&writer, self, state);
    if (write_number(&writer, SIZE_BYTES, 0) == 0 && write_fixed(&writer, INT32, args[1]) == 0 &&
        (!self->is_flexible || write_number(&writer, 1, 0) == 0) && write_struct(&writer, self, args[0]) == 0 &&
        writer.size - SIZE_BYTES <= INT32_MAX) {
        set_number(writer.data, SIZE_BYTES, (uint64_t)(writer.size - SIZE_BYTES));
        frame = PyBytes_FromStringAndSize((const char *)writer.data, writer.size);
    }
    if (writer.data != writer.first)
        PyMem_Free(writer.data);
    if (frame != NULL)
        return frame;
    PyErr_Clear();
    Py_RETURN_NONE;
}

/* Request headers. */

/* As `headers.decode_request_header`, of a header with neither tagged fields nor odd text. */
static PyObject *read_header(const Py_buffer *data, Py_ssize_t position, const Py_buffer *flexible_from)
{
    enum { FIXED = 10, ANOTHER_LAYOUT = UINT8_MAX };
    const uint8_t *at = (const uint8_t *)data->buf + position;
    Py_ssize_t left = data->len - position;
    PyObject *found, *client_id;
    int64_t key, version, length;

    if (position < 0 || left < FIXED)
        return NULL;
    key = (int64_t)get_number(at, 2);
    version = (int64_t)get_number(at + 2, 2);
    length = (int16_t)get_number(at + 8, 2);
    if (key >= flexible_from->len || version > INT16_MAX)
        return NULL;
    left -= FIXED + (length > 0 ? length : 0);
    if (left < 0 || ((const uint8_t *)flexible_from->buf)[key] == ANOTHER_LAYOUT)
        return NULL;
    position = data->len - left;
    if (version >= ((const uint8_t *)flexible_from->buf)[key]) {
        if (left < 1 || ((const uint8_t *)data->buf)[position] != 0)
            return NULL;
        position++;
    }
    client_id = length < 0 ? Py_NewRef(Py_None) : PyUnicode_DecodeUTF8((const char *)at + FIXED, length, "strict");
    found = client_id == NULL ? NULL : PyTuple_New(5);
    if (found == NULL) {
        Py_XDECREF(client_id);
        return NULL;
    }
    PyTuple_SET_ITEM(found, 0, PyLong_FromLong((long)key));
    PyTuple_SET_ITEM(found, 1, PyLong_FromLong((long)version));
    PyTuple_SET_ITEM(found, 2, PyLong_FromLong((int32_t)get_number(at + 4, 4)));
    PyTuple_SET_ITEM(found, 3, client_id);
    PyTuple_SET_ITEM(found, 4, PyLong_FromSsize_t(position));
    if (PyErr_Occurred())
        Py_CLEAR(found);
    return found;
}

static PyObject *request_header(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer data, flexible_from;
    PyObject *found = NULL;

    if (nargs != 3) {
        PyErr_SetString(PyExc_TypeError, "request_header(buffer, position, flexible from)");
        return NULL;
    }
    if (PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) == 0) {
        if (PyObject_GetBuffer(args[2], &flexible_from, PyBUF_SIMPLE) == 0) {
            found = read_header(&data, PyLong_AsSsize_t(args[1]), &flexible_from);
            PyBuffer_Release(&flexible_from);
        }
        PyBuffer_Release(&data);
    }
    if (found != NULL)
        return found;
    PyErr_Clear();
    Py_RETURN_NONE;
}

/* Constructing by keywords. */

/* Where a class keeps the plan that constructs it. */
static PyObject *constructor_name;

/* The slot of a keyword's row; the search starts after the previous hit. NULL if no row has the name. */
static PyObject **place_of(const Plan *plan, PyObject *object, PyObject *keyword, Py_ssize_t *hint)
{
    for (Py_ssize_t step = 0; step < plan->size; step++) {
        const Row *row = &plan->rows[*hint];

        *hint = *hint + 1 < plan->size ? *hint + 1 : 0;
        if (row->name == keyword) /* interned names compare by address; others take the slow way */
            return &SLOT(object, row->slot);
    }
    return NULL;
}

static PyObject *construct_slowly(PyObject *cls, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords)
{
    PyObject *positional = PyTuple_New(nargs), *named = PyDict_New(), *made = NULL;
    Py_ssize_t count = keywords == NULL ? 0 : PyTuple_GET_SIZE(keywords), index = 0;

    for (; positional != NULL && index < nargs; index++)
        PyTuple_SET_ITEM(positional, index, Py_NewRef(args[index]));
    for (index = 0; named != NULL && index < count; index++)
        if (PyDict_SetItem(named, PyTuple_GET_ITEM(keywords, index), args[nargs + index]))
            Py_CLEAR(named);
    if (positional != NULL && named != NULL)
        made = PyType_Type.tp_call(cls, positional, named);
    Py_XDECREF(positional);
    Py_XDECREF(named);
    return made;
}

static PyObject *construct(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *keywords)
{
    PyTypeObject *cls = (PyTypeObject *)callable;
    Plan *plan = (Plan *)PyDict_GetItemWithError(cls->tp_dict, constructor_name);
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf), count = keywords == NULL ? 0 : PyTuple_GET_SIZE(keywords), hint = 0;
    PyObject *object;

    if (nargs > 0 || plan == NULL)
        return PyErr_Occurred() ? NULL : construct_slowly(callable, args, nargs, keywords);
    object = cls->tp_alloc(cls, 0);
    if (object == NULL)
        return NULL;
    for (Py_ssize_t index = 0; index < count; index++) {
        PyObject **place = place_of(plan, object, PyTuple_GET_ITEM(keywords, index), &hint);

        if (place == NULL) { /* unknown tagged fields, or a wrong keyword */
            Py_DECREF(object);
            return construct_slowly(callable, args, nargs, keywords);
        }
        *place = Py_NewRef(args[index]);
    }
    for (Py_ssize_t index = 0; index < plan->size; index++) {
        PyObject **place = &SLOT(object, plan->rows[index].slot);

        if (*place == NULL && (*place = default_of(&plan->rows[index])) == NULL) {
            Py_DECREF(object);
            return NULL;
        }
    }
    SLOT(object, plan->unknown_slot) = PyTuple_New(0);
    return object;
}

static PyObject *plan_construct(PyObject *object, PyObject *ignored)
{
    Plan *self = (Plan *)object;
    PyTypeObject *meta = Py_TYPE(self->cls);

    if (meta->tp_call != PyType_Type.tp_call || meta->tp_vectorcall_offset != PyType_Type.tp_vectorcall_offset) {
        PyErr_SetString(PyExc_TypeError, "the class of the class changes how it is called");
        return NULL;
    }
    if (PyObject_SetAttr((PyObject *)self->cls, constructor_name, object))
        return NULL;
    self->cls->tp_vectorcall = construct;
    /* Why: before Python 3.12 a class of classes written in Python does not inherit it, though it calls as `type` does. */
    meta->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
    Py_RETURN_NONE;
}

/* Building a plan. */

static Py_ssize_t slot_of(PyTypeObject *cls, PyObject *name)
{
    PyObject *descriptor = PyObject_GetAttr((PyObject *)cls, name);
    Py_ssize_t offset = -1;

    if (descriptor == NULL)
        return -1;
    if (Py_TYPE(descriptor) == &PyMemberDescr_Type && ((PyMemberDescrObject *)descriptor)->d_member->type == T_OBJECT_EX)
        offset = ((PyMemberDescrObject *)descriptor)->d_member->offset;
    else
        PyErr_Format(PyExc_TypeError, "%S of %R is no slot", name, cls);
    Py_DECREF(descriptor);
    return offset;
}

static int fill_row(State *state, Plan *plan, Row *row, PyObject *given)
{
    PyObject *name, *value, *element;
    int kind, flags;
    unsigned int tag;

    if (!PyArg_ParseTuple(given, "UiiIOO", &name, &kind, &flags, &tag, &value, &element))
        return -1;
    row->slot = slot_of(plan->cls, name);
    if (row->slot < 0)
        return -1;
    if (Py_TYPE(element) == state->plan_type) {
        row->element = (Plan *)Py_NewRef(element);
        row->element_kind = STRUCT;
    } else
        row->element_kind = (uint8_t)PyLong_AsLong(element);
    if (PyErr_Occurred())
        return -1;
    if (kind < 0 || kind >= KIND_COUNT || row->element_kind >= KIND_COUNT || row->element_kind == ARRAY ||
        (kind == STRUCT || row->element_kind == STRUCT) != (row->element != NULL)) {
        PyErr_SetString(PyExc_ValueError, "no such kind");
        return -1;
    }
    row->name = Py_NewRef(name);
    PyUnicode_InternInPlace(&row->name);
    row->value = Py_NewRef(value);
    row->kind = (uint8_t)kind;
    row->flags = (uint8_t)flags;
    row->tag = tag;
    plan->tagged_count += (flags & TAGGED) != 0;
    return 0;
}

static PyObject *plan_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *cls, *rows, *decode, *encode, *unknown;
    Py_ssize_t elements_max;
    int is_flexible;
    State *state = PyType_GetModuleState(type);
    Plan *self;

    (void)kwargs;
    if (state == NULL ||
        !PyArg_ParseTuple(args, "O!pO!OOn", &PyType_Type, &cls, &is_flexible, &PyTuple_Type, &rows, &decode, &encode,
                          &elements_max))
        return NULL;
    self = (Plan *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->cls = (PyTypeObject *)Py_NewRef(cls);
    self->is_flexible = is_flexible;
    self->elements_max = elements_max;
    self->fallback_decode = decode == Py_None ? NULL : Py_NewRef(decode);
    self->fallback_encode = encode == Py_None ? NULL : Py_NewRef(encode);
    unknown = PyUnicode_FromString("unknown_tagged_fields");
    self->unknown_slot = unknown == NULL ? -1 : slot_of(self->cls, unknown);
    Py_XDECREF(unknown);
    self->rows = PyMem_Calloc(PyTuple_GET_SIZE(rows) + 1, sizeof(Row));
    if (self->unknown_slot < 0 || self->rows == NULL) {
        Py_DECREF(self);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    for (; self->size < PyTuple_GET_SIZE(rows); self->size++)
        if (fill_row(state, self, &self->rows[self->size], PyTuple_GET_ITEM(rows, self->size))) {
            self->size++; /* it may be half filled */
            Py_DECREF(self);
            return NULL;
        }
    return (PyObject *)self;
}

static void plan_dealloc(PyObject *object)
{
    Plan *self = (Plan *)object;
    PyTypeObject *type = Py_TYPE(object);

    for (Py_ssize_t index = 0; index < self->size; index++) {
        Py_XDECREF(self->rows[index].name);
        Py_XDECREF(self->rows[index].value);
        Py_XDECREF(self->rows[index].element);
    }
    PyMem_Free(self->rows);
    Py_XDECREF(self->cls);
    Py_XDECREF(self->fallback_decode);
    Py_XDECREF(self->fallback_encode);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef plan_methods[] = {
    {"decode", (PyCFunction)(void (*)(void))plan_decode, METH_FASTCALL,
     "decode(buffer, position): (message, position behind it)."},
    {"encode", plan_encode, METH_O, "encode(message): (pieces, indexes of those that are records)."},
    {"frame", (PyCFunction)(void (*)(void))plan_frame, METH_FASTCALL,
     "frame(message, correlation id): the bytes of a whole response, size first; None if it has records or is unusual."},
    {"construct", plan_construct, METH_NOARGS, "construct(): from now on the plan constructs the objects of its class."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot plan_slots[] = {
    {Py_tp_doc, "Plan(class, is flexible, rows, fallback decode, fallback encode, elements max): the codec of a version. See plans.py."},
    {Py_tp_new, plan_new},
    {Py_tp_dealloc, plan_dealloc},
    {Py_tp_methods, plan_methods},
    {0, NULL},
};

/* Not known to the garbage collector: a plan lives as long as its class, and that as long as the process. */
static PyType_Spec plan_spec = {
    .name = "barnabas.protocol._codec.Plan",
    .basicsize = sizeof(Plan),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = plan_slots,
};

static int module_exec(PyObject *module)
{
    State *state = PyModule_GetState(module);
    PyObject *primitives = PyImport_ImportModule("barnabas.protocol.primitives");

    if (primitives == NULL || (constructor_name = PyUnicode_InternFromString("_constructor")) == NULL)
        return -1;
    state->records_size = PyObject_GetAttrString(primitives, "records_size");
    Py_DECREF(primitives);
    state->plan_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &plan_spec, NULL);
    if (state->records_size == NULL || state->plan_type == NULL)
        return -1;
    return PyModule_AddType(module, state->plan_type);
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);

    Py_VISIT(state->plan_type);
    Py_VISIT(state->records_size);
    return 0;
}

static int module_clear(PyObject *module)
{
    State *state = PyModule_GetState(module);

    Py_CLEAR(state->plan_type);
    Py_CLEAR(state->records_size);
    return 0;
}

static PyMethodDef functions[] = {
    {"request_header", (PyCFunction)(void (*)(void))request_header, METH_FASTCALL,
     "request_header(buffer, position, flexible from): (API key, version, correlation id, client id, where the body starts); "
     "None if the header is unusual. `flexible from` has, by API key, the first version with tagged fields; 255 stands for "
     "other layouts."},
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
    .m_name = "_codec",
    .m_doc = "Codecs of messages, driven by tables.",
    .m_size = sizeof(State),
    .m_methods = functions,
    .m_slots = slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
};

PyMODINIT_FUNC PyInit__codec(void)
{
    return PyModuleDef_Init(&module);
}
