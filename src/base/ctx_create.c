// SPDX-License-Identifier: Apache-2.0
/*
 * Makes and ends contexts: reads their options, and has what belongs to them (threads, notes,
 * memory) made and released.
 */
#define _GNU_SOURCE /* posix_memalign, madvise */
#include <stdlib.h>
#include <sys/mman.h>

#include "base/note_list.h"
#include "base/team.h"

enum { HUGE_PAGE = 2 << 20 };

/* Allocates in huge pages. Weights are read once per call and are larger than what a TLB reaches in
   pages of 4 KiB: where the system gives larger ones to who asks, a token's product with 499 MB
   takes a seventh less. The end that does not fill one stays in small pages, so that nothing is
   paid for in memory. */
static void *default_alloc(void *user, size_t bytes, size_t alignment)
{
    void *memory = NULL;
    (void)user;
    if (bytes > PTRDIFF_MAX) return NULL; /* more than anything has; sanitizers stop at it */
    if (posix_memalign(&memory, bytes < HUGE_PAGE ? alignment : HUGE_PAGE, bytes)) return NULL;
#ifdef MADV_HUGEPAGE
    if (bytes >= HUGE_PAGE) (void)madvise(memory, bytes & ~(size_t)(HUGE_PAGE - 1), MADV_HUGEPAGE);
#endif
    return memory;
}

static void default_free(void *user, void *memory, size_t bytes)
{
    (void)user;
    (void)bytes;
    free(memory);
}

/* Judges options in constant sentences: there is no context that could hold others. */
static const char *opts_error(s24_ctx_opts *known, const s24_ctx_opts *opts)
{
    _Static_assert(S24I_MAX_THREADS == 1024, "the sentence says so");
    if (s24i_opts_read(NULL, known, sizeof *known, opts, "s24_ctx_opts") != S24_OK)
        return opts->size < sizeof opts->size
                   ? "s24_ctx_opts.size is not set; sizeof(s24_ctx_opts) is expected"
                   : "s24_ctx_opts sets an option that this older library does not know";
    if (known->threads < 0 || known->threads > S24I_MAX_THREADS)
        return "s24_ctx_opts.threads is not 0 to 1024";
    if (!known->allocator.alloc != !known->allocator.free)
        return "s24_ctx_opts.allocator has one of alloc and free; both or neither are expected";
    return "";
}

const char *s24_ctx_opts_error(const s24_ctx_opts *opts)
{
    s24_ctx_opts known;
    return opts_error(&known, opts);
}

s24_status s24_ctx_create(s24_ctx **out, const s24_ctx_opts *opts)
{
    s24_ctx_opts known;
    if (!out) return S24_ERROR_ARGUMENT;
    *out = NULL;
    if (*opts_error(&known, opts)) return S24_ERROR_ARGUMENT;
    if (!known.allocator.alloc)
        known.allocator = (s24_allocator){default_alloc, default_free, NULL};
    s24_ctx *ctx = s24i_alloc(&known.allocator, sizeof *ctx);
    if (!ctx) return S24_ERROR_MEMORY;
    *ctx = (s24_ctx){
        .allocator = known.allocator,
        .log = known.log,
        .progress = known.progress,
        .user = known.user,
        .cpu = s24_cpu_detect(),
    };
    const uint32_t kept = S24_CPU_BASELINE | S24_CPU_PORT5 | S24_CPU_HALVES;
    if (known.cpu_mask) ctx->cpu &= known.cpu_mask | kept;
    s24_ctx_set_threads(ctx, known.threads);
    *out = ctx;
    return S24_OK;
}

void s24_ctx_destroy(s24_ctx *ctx)
{
    if (!ctx) return;
    s24_allocator allocator = ctx->allocator;
    s24i_team_destroy(ctx->team);
    s24i_notes_free(ctx->notes, &allocator);
    s24i_free(&allocator, ctx->scratch);
    s24i_free(&allocator, ctx);
}
