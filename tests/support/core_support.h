// SPDX-License-Identifier: Apache-2.0
/*
 * What the core's tests share: an allocator that counts and fails on demand, contexts on top of it,
 * and assertions about refusals, which must come with their sentence.
 */
#ifndef S24_TEST_CORE_SUPPORT_H
#define S24_TEST_CORE_SUPPORT_H

#include "sparse24/sparse24.h"
#include "support.h"

typedef struct heap {
    int64_t blocks, bytes; /* live; bytes goes wrong when a free names another size */
    int64_t calls;
    int64_t fail_at; /* the call that fails, counted from 1; 0: none */
} heap;

static inline void *heap_alloc(void *user, size_t bytes, size_t alignment)
{
    heap *h = user;
    if (++h->calls == h->fail_at) return NULL;
    h->blocks++;
    h->bytes += (int64_t)bytes;
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static inline void heap_free(void *user, void *memory, size_t bytes)
{
    heap *h = user;
    h->blocks--;
    h->bytes -= (int64_t)bytes;
    free(memory);
}

static inline s24_ctx *ctx_on(heap *h, int threads)
{
    s24_ctx *ctx;
    s24_ctx_opts opts = {
        .size = sizeof opts, .allocator = {heap_alloc, heap_free, h}, .threads = threads};
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    return ctx;
}

/* Ends the context; nothing it gave out may be left. */
static inline void ctx_off(heap *h, s24_ctx *ctx)
{
    s24_ctx_destroy(ctx);
    assert_int_equal(h->blocks, 0);
    assert_int_equal(h->bytes, 0);
}

#define assert_ok(ctx, call)                                                                       \
    do {                                                                                           \
        s24_status ok_status = (call);                                                             \
        if (ok_status != S24_OK)                                                                   \
            fail_msg("%s: %s (%s)", #call, s24_status_text(ok_status), s24_ctx_error(ctx));        \
    } while (0)

/* The call is refused with this status, and its sentence contains the words. */
#define assert_refused(ctx, expected, words, call)                                                 \
    do {                                                                                           \
        s24_status refused_status = (call);                                                        \
        if (refused_status != (expected) || !strstr(s24_ctx_error(ctx), words))                    \
            fail_msg("%s: %s (%s), expected %s (… %s …)", #call, s24_status_text(refused_status),  \
                     s24_ctx_error(ctx), s24_status_text(expected), words);                        \
    } while (0)

static const s24_dtype two_four_dtypes[] = {S24_F32, S24_F16, S24_BF16, S24_I8, S24_E4M3, S24_E5M2};
enum { TWO_FOUR_DTYPES = sizeof two_four_dtypes / sizeof *two_four_dtypes };

/* Random finite bits of a dtype, every exponent among them. */
static inline void random_element(void *to, s24_dtype dtype, uint64_t *seed)
{
    for (;;) {
        uint64_t bits = test_random(seed);
        float value;
        memcpy(to, &bits, s24_dtype_bytes(dtype));
        s24_convert(&value, S24_F32, to, dtype, 1);
        if (value - value == 0) return;
    }
}

/* A random dense matrix [rows, cols] of leading dimension ld; two_four: with 0 to 2 non-zeros a
   group. Gaps between the rows are filled with 0x5a. The caller frees it. */
static inline void *random_dense(s24_dtype dtype, int64_t rows, int64_t cols, int64_t ld,
                                 int two_four, uint64_t *seed)
{
    size_t bytes = s24_dtype_bytes(dtype);
    char *data = malloc((size_t)(rows * ld) * bytes);
    memset(data, 0x5a, (size_t)(rows * ld) * bytes);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < cols; c += 4) {
            static const unsigned masks[11] = {0, 1, 2, 4, 8, 3, 5, 9, 6, 10, 12};
            unsigned keep = two_four ? masks[test_random(seed) % 11] : 15;
            for (int i = 0; i < 4; i++) {
                char *at = data + (size_t)(r * ld + c + i) * bytes;
                memset(at, 0, bytes);
                if (keep >> i & 1) random_element(at, dtype, seed);
            }
        }
    }
    return data;
}

/* s24_matrix_create that must not fail. */
static inline s24_matrix *make(s24_ctx *ctx, const s24_dense *src, const s24_matrix_opts *opts)
{
    s24_matrix *w = NULL;
    assert_ok(ctx, s24_matrix_create(&w, ctx, src, opts));
    assert_non_null(w);
    return w;
}

/* Its dense form in f32; the caller frees it. */
static inline float *dense_of(s24_ctx *ctx, const s24_matrix *w)
{
    int64_t rows = s24_matrix_rows(w), cols = s24_matrix_cols(w);
    float *data = malloc((size_t)(rows * cols) * sizeof *data);
    s24_dense view = {data, S24_F32, rows, cols, 0};
    assert_ok(ctx, s24_matrix_to_dense(ctx, &view, w));
    return data;
}

#endif
