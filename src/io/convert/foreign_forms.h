// SPDX-License-Identifier: Apache-2.0
/* The forms that a converted weight can have in the output. */
#ifndef S24_IO_CONVERT_FOREIGN_FORMS_H
#define S24_IO_CONVERT_FOREIGN_FORMS_H

#include "io/checkpoint/writer.h"
#include "io/convert/convert.h"

typedef enum s24i_form {
    FORM_AS_IS,          /* the one tensor that it is */
    FORM_DENSE,          /* all numbers, in floats */
    FORM_OURS,           /* 2:4 floats as docs/format.md has them */
    FORM_INTEGERS,       /* 2:4 integers, likewise */
    FORM_DENSE_INTEGERS, /* and all integers */
    FORM_BITMASK,        /* compressed-tensors' sparse-24-bitmask */
    FORM_TORCH           /* the parts of PyTorch's SparseSemiStructuredTensorCUTLASS */
} s24i_form;

/* A weight on its way: what it is, and what it becomes. */
typedef struct s24i_moving {
    const s24i_foreign *weight;
    s24i_form form;
    s24_dtype dtype; /* of its floats in the output */
} s24i_moving;

s24_status s24i_form_declare(s24_writer *writer, const s24i_moving *moving);
/* The form must be declared. MEMORY, IO, FORMAT. */
s24_status s24i_form_write(s24_writer *writer, const s24i_moving *moving);

#endif
