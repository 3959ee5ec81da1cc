// SPDX-License-Identifier: Apache-2.0
/*
 * What every room of both libraries uses: error macros, the reader of option structs, small
 * arithmetic. Code alone, on the public header: the rooms of libsparse24-nn include this file of
 * base and tiles.h, and no other.
 */
#ifndef S24_BASE_TRY_H
#define S24_BASE_TRY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "sparse24/sparse24.h"

/* Return the status of a failing call; inside a function with a `done:` label use TRY_DONE. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        s24_status try_status = (call);                                                            \
        if (try_status != S24_OK) return try_status;                                               \
    } while (0)
#define TRY_DONE(call)                                                                             \
    do {                                                                                           \
        status = (call);                                                                           \
        if (status != S24_OK) goto done;                                                           \
    } while (0)
/* Ends a function that makes something: gives it where the last step succeeds, else destroys it. */
#define GIVE(out, made, destroy, call)                                                             \
    do {                                                                                           \
        const s24_status give_status = (call);                                                     \
        if (give_status == S24_OK)                                                                 \
            *(out) = (made);                                                                       \
        else                                                                                       \
            destroy(made);                                                                         \
        return give_status;                                                                        \
    } while (0)
/* Refuse with a sentence unless the condition holds. */
#define REQUIRE(ctx, condition, status, ...)                                                       \
    do {                                                                                           \
        if (!(condition)) return s24_ctx_fail(ctx, status, __VA_ARGS__);                           \
    } while (0)

static inline int64_t s24i_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t s24i_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
/* a rounded up to a multiple of b. */
static inline int64_t s24i_round_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b * b;
}
static inline int64_t s24i_ld(const s24_dense *x)
{
    return x->ld ? x->ld : x->cols;
}

/* Seconds of a clock that only runs forward. */
static inline double s24i_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/*
 * Reads an option struct of the caller into `known`, this library's own version of it (`bytes`
 * large): fields that the caller's version lacks become zero, ones that only a newer version has
 * must be zero. NULL gives all defaults. known's own size is filled in. Refuses with a sentence
 * that names the struct: ARGUMENT.
 */
static inline s24_status s24i_opts_read(s24_ctx *ctx, void *known, size_t bytes, const void *given,
                                        const char *name)
{
    size_t size = bytes;
    memset(known, 0, bytes);
    if (given) memcpy(&size, given, sizeof size);
    REQUIRE(ctx, size >= sizeof size, S24_ERROR_ARGUMENT,
            "%s.size is %zu; expected sizeof(%s) = %zu", name, size, name, bytes);
    for (size_t i = bytes; i < size; i++)
        REQUIRE(
            ctx, ((const char *)given)[i] == 0, S24_ERROR_ARGUMENT,
            "%s.size is %zu, newer than this library's %zu, and sets an option it does not know",
            name, size, bytes);
    if (given) memcpy(known, given, size < bytes ? size : bytes);
    memcpy(known, &bytes, sizeof bytes);
    return S24_OK;
}

#endif
