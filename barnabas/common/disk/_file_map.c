/* FileMap: the first bytes of a file as memory, read only, without a descriptor; see barnabas/common/disk/file_maps.py.

When a page is missing (a broken disk, a truncated file), no call returns an error: the thread that reads it gets SIGBUS,
which ends the process. So a read sets a jump mark before it copies bytes. The signal's handler jumps back to it, and
the read fails with EIO, like pread. A SIGBUS from any other code goes to the previous handler.

Threads: any. `recovery` is thread-local; `installing` guards `previous`.
*/
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MAP_POPULATE
#define MAP_POPULATE 0
#endif

typedef struct {
    PyObject_HEAD
    char *memory; /* NULL for a map of no bytes */
    Py_ssize_t size;
} FileMap;

static __thread sigjmp_buf *volatile recovery; /* of the read that is in progress on this thread */
static pthread_mutex_t installing = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction previous;

static void on_sigbus(int number, siginfo_t *info, void *context)
{
    if (recovery != NULL)
        siglongjmp(*recovery, 1);
    if (previous.sa_flags & SA_SIGINFO)
        previous.sa_sigaction(number, info, context);
    else if (previous.sa_handler == SIG_DFL || previous.sa_handler == SIG_IGN)
        signal(SIGBUS, SIG_DFL); /* the access is retried on return, and ends the process */
    else
        previous.sa_handler(number);
}

/* Called for each new map, since other code (faulthandler) may have replaced the handler. */
static int install_handler(void)
{
    struct sigaction ours, found;
    int failed;

    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = on_sigbus;
    ours.sa_flags = SA_SIGINFO | SA_NODEFER; /* not blocked in the handler, so jumping out restores nothing */
    sigemptyset(&ours.sa_mask);
    pthread_mutex_lock(&installing);
    failed = sigaction(SIGBUS, NULL, &found);
    if (!failed && !((found.sa_flags & SA_SIGINFO) && found.sa_sigaction == on_sigbus)) {
        previous = found;
        failed = sigaction(SIGBUS, &ours, NULL);
    }
    pthread_mutex_unlock(&installing);
    return failed;
}

static PyObject *file_map_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"fd", "size", NULL};
    int fd;
    Py_ssize_t size;
    char *memory = NULL;
    FileMap *self;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "in:FileMap", names, &fd, &size))
        return NULL;
    if (size < 0) {
        PyErr_SetString(PyExc_ValueError, "a map of a negative size");
        return NULL;
    }
    if (install_handler())
        return PyErr_SetFromErrno(PyExc_OSError);
    if (size > 0) {
        /* Populated here, without the interpreter's lock, so that later reads usually do not wait for the disk. */
        Py_BEGIN_ALLOW_THREADS
        memory = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
        Py_END_ALLOW_THREADS
        if (memory == MAP_FAILED)
            return PyErr_SetFromErrno(PyExc_OSError);
    }
    self = (FileMap *)type->tp_alloc(type, 0);
    if (self == NULL) {
        if (memory != NULL)
            munmap(memory, (size_t)size);
        return NULL;
    }
    self->memory = memory;
    self->size = size;
    return (PyObject *)self;
}

static void file_map_dealloc(FileMap *self)
{
    PyTypeObject *type = Py_TYPE(self);

    if (self->memory != NULL)
        munmap(self->memory, (size_t)self->size);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static int copy_guarded(char *target, const char *source, Py_ssize_t count)
{
    sigjmp_buf mark;

    if (sigsetjmp(mark, 0)) {
        recovery = NULL;
        return -1;
    }
    recovery = &mark;
    memcpy(target, source, (size_t)count);
    recovery = NULL;
    return 0;
}

static PyObject *file_map_read(FileMap *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_ssize_t size, position;
    PyObject *data;

    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "read(size, position)");
        return NULL;
    }
    size = PyLong_AsSsize_t(args[0]);
    if (size == -1 && PyErr_Occurred())
        return NULL;
    position = PyLong_AsSsize_t(args[1]);
    if (position == -1 && PyErr_Occurred())
        return NULL;
    if (size < 0 || position < 0) {
        PyErr_SetString(PyExc_ValueError, "a negative size or position");
        return NULL;
    }
    if (position > self->size)
        position = self->size;
    if (size > self->size - position)
        size = self->size - position;
    data = PyBytes_FromStringAndSize(NULL, size);
    if (data != NULL && size > 0 && copy_guarded(PyBytes_AS_STRING(data), self->memory + position, size)) {
        Py_DECREF(data);
        errno = EIO;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return data;
}

static PyObject *file_map_size(FileMap *self, void *closure)
{
    (void)closure;
    return PyLong_FromSsize_t(self->size);
}

static PyMethodDef file_map_methods[] = {
    {"read", (PyCFunction)(void (*)(void))file_map_read, METH_FASTCALL,
     "read(size, position): up to `size` bytes; fewer only at the end of the map. Raises OSError(EIO)."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef file_map_getset[] = {
    {"size", (getter)file_map_size, NULL, "bytes that are mapped", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot file_map_slots[] = {
    {Py_tp_new, file_map_new},
    {Py_tp_dealloc, file_map_dealloc},
    {Py_tp_methods, file_map_methods},
    {Py_tp_getset, file_map_getset},
    {Py_tp_doc, "FileMap(fd, size): the first `size` bytes of a file, which must be at least that long."},
    {0, NULL},
};

static PyType_Spec file_map_spec = {
    .name = "barnabas.common.disk._file_map.FileMap",
    .basicsize = sizeof(FileMap),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = file_map_slots,
};

static int module_exec(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &file_map_spec, NULL);
    int failed;

    if (type == NULL)
        return -1;
    failed = PyModule_AddObjectRef(module, "FileMap", type);
    Py_DECREF(type);
    return failed;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_file_map",
    .m_doc = "Memory-mapped files whose missing pages raise OSError.",
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__file_map(void)
{
    return PyModuleDef_Init(&module);
}
