// SPDX-License-Identifier: Apache-2.0
/* Checked allocation, and sentences that name their tensor. */
#include "nn/util.h"

#include <string.h>

s24_status s24i_alloc_elems(void *out, s24_ctx *ctx, int64_t count, size_t size, const char *what)
{
    size_t bytes;
    void *memory = NULL;
    if (count >= 0 && !__builtin_mul_overflow((size_t)count, size, &bytes))
        memory = s24_ctx_alloc(ctx, bytes ? bytes : 1);
    memcpy(out, &memory, sizeof memory);
    if (memory) return S24_OK;
    return s24_ctx_fail(ctx, S24_ERROR_MEMORY, "out of memory: %s (%lld × %zu bytes)", what,
                        (long long)count, size);
}

s24_status s24i_name_tensor(s24_ctx *ctx, s24_status status, const s24_tensor *tensor)
{
    if (status == S24_OK || status == S24_ERROR_INTERRUPTED) return status;
    return s24_ctx_fail(ctx, status, "%s: tensor '%s': %s", tensor->file,
                        s24i_show(tensor->name).text, s24_ctx_error(ctx));
}
