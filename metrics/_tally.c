/* Tally in C. PythonTally in tally.py is its fallback and documents the methods; tests/metrics/test_tally.py compares both.

Threads: one thread writes a tally, any thread may read it. Shared words are read and written with relaxed atomics, which
cost nothing on common processors, so this needs no interpreter lock.
*/
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    double *bounds; /* ascending, then infinity; shared with the column before if they are equal, to use less memory */
    uint16_t *starts; /* by cell, the first bucket that a value of the cell may belong to; shared like the bounds */
    uint64_t first_cell, last_cell;
    int64_t *counts; /* one more than bounds */
    Py_ssize_t size; /* of bounds */
    double sum;
} Column;

typedef struct {
    PyObject_VAR_HEAD
    Column columns[];
} Tally;

/* The cell of a number that is not negative: its exponent and first three mantissa bits, so eight cells to a power of 2. */
static uint64_t cell_of(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits >> 49;
}

/* Return the index of the first bound that `value` does not exceed. */
static Py_ssize_t bucket_of(const Column *column, double value)
{
    const double *bounds = column->bounds;
    uint64_t cell;
    Py_ssize_t bucket;

    if (!(value > bounds[0]))
        return 0;
    cell = cell_of(value);
    bucket = column->starts[(cell < column->last_cell ? cell : column->last_cell) - column->first_cell];
    bucket += bounds[bucket] < value; /* mostly enough: a cell has at most one bound unless bounds are close together */
    while (bounds[bucket] < value)
        bucket++;
    return bucket;
}

static void put(Column *column, double value, int64_t weight)
{
    int64_t *count;
    double sum;

    if (!(value > 0)) /* negative, minus zero or NaN */
        value = 0;
    count = &column->counts[bucket_of(column, value)];
    sum = column->sum + value * (double)weight;
    __atomic_store_n(count, *count + weight, __ATOMIC_RELAXED);
    __atomic_store(&column->sum, &sum, __ATOMIC_RELAXED);
}

static int number(PyObject *object, double *value)
{
    if (PyFloat_CheckExact(object)) {
        *value = PyFloat_AS_DOUBLE(object);
        return 0;
    }
    *value = PyLong_CheckExact(object) ? PyLong_AsDouble(object) : PyFloat_AsDouble(object);
    return *value == -1 && PyErr_Occurred() ? -1 : 0;
}

static PyObject *tally_count(PyObject *object, PyObject *const *args, Py_ssize_t nargs)
{
    Tally *self = (Tally *)object;
    double value;
    Py_ssize_t index;

    if (nargs != Py_SIZE(self))
        return PyErr_Format(PyExc_TypeError, "count() takes %zd values, one for each column, not %zd", Py_SIZE(self),
                            nargs);
    for (index = 0; index < nargs; index++) {
        if (number(args[index], &value))
            return NULL;
        put(&self->columns[index], value, 1);
    }
    Py_RETURN_NONE;
}

static PyObject *tally_add(PyObject *object, PyObject *const *args, Py_ssize_t nargs)
{
    Tally *self = (Tally *)object;
    Py_ssize_t index;
    long long weight;
    double value;

    if (nargs != 3) {
        PyErr_SetString(PyExc_TypeError, "add(column, value, weight)");
        return NULL;
    }
    index = PyLong_AsSsize_t(args[0]);
    if ((index == -1 && PyErr_Occurred()) || number(args[1], &value))
        return NULL;
    weight = PyLong_AsLongLong(args[2]);
    if (weight == -1 && PyErr_Occurred())
        return NULL;
    if (index < 0 || index >= Py_SIZE(self)) {
        PyErr_SetString(PyExc_IndexError, "no such column");
        return NULL;
    }
    put(&self->columns[index], value, weight);
    Py_RETURN_NONE;
}

static PyObject *cell(const Column *column)
{
    PyObject *list = PyList_New(column->size + 2);
    Py_ssize_t index;
    double sum;

    if (list == NULL)
        return NULL;
    for (index = 0; index <= column->size + 1; index++) {
        PyObject *item;
        if (index <= column->size) {
            item = PyFloat_FromDouble((double)__atomic_load_n(&column->counts[index], __ATOMIC_RELAXED));
        } else {
            __atomic_load(&column->sum, &sum, __ATOMIC_RELAXED);
            item = PyFloat_FromDouble(sum);
        }
        if (item == NULL) {
            Py_DECREF(list);
            return NULL;
        }
        PyList_SET_ITEM(list, index, item);
    }
    return list;
}

static PyObject *tally_cells(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Tally *self = (Tally *)object;
    PyObject *list = PyList_New(Py_SIZE(self));
    Py_ssize_t index;

    for (index = 0; list != NULL && index < Py_SIZE(self); index++) {
        PyObject *item = cell(&self->columns[index]);
        if (item == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, index, item);
    }
    return list;
}

