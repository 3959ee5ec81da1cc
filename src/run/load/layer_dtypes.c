// SPDX-License-Identifier: Apache-2.0
/* Dtypes by layer, "GLOB=NAME,GLOB=NAME": which layers of a model run in 8 bits and which not. */
#include "run/load/layer_dtypes.h"

#include <string.h>

enum { MOST_GLOB = 256 };

/* One element: the dtype it names, NONE: it is none; its glob in `glob`. */
static s24_dtype element_of(char glob[MOST_GLOB], const char *text, size_t bytes)
{
    char name[8] = "";
    const char *equals = memchr(text, '=', bytes);
    const size_t first = equals ? (size_t)(equals - text) : 0;
    if (!first || first >= MOST_GLOB || bytes - first - 1 >= sizeof name) return S24_DTYPE_NONE;
    memcpy(glob, text, first);
    glob[first] = '\0';
    memcpy(name, equals + 1, bytes - first - 1);
    const s24_dtype dtype = s24_dtype_parse(name);
    return dtype == S24_I8 || dtype == S24_E4M3 || dtype == S24_BF16 ? dtype : S24_DTYPE_NONE;
}

s24_status s24i_layer_dtypes_read(s24_model_opts *opts, s24_ctx *ctx)
{
    const char *text = opts->layer_dtypes;
    char glob[MOST_GLOB];
    if (!text) return S24_OK;
    REQUIRE(ctx, !opts->dtype && !opts->quantize, S24_ERROR_ARGUMENT,
            "the options layer_dtypes and %s of a model exclude each other",
            opts->dtype ? "dtype" : "quantize");
    for (const char *at = text; *at;) {
        const size_t bytes = strcspn(at, ",");
        const s24_dtype dtype = element_of(glob, at, bytes);
        REQUIRE(ctx, dtype, S24_ERROR_ARGUMENT,
                "dtypes by layer: '%.*s' is no GLOB=NAME with i8, e4m3 or bf16 as its name",
                (int)bytes, at);
        REQUIRE(ctx, dtype == S24_BF16 || !opts->dtype || opts->dtype == dtype,
                S24_ERROR_UNSUPPORTED,
                "dtypes by layer: '%s' is %s after %s; a model has one dtype of 8 bits", glob,
                s24_dtype_name(dtype), s24_dtype_name(opts->dtype));
        if (dtype != S24_BF16) opts->dtype = dtype;
        at += bytes + (at[bytes] == ',');
    }
    REQUIRE(ctx, opts->dtype, S24_ERROR_ARGUMENT,
            "dtypes by layer: '%s' names no layer for i8 or e4m3", text);
    return S24_OK;
}

int s24i_layer_is_wide(const s24_model_opts *opts, const s24_tensor *tensor)
{
    char glob[MOST_GLOB];
    int wide = opts->layer_dtypes != NULL;
    for (const char *at = wide ? opts->layer_dtypes : ""; *at;) {
        const size_t bytes = strcspn(at, ",");
        const s24_dtype dtype = element_of(glob, at, bytes);
        if (s24_tensor_is_selected(tensor, glob, NULL)) wide = dtype == S24_BF16;
        at += bytes + (at[bytes] == ',');
    }
    return wide;
}
