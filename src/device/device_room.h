// SPDX-License-Identifier: Apache-2.0
/* What the files of devices share: the inside of a device and of a weight there. */
#ifndef S24_DEVICE_DEVICE_ROOM_H
#define S24_DEVICE_DEVICE_ROOM_H

#include "base/note_list.h"
#include "device/device_table.h"
#include "op/op.h"
#include "sparse24/device.h"

/* A measured tile: its index, for a shape. */
typedef struct s24i_device_choice {
    int64_t shape[4]; /* dtype, m, k, n */
    int tile;
} s24i_device_choice;

struct s24_device {
    s24_allocator allocator; /* of the handle */
    s24_device_allocator memory;
    void *library;
    const s24i_device_table *table;
    s24i_device *gpu;
    int index;                   /* of the GPU */
    int vendor;                  /* products by cuSPARSELt */
    s24i_device_choice *choices; /* sorted */
    int64_t choice_count;
    s24i_note *notes;
};

static inline int s24i_select_is_tile(s24_select select)
{
    return select >= S24_SELECT_TILE_BEST && select <= S24_SELECT_TILE_CAUSAL1122;
}

/* What a packing job found in src [n, k], as a status. */
s24_status s24i_device_judge(s24_ctx *ctx, const s24i_device_report *found, int64_t k,
                             s24_dtype dtype, int allow_nonfinite);

/* A failed call of the table, its sentence into the context. */
s24_status s24i_device_status(s24_ctx *ctx, s24_status status, const s24i_device_error *error);
/* Memory of the device's allocator; the sentence says what it was for. */
s24_status s24i_device_alloc(void **out, s24_ctx *ctx, s24_device *device, size_t bytes,
                             void *stream, const char *purpose);
void s24i_device_release(s24_device *device, void *memory, void *stream);

/* An operand of a product; the copy engine moves 16 bytes at least. */
s24_status s24i_device_operand(s24_ctx *ctx, const char *name, const s24_dense *d, s24_dtype dtype,
                               int64_t rows, int64_t cols);
/* What a product does to its sums: the activation, and where bias and scales are. */
s24_status s24i_device_terms(s24_ctx *ctx, const s24_device_linear_args *args);

/* The caller's struct in this version's shape; inside a function that has ctx and device. */
#define READ_ARGS(known, args, name)                                                               \
    do {                                                                                           \
        if (!ctx) return S24_ERROR_ARGUMENT;                                                       \
        REQUIRE(ctx, device && (args), S24_ERROR_ARGUMENT, "%s is NULL",                           \
                device ? "args" : "device");                                                       \
        TRY(s24i_opts_read(ctx, &(known), sizeof(known), args, name));                             \
    } while (0)

#endif
