/* receive_each, send_each and send_parts in C. many_sockets.py and many_parts.py document them, say which of them keep
 * the interpreter's lock, and have their fallbacks; tests/broker/network/batches/ compares both.
 *
 * Threads: any; the caller's lists are its own.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <limits.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#define EACH_BYTES 2048
#define PIECES 16 /* parts that are looked at together */
#define OUTPUTS 8 /* sockets that are full */
#define EVENTS 64
#define NS_PER_MS 1000000LL
#define NS_PER_S 1000000000LL

static int descriptor_at(PyObject *list, Py_ssize_t index, int *descriptor)
{
    long value = PyLong_AsLong(PyList_GET_ITEM(list, index));

    if (value == -1 && PyErr_Occurred())
        return -1;
    if (value < 0 || value > INT_MAX) {
        PyErr_SetString(PyExc_ValueError, "no descriptor");
        return -1;
    }
    *descriptor = (int)value;
    return 0;
}

static PyObject *receive_once(int descriptor)
{
    char bytes[EACH_BYTES];
    ssize_t count;
    PyObject *received;

    do {
        count = recv(descriptor, bytes, sizeof bytes, MSG_DONTWAIT);
    } while (count < 0 && errno == EINTR);
    if (count < 0)
        return PyLong_FromLong(-errno);
    received = PyByteArray_FromStringAndSize(bytes, count);
    if (received != NULL)
        return received;
    PyErr_Clear(); /* its bytes are lost, those of others are not */
    return PyLong_FromLong(-ENOMEM);
}

static PyObject *receive_each(PyObject *Py_UNUSED(module), PyObject *descriptors)
{
    PyObject *received;
    Py_ssize_t index;

    if (!PyList_CheckExact(descriptors))
        return PyErr_Format(PyExc_TypeError, "receive_each(list of descriptors)");
    received = PyList_New(PyList_GET_SIZE(descriptors));
    for (index = 0; received != NULL && index < PyList_GET_SIZE(received); index++) {
        int descriptor;
        PyObject *item = descriptor_at(descriptors, index, &descriptor) ? NULL : receive_once(descriptor);
        if (item == NULL)
            Py_CLEAR(received);
        else
            PyList_SET_ITEM(received, index, item);
    }
    return received;
}

