// SPDX-License-Identifier: Apache-2.0
/* What is known of a tensor before it is packed: its matrix, whether it was asked for, its name. */
#include <stdio.h>
#include <string.h>

#include "pack/pack.h"

int pack_wants_layout(const pack_job *j)
{
    return j->options->layout && strcmp(j->options->layout, "cpu") == 0;
}

s24_dense pack_shape(const s24_tensor *tensor)
{
    const int turned = tensor->transposed == 1 && !tensor->packed;
    return (s24_dense){.rows = tensor->shape[turned], .cols = tensor->shape[!turned]};
}

int pack_is_selected(const pack_job *j, const s24_tensor *tensor)
{
    return s24_tensor_is_selected(tensor, j->options->include, j->options->exclude);
}

s24_status pack_of_tensor(pack_job *j, const s24_tensor *tensor, s24_status status)
{
    char sentence[512];
    if (status == S24_OK) return S24_OK;
    snprintf(sentence, sizeof sentence, "%s", s24_ctx_error(j->cli->ctx));
    return s24_ctx_fail(j->cli->ctx, status, "tensor %s: %s%s", tensor->name, sentence,
                        status == S24_ERROR_NOT_TWO_FOUR
                            ? "; 'sparse24 prune' makes it so, --exclude leaves it out"
                            : "");
}
