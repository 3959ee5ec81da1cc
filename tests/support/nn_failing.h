// SPDX-License-Identifier: Apache-2.0
/*
 * Runs a piece of work in contexts whose allocator fails at the first, second, third … call, until
 * it succeeds: every failure must end in S24_ERROR_MEMORY and give all memory back.
 */
#ifndef S24_TEST_NN_FAILING_H
#define S24_TEST_NN_FAILING_H

#include "sparse24/sparse24.h"
#include "support.h"

typedef struct failing {
    int left; /* calls that still succeed */
    long long bytes;
} failing;

static inline void *failing_alloc(void *user, size_t bytes, size_t alignment)
{
    failing *f = user;
    if (f->left-- <= 0) return NULL;
    void *memory = NULL;
    if (posix_memalign(&memory, alignment, bytes ? bytes : 1)) return NULL;
    f->bytes += (long long)bytes;
    return memory;
}

static inline void failing_free(void *user, void *memory, size_t bytes)
{
    if (memory) ((failing *)user)->bytes -= (long long)bytes;
    free(memory);
}

/* How often the work failed before it succeeded. */
static inline int count_failures(s24_status (*work)(s24_ctx *ctx))
{
    for (int n = 0; n < 10000; n++) {
        failing f = {.left = n};
        const s24_ctx_opts opts = {
            .size = sizeof opts, .allocator = {failing_alloc, failing_free, &f}, .threads = 1};
        s24_ctx *ctx;
        s24_status status = s24_ctx_create(&ctx, &opts);
        if (status == S24_OK) {
            status = work(ctx);
            if (status != S24_OK && status != S24_ERROR_MEMORY)
                fail_msg("failure %d: status %d, %s", n, (int)status, s24_ctx_error(ctx));
            s24_ctx_destroy(ctx);
        }
        assert_int_equal(f.bytes, 0);
        if (status == S24_OK) return n;
    }
    fail_msg("the work never succeeded");
    return -1;
}

#endif
