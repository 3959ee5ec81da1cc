// SPDX-License-Identifier: Apache-2.0
/* Whether a checkpoint's weights were quantised by another library in a way that is not known; rows
   of quantizations.def are. */
#ifndef S24_IO_CONVERT_QUANTIZATION_H
#define S24_IO_CONVERT_QUANTIZATION_H

#include "io/checkpoint/checkpoint.h"

enum { S24I_FP8_BLOCK = 128 }; /* rows and columns that share a scale of fp8 */

/* What a folder says of how its weights are quantised, where their tensors do not tell. */
typedef struct s24i_quantization {
    int is_said;         /* it says something: config.json, or another file of quantizations.def */
    int zeros_as_stored; /* GPTQ's zero points are as they are stored, not one more */
    int in_order;        /* its groups are of columns one after another */
} s24i_quantization;

/* FORMAT: the folder says that the weights are quantised so that no row has it. `out` may be
   NULL. */
s24_status s24i_quantization_check(s24i_quantization *out, const s24_checkpoint *checkpoint);
/* How the name of a quantised weight's part ends; NULL: it is none. */
const char *s24i_quantization_leftover(const char *name);
/* FORMAT, by the part's name. */
s24_status s24i_quantization_refuse(s24_ctx *ctx, const char *path, const s24_tensor *tensor);
/* For who takes tensors for the model's numbers: UNSUPPORTED where convert would make them that,
   FORMAT where it would not either. */
s24_status s24i_quantization_require_none(s24_ctx *ctx, const s24_checkpoint *checkpoint);

#endif
