// SPDX-License-Identifier: Apache-2.0
/*
 * The C library's own allocator is counted, whoever calls it: a pass through 2:4 layers calls it
 * not once, from the first on.
 */
#include "support.h"

#include "nn_load.h"

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COUNTS 1
#else
#define COUNTS 0
#endif

#if COUNTS
/* A program's own functions of these names are everyone's in it. Other threads count for
   themselves. */
static _Thread_local int64_t calls;
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);

void *malloc(size_t bytes)
{
    calls++;
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    calls++;
    return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    calls++;
    return __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    calls++;
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    calls++;
    *memory = __libc_memalign(alignment, bytes);
    return *memory ? 0 : 12; /* ENOMEM */
}
#else
static int64_t calls;
#endif

static void check(const char *preset, s24_dtype dtype)
{
    enum { TEXTS = 2, TOKENS = 300, WIDTH = 128 };
    s24_ctx *ctx;
    s24_model *model;
    s24_session *session;
    static int32_t ids[TEXTS * TOKENS];
    float embeddings[TEXTS * WIDTH];
    const int64_t offsets[] = {0, 7, TEXTS * TOKENS / 2};
    const s24_ctx_opts as = {.size = sizeof as, .threads = 1};
    const s24_model_opts opts = {.size = sizeof opts, .sparse = 1, .dtype = dtype, .all_sparse = 1};
    for (int i = 0; i < TEXTS * TOKENS; i++)
        ids[i] = i * 37 % 1000;
    assert_int_equal(s24_ctx_create(&ctx, &as), S24_OK);
    OK(ctx, s24_model_preset(&model, ctx, preset, &opts));
    OK(ctx, s24_session_create(&session, ctx, model, TEXTS * TOKENS));
    const s24_outputs outputs = {.embeddings = embeddings};
    for (int texts = 1; texts <= TEXTS; texts++) {
        const s24_batch batch = {texts, offsets, ids, NULL, NULL, NULL};
        const int64_t before = calls;
        const s24_status status = s24_session_forward(session, ctx, &batch, &outputs);
        const int64_t after = calls;
        assert_int_equal(status, S24_OK);
        if (after != before)
            fail_msg("%s in %s, %d texts: %d calls of malloc and its like", preset,
                     s24_dtype_name(dtype), texts, (int)(after - before));
    }
    s24_session_destroy(session);
    s24_model_destroy(model);
    s24_ctx_destroy(ctx);
}

static void passes_call_no_malloc(void **state)
{
    (void)state;
    if (!COUNTS) {
        print_message("skipped: a sanitizer or another C library has the allocator\n");
        skip();
    }
    void *probe = malloc(64);
    assert_int_not_equal(calls, 0); /* it is ours that is called */
    free(probe);
    const s24_dtype dtypes[] = {S24_F32, S24_BF16, S24_I8};
    static const char *const presets[] = {"bert-tiny", "gpt2-tiny", "llama-tiny"};
    for (int d = 0; d < 9; d++)
        check(presets[d / 3], dtypes[d % 3]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(passes_call_no_malloc)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
