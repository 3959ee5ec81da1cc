// SPDX-License-Identifier: Apache-2.0
/* What functions of models share. */
#ifndef SPARSE24_PY_MODEL_H
#define SPARSE24_PY_MODEL_H

#include "py_operand.h"

/* A model's options from the tuple (dtype, dense, sparse, include, exclude, all_sparse, quantize,
   quantize_head, layer_dtypes, verify, device, comm), whose strings they borrow; 0 with an
   exception. *owner: what the model must keep, its device or communicator, or NULL. */
int py_model_options(s24_model_opts *opts, PyObject **owner, PyObject *tuple);
/* What s24_model_describe says, a dict. */
PyObject *py_model_dict(const s24_model *model);
/* A callable or None as a pointer, NULL for None. */
PyObject *py_callable(PyObject *object);
/* A batch of the operands: i64 offsets [texts + 1], i32 ids; 0 with an exception. Every offset is
   held against the ids, since the library reads as many as the last one says. */
int py_batch(s24_batch *batch, const py_operand *offsets, const py_operand *ids);

#endif
