/* Two calls of the kernel that Python's modules lack; see barnabas/common/processes/calls.py. Threads: any. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <sched.h>
#include <sys/prctl.h>

static PyObject *yield_core(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(arg))
{
    Py_BEGIN_ALLOW_THREADS
    sched_yield();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *signal_at_end_of_parent(PyObject *Py_UNUSED(module), PyObject *number)
{
    long value = PyLong_AsLong(number);

    if (value == -1 && PyErr_Occurred())
        return NULL;
    if (prctl(PR_SET_PDEATHSIG, value, 0, 0, 0))
        return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"yield_core", yield_core, METH_NOARGS, "yield_core(): sched_yield(2), without the interpreter's lock."},
    {"signal_at_end_of_parent", signal_at_end_of_parent, METH_O,
     "signal_at_end_of_parent(number): prctl(PR_SET_PDEATHSIG, number). Raises OSError."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_calls",
    .m_doc = "Calls of the kernel that Python's modules lack.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__calls(void)
{
    return PyModuleDef_Init(&module);
}
