// SPDX-License-Identifier: Apache-2.0
/*
 * Memory of other packages, without a copy: numpy's arrays by their array interface (the buffer
 * protocol is in the stable ABI from Python 3.11 on only), tensors on the CPU by DLPack, and tuples
 * (address, dtype, rows, cols, ld) of sparse24's own Python code.
 */
#ifndef SPARSE24_PY_OPERAND_H
#define SPARSE24_PY_OPERAND_H

#include "py_call.h"

typedef struct py_operand {
    const char *name; /* for sentences */
    int writable;     /* 1: it must be */
    s24_dense dense;  /* leading dimensions as one; a vector is a row; data NULL: None */
    PyObject *owner;  /* keeps the memory: a capsule */
} py_operand;

/* Declares operands that let go of their memory where they go out of scope. */
#define OPERAND __attribute__((cleanup(py_operand_release))) py_operand
void py_operand_release(py_operand *operand);

/* Converters of PyArg_ParseTuple. */
int py_operand_take(PyObject *object, void *operand);
int py_operand_take_or_none(PyObject *object, void *operand);

/* 1 if the operand is of this dtype, has this number of elements and no gaps; else 0 and raises.
   None is fine. */
int py_operand_expect(const py_operand *operand, s24_dtype dtype, int64_t count);

/* A dtype by its name, "" or None for none: a converter for an s24_dtype. */
int py_dtype(PyObject *object, void *dtype);
/* One of a list of names: the converter sets value to its index. */
typedef struct py_choice {
    const char *what;         /* for the sentence */
    const char *const *names; /* ended by NULL */
    int value;
} py_choice;
int py_choose(PyObject *object, void *choice);

/* The converter of a way to choose what stays in a 2:4 matrix, for an s24_select. */
int py_select(PyObject *object, void *select);

/* Declares a reference that is let go where it goes out of scope; NULL is fine. */
#define REFERENCE __attribute__((cleanup(py_reference_release))) PyObject
void py_reference_release(PyObject **reference);
/* A path (str, bytes or os.PathLike) as bytes, a new reference; None is NULL. */
int py_path(PyObject *object, void *bytes);
const char *py_path_text(PyObject *bytes);

/* A tuple of str as texts: an array to be freed by PyMem_Free; NULL with an exception. The strings
   must live on. */
s24_text *py_texts(PyObject *tuple, int64_t *count);

#endif
