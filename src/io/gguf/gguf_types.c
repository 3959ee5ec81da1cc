// SPDX-License-Identifier: Apache-2.0
/*
 * Elements of GGUF's tensors as f32: floats as they are, and blocks of 32 of a row that share a
 * scale. A block's element is exact in f32 but for the rounding of scale · integer + offset.
 */
#include <string.h>

#include "io/gguf/gguf.h"

enum {
    BLOCK = 32,
    HALF = BLOCK / 2,
    TOGETHER = 64 /* blocks whose scales are converted at once */
};

/* 4 bits each: the first half of a block in the low ones. */
static void take_q4_0(float *out, const uint8_t *bits, const float *reals)
{
    for (int i = 0; i < HALF; i++) {
        out[i] = (float)((bits[i] & 15) - 8) * reals[0];
        out[HALF + i] = (float)((bits[i] >> 4) - 8) * reals[0];
    }
}

static void take_q4_1(float *out, const uint8_t *bits, const float *reals)
{
    for (int i = 0; i < HALF; i++) {
        out[i] = (float)(bits[i] & 15) * reals[0] + reals[1];
        out[HALF + i] = (float)(bits[i] >> 4) * reals[0] + reals[1];
    }
}

static void take_q8_0(float *out, const uint8_t *bits, const float *reals)
{
    for (int i = 0; i < BLOCK; i++)
        out[i] = (float)(int8_t)bits[i] * reals[0];
}

typedef struct layout {
    uint32_t number;
    const char *name;
    s24_dtype dtype; /* NONE: blocks */
    size_t bytes, reals;
    void (*take)(float *out, const uint8_t *bits, const float *reals);
} layout;

#define FLOATS(number, name, dtype)              {number, name, dtype, 0, 0, NULL},
#define BLOCKS(number, name, bytes, reals, take) {number, name, S24_DTYPE_NONE, bytes, reals, take},
#define OTHER(number, name)                      {number, name, S24_DTYPE_NONE, 0, 0, NULL},
static const layout types[] = {
#include "io/gguf/gguf_types.def"
};
#undef FLOATS
#undef BLOCKS
#undef OTHER
enum { TYPES = (int)(sizeof types / sizeof *types) };

int s24i_gguf_type(uint32_t number)
{
    for (int i = 0; i < TYPES; i++)
        if (types[i].number == number) return i;
    return -1;
}

int s24i_gguf_type_is_read(int type)
{
    return types[type].dtype != S24_DTYPE_NONE || types[type].take;
}

const char *s24i_gguf_type_name(int type)
{
    return types[type].name;
}

const char *s24i_gguf_type_list(void)
{
#define FLOATS(number, name, dtype)              " " name
#define BLOCKS(number, name, bytes, reals, take) " " name
#define OTHER(number, name)
    static const char list[] =
#include "io/gguf/gguf_types.def"
        "";
#undef FLOATS
#undef BLOCKS
#undef OTHER
    return list + 1;
}

s24_dtype s24i_gguf_type_dtype(int type)
{
    return types[type].dtype;
}

size_t s24i_gguf_row_bytes(int type, int64_t elements)
{
    const s24_dtype dtype = types[type].dtype;
    if (dtype != S24_DTYPE_NONE) return (size_t)elements * s24_dtype_bytes(dtype);
    return elements % BLOCK ? 0 : (size_t)(elements / BLOCK) * types[type].bytes;
}

/* Up to TOGETHER blocks. */
static s24_status take_blocks(float *out, const layout *t, const uint8_t *blocks, int64_t count)
{
    uint16_t halves[2 * TOGETHER];
    float reals[2 * TOGETHER];
    for (int64_t i = 0; i < count; i++)
        memcpy(halves + (size_t)i * t->reals, blocks + (size_t)i * t->bytes, 2 * t->reals);
    TRY(s24_convert(reals, S24_F32, halves, S24_F16, count * (int64_t)t->reals));
    for (int64_t i = 0; i < count; i++)
        t->take(out + i * BLOCK, blocks + (size_t)i * t->bytes + 2 * t->reals,
                reals + (size_t)i * t->reals);
    return S24_OK;
}

s24_status s24i_gguf_row(float *out, int type, const uint8_t *row, int64_t elements)
{
    const layout *t = &types[type];
    if (t->dtype != S24_DTYPE_NONE) return s24_convert(out, S24_F32, row, t->dtype, elements);
    for (int64_t i = 0; i < elements / BLOCK; i += TOGETHER)
        TRY(take_blocks(out + i * BLOCK, t, row + (size_t)i * t->bytes,
                        s24i_min(TOGETHER, elements / BLOCK - i)));
    return S24_OK;
}