static int add_counts(Column *column)
{
    column->counts = PyMem_Calloc(column->size + 1, sizeof(int64_t));
    if (column->counts == NULL)
        PyErr_NoMemory();
    return column->counts == NULL ? -1 : 0;
}

/* Store for each cell the bucket where the search for its values starts. */
static int add_starts(Column *column)
{
    uint64_t cell;
    Py_ssize_t bucket = 0;

    column->first_cell = column->size > 0 && column->bounds[0] > 0 ? cell_of(column->bounds[0]) : 0;
    column->last_cell = column->size > 0 && column->bounds[column->size - 1] > 0
                            ? cell_of(column->bounds[column->size - 1])
                            : column->first_cell;
    column->starts = PyMem_Calloc(column->last_cell - column->first_cell + 1, sizeof(uint16_t));
    if (column->starts == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (cell = column->first_cell; cell <= column->last_cell; cell++) {
        while (column->bounds[bucket] < 0 || cell_of(column->bounds[bucket]) < cell)
            bucket++;
        column->starts[cell - column->first_cell] = (uint16_t)bucket;
    }
    return 0;
}

static int fill(Column *column, PyObject *sequence)
{
    PyObject *bounds = PySequence_Fast(sequence, "bounds are a sequence of sequences of numbers");
    Py_ssize_t index;

    if (bounds == NULL)
        return -1;
    column->size = PySequence_Fast_GET_SIZE(bounds);
    if (column->size > UINT16_MAX) {
        Py_DECREF(bounds);
        PyErr_SetString(PyExc_ValueError, "too many bounds");
        return -1;
    }
    column->bounds = PyMem_Calloc(column->size + 1, sizeof(double));
    if (column->bounds == NULL || add_counts(column)) {
        Py_DECREF(bounds);
        PyErr_NoMemory();
        return -1;
    }
    for (index = 0; index < column->size; index++) {
        double *bound = &column->bounds[index];
        if (number(PySequence_Fast_GET_ITEM(bounds, index), bound))
            break;
        if (!(*bound < Py_HUGE_VAL) || (index > 0 && *bound <= bound[-1])) {
            PyErr_SetString(PyExc_ValueError, "bounds are finite and ascend");
            break;
        }
    }
    column->bounds[column->size] = Py_HUGE_VAL;
    Py_DECREF(bounds);
    return PyErr_Occurred() || add_starts(column) ? -1 : 0;
}

static PyObject *tally_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"bounds", NULL};
    PyObject *argument, *columns;
    Tally *self;
    Py_ssize_t index;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:Tally", names, &argument))
        return NULL;
    columns = PySequence_Fast(argument, "bounds are a sequence of sequences of numbers");
    if (columns == NULL)
        return NULL;
    self = (Tally *)type->tp_alloc(type, PySequence_Fast_GET_SIZE(columns));
    for (index = 0; self != NULL && index < Py_SIZE(self); index++) {
        PyObject *item = PySequence_Fast_GET_ITEM(columns, index);
        Column *column = &self->columns[index];
        int failed;

        if (index > 0 && item == PySequence_Fast_GET_ITEM(columns, index - 1)) {
            *column = column[-1];
            failed = add_counts(column);
        } else {
            failed = fill(column, item);
        }
        if (failed)
            Py_CLEAR(self);
    }
    Py_DECREF(columns);
    return (PyObject *)self;
}

static void tally_dealloc(PyObject *object)
{
    Tally *self = (Tally *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_ssize_t index;

    for (index = 0; index < Py_SIZE(self); index++) {
        if (index == 0 || self->columns[index].bounds != self->columns[index - 1].bounds) {
            PyMem_Free(self->columns[index].bounds);
            PyMem_Free(self->columns[index].starts);
        }
        PyMem_Free(self->columns[index].counts);
    }
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef tally_methods[] = {
    {"count", (PyCFunction)(void (*)(void))tally_count, METH_FASTCALL, "count(*values): one value for each column."},
    {"add", (PyCFunction)(void (*)(void))tally_add, METH_FASTCALL, "add(column, value, weight)."},
    {"cells", tally_cells, METH_NOARGS, "cells(): for each column the counts of its buckets, then the sum."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot tally_slots[] = {
    {Py_tp_doc, "Tally(bounds): counts values by bucket, in columns. See tally.py."},
    {Py_tp_new, tally_new},
    {Py_tp_dealloc, tally_dealloc},
    {Py_tp_methods, tally_methods},
    {0, NULL},
};

static PyType_Spec tally_spec = {
    .name = "barnabas.metrics._tally.Tally",
    .basicsize = sizeof(Tally),
    .itemsize = sizeof(Column),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = tally_slots,
};

static int module_exec(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &tally_spec, NULL);
    int failed = type == NULL || PyModule_AddType(module, (PyTypeObject *)type);

    Py_XDECREF(type);
    return failed ? -1 : 0;
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
    .m_name = "_tally",
    .m_doc = "Counting values by bucket.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__tally(void)
{
    return PyModuleDef_Init(&module);
}
