// SPDX-License-Identifier: Apache-2.0
#include "model/parts.h"

static const char *const names[S24I_PARTS] = {
    [S24I_PART_SCALE] = "scale of attention's scores other than by their heads' width"};

unsigned s24i_parts_of(const s24i_architecture *architecture, const s24i_shape *shape)
{
    const int has[S24I_PARTS] = {[S24I_PART_SCALE] =
                                     shape->score_scale > 0.0f || shape->scaled_by_block};
    unsigned parts = 0;
    (void)architecture;
    for (int i = 0; i < S24I_PARTS; i++)
        if (has[i]) parts |= 1u << i;
    return parts;
}

s24_status s24i_parts_require(s24_ctx *ctx, const s24i_architecture *architecture,
                              const s24i_shape *shape, unsigned has, const char *who)
{
    const unsigned lacks = s24i_parts_of(architecture, shape) & ~has;
    for (int i = 0; i < S24I_PARTS; i++)
        REQUIRE(ctx, !(lacks >> i & 1), S24_ERROR_UNSUPPORTED, "%s has no %s, which this %s needs",
                who, names[i], architecture->model_type);
    return S24_OK;
}
