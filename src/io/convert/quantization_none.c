// SPDX-License-Identifier: Apache-2.0
/* For who takes tensors for a model's numbers: refuses those that another library quantised. */
#include "io/convert/quantization.h"

s24_status s24i_quantization_require_none(s24_ctx *ctx, const s24_checkpoint *checkpoint)
{
    const char *scheme = s24_checkpoint_scheme(checkpoint);
    const char *folder = s24_checkpoint_folder(checkpoint);
    if (!folder) folder = checkpoint->shards->path;
    REQUIRE(ctx, !scheme, S24_ERROR_UNSUPPORTED,
            "%s: its weights are stored as %s: 'sparse24 convert' makes them ours", folder, scheme);
    for (size_t i = 0; i < checkpoint->count; i++)
        if (s24i_quantization_leftover(checkpoint->tensors[i].name))
            return s24i_quantization_refuse(ctx, folder, &checkpoint->tensors[i]);
    return s24i_quantization_check(NULL, checkpoint);
}
