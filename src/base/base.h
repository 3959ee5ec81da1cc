// SPDX-License-Identifier: Apache-2.0
/*
 * What every room shares: the context's inside, checked sizes, float conversions
 * and the counter-based random numbers. Private to libsparse24.
 */
#ifndef S24_BASE_BASE_H
#define S24_BASE_BASE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "base/try.h"

/* Files are little-endian and are used where they are mapped. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "sparse24 needs a little-endian machine");

enum { S24I_MAX_THREADS = 1024 };

struct s24i_team;

struct s24_ctx {
    s24_allocator allocator;
    void (*log)(void *user, s24_log_level level, const char *text);
    int (*progress)(void *user, const char *stage, int64_t done, int64_t total);
    void *user;
    int threads;
    struct s24i_team *team; /* made when a loop first needs it */
    int in_parallel;        /* a region of s24_ctx_parallel_for is running */
    uint32_t cpu;
    void *scratch; /* grows, never shrinks: work memory of the simple products */
    size_t scratch_bytes;
    struct s24i_note *notes; /* base/note_list.h */
    char error[2048];
};

/* Memory of an allocator that objects outliving their context keep a copy of: 64-byte aligned,
   NULL when it fails. Freeing NULL is fine. */
void *s24i_alloc(const s24_allocator *allocator, size_t bytes);
void s24i_free(const s24_allocator *allocator, void *memory);

/* The context's scratch, at least bytes large, 64-byte aligned; NULL when memory is out. */
void *s24i_ctx_scratch(s24_ctx *ctx, size_t bytes);

/* *out = a·b (a + b) unless it overflows; 1 if it does. */
static inline int s24i_mul_overflow(size_t a, size_t b, size_t *out)
{
    return __builtin_mul_overflow(a, b, out);
}

/* Exact scalar conversions; the float → narrow ones round to nearest even. */
float s24i_f16_to_f32(uint16_t bits);
uint16_t s24i_f32_to_f16(float value);
static inline float s24i_bf16_to_f32(uint16_t bits)
{
    union {
        uint32_t u;
        float f;
    } v = {(uint32_t)bits << 16};
    return v.f;
}
uint16_t s24i_f32_to_bf16(float value);
float s24i_e4m3_to_f32(uint8_t bits);
uint8_t s24i_f32_to_e4m3(float value);
float s24i_e5m2_to_f32(uint8_t bits);
uint8_t s24i_f32_to_e5m2(float value);
int8_t s24i_f32_to_i8(float value);
/* Element i of an array of any dtype that can be 2:4, as f32 (exact). */
float s24i_load_f32(const void *data, s24_dtype dtype, int64_t i);
void s24i_store_f32(void *data, s24_dtype dtype, int64_t i, float value);
/* Whole arrays of such a dtype to and from f32. */
void s24i_widen(float *dst, const void *src, s24_dtype dtype, int64_t count);
void s24i_narrow(void *dst, s24_dtype dtype, const float *src, int64_t count);

#endif
