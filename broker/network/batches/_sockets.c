/* receive_each and send_each in C. many_sockets.py documents them, says why they keep the interpreter's lock, and has
 * their fallbacks; tests/broker/network/batches/test_many_sockets.py compares both.
 *
 * Threads: any; the caller's lists are its own.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <limits.h>
#include <sys/socket.h>

#define EACH_BYTES 2048

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

static PyMethodDef methods[] = {
    {"receive_each", receive_each, METH_O, "receive_each(descriptors): what each has, or its error."},
    {"send_each", (PyCFunction)(void (*)(void))send_each, METH_FASTCALL, "send_each(descriptors, data): counts or errors."},
    {NULL, NULL, 0, NULL},
};

static int module_exec(PyObject *module)
{
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