static PyObject *send_once(int descriptor, PyObject *data)
{
    ssize_t count;

    if (!PyBytes_CheckExact(data))
        return PyErr_Format(PyExc_TypeError, "what is sent is bytes");
    do {
        count = send(descriptor, PyBytes_AS_STRING(data), (size_t)PyBytes_GET_SIZE(data), MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (count < 0 && errno == EINTR);
    return PyLong_FromSsize_t(count < 0 ? -errno : count);
}

static PyObject *send_each(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t argument_count)
{
    PyObject *sent;
    Py_ssize_t index;

    if (argument_count != 2 || !PyList_CheckExact(arguments[0]) || !PyList_CheckExact(arguments[1])
        || PyList_GET_SIZE(arguments[0]) != PyList_GET_SIZE(arguments[1]))
        return PyErr_Format(PyExc_TypeError, "send_each(list of descriptors, list of bytes), equally long");
    sent = PyList_New(PyList_GET_SIZE(arguments[0]));
    for (index = 0; sent != NULL && index < PyList_GET_SIZE(sent); index++) {
        PyObject *data = PyList_GET_ITEM(arguments[1], index);
        int descriptor;
        PyObject *item = descriptor_at(arguments[0], index, &descriptor) ? NULL : send_once(descriptor, data);
        if (item == NULL)
            Py_CLEAR(sent);
        else
            PyList_SET_ITEM(sent, index, item);
    }
    return sent;
}

/* A part of a response: bytes in memory, or a region of a file. */
struct piece {
    Py_buffer view; /* view.obj is NULL for a region */
    int file;
    long long position;
    long long size;
};

struct progress {
    Py_ssize_t done; /* parts that are sent */
    long long sent;  /* bytes of the next one */
    long long left;  /* bytes that may still be sent in this call */
    int is_full;
    int error; /* an errno; ENODATA: the file ends before its region does */
};

static int read_long(PyObject *number, long long *value)
{
    *value = PyLong_AsLongLong(number);
    return *value == -1 && PyErr_Occurred() ? -1 : 0;
}

static int read_attribute(PyObject *part, const char *name, long long *value)
{
    PyObject *number = PyObject_GetAttrString(part, name);
    int result = number == NULL ? -1 : read_long(number, value);

    Py_XDECREF(number);
    return result;
}

static int read_part(PyObject *part, struct piece *piece)
{
    if (PyObject_CheckBuffer(part)) {
        if (PyObject_GetBuffer(part, &piece->view, PyBUF_SIMPLE) < 0)
            return -1;
        piece->size = piece->view.len;
        return 0;
    }
    piece->view.obj = NULL;
    piece->file = PyObject_AsFileDescriptor(part);
    if (piece->file < 0)
        return -1;
    return read_attribute(part, "position", &piece->position) || read_attribute(part, "size", &piece->size) ? -1 : 0;
}

static int has_bytes(const struct piece *pieces, int count)
{
    for (int index = 0; index < count; index++)
        if (pieces[index].size > 0)
            return 1;
    return 0;
}

/* One system call, for a region or for all buffers before the next one; returns what it returns. */
static ssize_t send_some(int descriptor, struct piece *pieces, int count, int is_last, struct progress *progress)
{
    struct iovec vectors[PIECES];
    struct msghdr message = {.msg_iov = vectors};
    long long asked = pieces[0].size - progress->sent;
    int flags = MSG_DONTWAIT | MSG_NOSIGNAL;

    if (pieces[0].view.obj == NULL) {
        off_t position = pieces[0].position + progress->sent;
        return sendfile(descriptor, pieces[0].file, &position, asked < progress->left ? asked : progress->left);
    }
    while (message.msg_iovlen < (size_t)count && pieces[message.msg_iovlen].view.obj != NULL) {
        struct piece *piece = &pieces[message.msg_iovlen];
        long long skipped = message.msg_iovlen == 0 ? progress->sent : 0;
        vectors[message.msg_iovlen].iov_base = (char *)piece->view.buf + skipped;
        vectors[message.msg_iovlen++].iov_len = (size_t)(piece->size - skipped);
    }
    if (!is_last || has_bytes(pieces + message.msg_iovlen, count - (int)message.msg_iovlen))
        flags |= MSG_MORE; /* a header and the file region after it share a packet */
    return sendmsg(descriptor, &message, flags);
}

static void send_pieces(int descriptor, struct piece *pieces, int count, int is_last, struct progress *progress)
{
    int at = 0;

    while (at < count) {
        ssize_t sent;
        if (pieces[at].size == progress->sent) {
            at++;
            progress->done++;
            progress->sent = 0;
            continue;
        }
        if (progress->left <= 0)
            return;
        sent = send_some(descriptor, pieces + at, count - at, is_last, progress);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0) {
            progress->is_full = sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
            progress->error = progress->is_full ? 0 : sent < 0 ? errno : ENODATA;
            return;
        }
        progress->left -= sent;
        progress->sent += sent;
        while (progress->sent > 0 && progress->sent >= pieces[at].size) {
            progress->sent -= pieces[at++].size;
            progress->done++;
        }
    }
}

static int read_pieces(PyObject *parts, Py_ssize_t first, struct piece *pieces)
{
    int count = 0;

    for (; count < PIECES && first + count < PyList_GET_SIZE(parts); count++)
        if (read_part(PyList_GET_ITEM(parts, first + count), &pieces[count]) < 0)
            break;
    return count;
}

static void release_pieces(struct piece *pieces, int count)
{
    for (int index = 0; index < count; index++)
        if (pieces[index].view.obj != NULL)
            PyBuffer_Release(&pieces[index].view);
}

static PyObject *item_of(const struct progress *progress)
{
    return Py_BuildValue("(nLOi)", progress->done, progress->sent, progress->is_full ? Py_True : Py_False,
                         progress->error);
}

static PyObject *send_parts(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t argument_count)
{
    struct progress progress = {0};
    PyObject *parts;
    int descriptor;

    if (argument_count != 3 || !PyList_CheckExact(arguments[1]))
        return PyErr_Format(PyExc_TypeError, "send_parts(socket, list of parts, most)");
    parts = arguments[1];
    if ((descriptor = PyObject_AsFileDescriptor(arguments[0])) < 0 || read_long(arguments[2], &progress.left) < 0)
        return NULL;
    while (progress.done < PyList_GET_SIZE(parts) && !progress.is_full && !progress.error) {
        struct piece pieces[PIECES];
        int count = read_pieces(parts, progress.done, pieces);
        if (!PyErr_Occurred()) {
            int is_last = progress.done + count == PyList_GET_SIZE(parts);
            Py_BEGIN_ALLOW_THREADS
            send_pieces(descriptor, pieces, count, is_last, &progress);
            Py_END_ALLOW_THREADS
        }
        release_pieces(pieces, count);
        if (PyErr_Occurred())
            return NULL;
        if (progress.left <= 0)
            break;
    }
    return item_of(&progress);
}

/* What is left of a response whose socket is full. */
struct output {
    int descriptor;
    int count; /* of the pieces */
    int is_last;
    struct progress progress;
    struct piece pieces[PIECES];
};

struct outputs {
    int count;
    long long sending_ns;
    struct output of[OUTPUTS];
};

static long long now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

static int wait_for(int selector, struct epoll_event *events, long long until_ns)
{
    long long left_ns = until_ns - now_ns();
    long long left_ms = left_ns > 0 ? (left_ns + NS_PER_MS - 1) / NS_PER_MS : 0;

    return epoll_wait(selector, events, EVENTS, left_ms < INT_MAX ? (int)left_ms : INT_MAX);
}

static struct output *output_of(struct outputs *outputs, const struct epoll_event *event)
{
    if (event->events == EPOLLOUT)
        for (int index = 0; index < outputs->count; index++)
            if (outputs->of[index].descriptor == event->data.fd)
                return &outputs->of[index];
    return NULL;
}

/* Returns how many events it has not handled and left at the start of `events`, or a negative errno. */
static int send_while_waiting(int selector, struct epoll_event *events, long long until_ns, struct outputs *outputs)
{
    int others = 0, is_over = 0;

    while (!is_over) {
        int count = wait_for(selector, events, until_ns);
        long long began_ns = now_ns(), ended_ns;
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return -errno;
        is_over = count == 0;
        for (int index = 0; index < count; index++) {
            struct output *output = output_of(outputs, &events[index]);
            if (output == NULL) {
                events[others++] = events[index];
                is_over = 1;
                continue;
            }
            output->progress.is_full = 0;
            send_pieces(output->descriptor, output->pieces + output->progress.done,
                        output->count - (int)output->progress.done, output->is_last, &output->progress);
            is_over |= !output->progress.is_full;
        }
        ended_ns = now_ns();
        if (others < count)
            outputs->sending_ns += ended_ns - began_ns;
        is_over |= ended_ns >= until_ns;
    }
    return others;
}

static int read_output(PyObject *parts, long long most, struct output *output)
{
    output->progress = (struct progress){.is_full = 1, .left = most};
    if (!PyList_CheckExact(parts)) {
        PyErr_SetString(PyExc_TypeError, "the parts are a list");
        return -1;
    }
    output->count = read_pieces(parts, 0, output->pieces);
    output->is_last = output->count == PyList_GET_SIZE(parts);
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *events_of(const struct epoll_event *events, int count)
{
    PyObject *list = PyList_New(count);

    for (int index = 0; list != NULL && index < count; index++) {
        PyObject *event = Py_BuildValue("(iI)", events[index].data.fd, events[index].events);
        if (event == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, index, event);
    }
    return list;
}

static PyObject *progress_of(const struct outputs *outputs)
{
    PyObject *list = PyList_New(outputs->count);

    for (int index = 0; list != NULL && index < outputs->count; index++) {
        PyObject *item = item_of(&outputs->of[index].progress);
        if (item == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, index, item);
    }
    return list;
}

static PyObject *wait_and_send(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t argument_count)
{
    struct epoll_event events[EVENTS];
    struct outputs outputs;
    long long timeout_ns, most;
    int selector, others = 0;

    if (argument_count != 5 || !PyList_CheckExact(arguments[2]) || !PyList_CheckExact(arguments[3])
        || PyList_GET_SIZE(arguments[2]) != PyList_GET_SIZE(arguments[3]) || PyList_GET_SIZE(arguments[2]) > OUTPUTS)
        return PyErr_Format(PyExc_TypeError, "wait_and_send(selector, nanoseconds, descriptors, lists of parts, most)");
    if ((selector = PyObject_AsFileDescriptor(arguments[0])) < 0 || read_long(arguments[1], &timeout_ns) < 0
        || read_long(arguments[4], &most) < 0)
        return NULL;
    outputs.sending_ns = 0;
    for (outputs.count = 0; outputs.count < PyList_GET_SIZE(arguments[2]); outputs.count++) {
        struct output *output = &outputs.of[outputs.count];
        output->count = 0;
        if (descriptor_at(arguments[2], outputs.count, &output->descriptor) < 0
            || read_output(PyList_GET_ITEM(arguments[3], outputs.count), most, output) < 0) {
            release_pieces(output->pieces, output->count);
            break;
        }
    }
    if (!PyErr_Occurred()) {
        Py_BEGIN_ALLOW_THREADS
        others = send_while_waiting(selector, events, now_ns() + timeout_ns, &outputs);
        Py_END_ALLOW_THREADS
    }
    for (int index = 0; index < outputs.count; index++)
        release_pieces(outputs.of[index].pieces, outputs.of[index].count);
    if (PyErr_Occurred())
        return NULL;
    if (others < 0) {
        errno = -others;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return Py_BuildValue("(NNL)", events_of(events, others), progress_of(&outputs), outputs.sending_ns);
}

static PyMethodDef methods[] = {
    {"send_parts", (PyCFunction)(void (*)(void))send_parts, METH_FASTCALL, "send_parts(socket, parts, most): see many_parts.py."},
    {"wait_and_send", (PyCFunction)(void (*)(void))wait_and_send, METH_FASTCALL,
     "wait_and_send(selector, nanoseconds, descriptors, lists of parts, most): see many_parts.py."},
    {"receive_each", receive_each, METH_O, "receive_each(descriptors): what each has, or its error."},
    {"send_each", (PyCFunction)(void (*)(void))send_each, METH_FASTCALL, "send_each(descriptors, data): counts or errors."},
    {NULL, NULL, 0, NULL},
};

static int module_exec(PyObject *module)
{
    if (PyModule_AddIntConstant(module, "OUTPUTS", OUTPUTS) < 0)
        return -1;
    return PyModule_AddIntConstant(module, "EACH_BYTES", EACH_BYTES);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, module_exec},
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_sockets",
    .m_doc = "System calls for several sockets.",
    .m_slots = slots,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__sockets(void)
{
    return PyModuleDef_Init(&module);
}
