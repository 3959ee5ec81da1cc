// SPDX-License-Identifier: Apache-2.0
/*
 * Serves whoever has a context: memory, the last error, log and progress. A context belongs to one
 * thread at a time, so nothing in here locks.
 *
 * Every block carries its size in a header of one alignment unit, because the caller's free wants
 * the size back and s24_ctx_free does not know it.
 */
#include <stdio.h>
#include <string.h>

#include "base/base.h"

enum { ALIGNMENT = 64 };

void *s24i_alloc(const s24_allocator *allocator, size_t bytes)
{
    size_t total;
    if (__builtin_add_overflow(bytes, (size_t)ALIGNMENT, &total)) return NULL;
    char *block = allocator->alloc(allocator->user, total, ALIGNMENT);
    if (!block) return NULL;
    memcpy(block, &total, sizeof total);
    return block + ALIGNMENT;
}

void s24i_free(const s24_allocator *allocator, void *memory)
{
    size_t total;
    if (!memory) return;
    char *block = (char *)memory - ALIGNMENT;
    memcpy(&total, block, sizeof total);
    allocator->free(allocator->user, block, total);
}

const char *s24_ctx_error(const s24_ctx *ctx)
{
    return ctx ? ctx->error : "";
}

uint32_t s24_ctx_cpu(const s24_ctx *ctx)
{
    return ctx ? ctx->cpu : S24_CPU_BASELINE;
}

int s24_ctx_threads(const s24_ctx *ctx)
{
    return ctx ? ctx->threads : 1;
}

void *s24_ctx_alloc(s24_ctx *ctx, size_t bytes)
{
    return ctx ? s24i_alloc(&ctx->allocator, bytes) : NULL;
}

void s24_ctx_free(s24_ctx *ctx, void *memory)
{
    if (ctx) s24i_free(&ctx->allocator, memory);
}

void *s24i_ctx_scratch(s24_ctx *ctx, size_t bytes)
{
    if (bytes <= ctx->scratch_bytes && ctx->scratch) return ctx->scratch;
    s24i_free(&ctx->allocator, ctx->scratch);
    ctx->scratch = s24i_alloc(&ctx->allocator, bytes);
    ctx->scratch_bytes = ctx->scratch ? bytes : 0;
    return ctx->scratch;
}

s24_status s24_ctx_fail(s24_ctx *ctx, s24_status status, const char *format, ...)
{
    va_list args;
    if (!ctx) return status;
    /* An argument may be the previous sentence ("loading x: …"), so it is written aside first. */
    char sentence[sizeof ctx->error];
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    memcpy(ctx->error, sentence, sizeof sentence);
    return status;
}

void s24_ctx_log(s24_ctx *ctx, s24_log_level level, const char *format, ...)
{
    char text[512];
    va_list args;
    if (!ctx || !ctx->log) return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ctx->log(ctx->user, level, text);
}

s24_status s24_ctx_progress(s24_ctx *ctx, const char *stage, int64_t done, int64_t total)
{
    /* A region may run this on any of its threads. */
    if (!ctx || !ctx->progress || ctx->in_parallel) return S24_OK;
    if (!ctx->progress(ctx->user, stage, done, total)) return S24_OK;
    return s24_ctx_fail(ctx, S24_ERROR_INTERRUPTED, "stopped while %s, at %lld of %lld", stage,
                        (long long)done, (long long)total);
}
