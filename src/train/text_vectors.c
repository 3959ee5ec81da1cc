// SPDX-License-Identifier: Apache-2.0
/* How training makes a text's vector of its states: ways of pooling, and what a folder has after
   them, which works on the host and does not learn. */
#include "io/checkpoint/checkpoint.h"
#include "train/transformer.h"

/* A device has the common ways of pooling alone, and no modules after them. */
s24_status s24i_vectors_check(const s24_transformer *t, s24_ctx *ctx, const char *folder)
{
    const int on_device = t->opts.device != NULL;
    const char *where = on_device ? " on a device" : "";
    REQUIRE(ctx, !on_device || !t->pooled.more_modules, S24_ERROR_UNSUPPORTED,
            "%s/modules.json: a model with a module Dense or LayerNorm is not trained on a device",
            folder);
    REQUIRE(ctx, !on_device || !t->pooled.further_count, S24_ERROR_UNSUPPORTED,
            "%s: pooling by several ways is not trained on a device", folder);
    for (int i = 0; i <= t->pooled.further_count; i++) {
        const s24i_pooling way = s24i_pooling_way(&t->pooled, i);
        REQUIRE(ctx, way < (on_device ? S24I_POOLINGS : S24I_POOL_END), S24_ERROR_UNSUPPORTED,
                "%s: pooling by %s is not trained%s", folder, s24i_pooling_name(way), where);
    }
    return S24_OK;
}

s24_status s24i_vectors_read(s24_transformer *t, s24_ctx *ctx, const s24_checkpoint *checkpoint)
{
    const s24i_modules_source source = {.folder = s24_checkpoint_folder(checkpoint),
                                        .width = s24i_pooled_width(t)};
    return t->pooled.more_modules ? s24i_modules_read(&t->modules, ctx, &source) : S24_OK;
}
