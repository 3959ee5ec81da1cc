// SPDX-License-Identifier: Apache-2.0
/* What a model of images has made of its tensors once all are read: rows of positions with all that
   is added to a token, the layer of patches, and what a head that pools multiplies tokens with. */
#include <math.h>
#include <string.h>

#include "model/model.h"

/* ---- positions ------------------------------------------------------------------------------- */

/* Keys' cubic convolution (1981): the share of what lies `apart` rows away. */
static double cubic(double apart, double a)
{
    const double x = fabs(apart);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((x - 5) * x + 8) * x * a - 4 * a : 0;
}

/* shares [to, from] of a line of `from` places in one of `to`, as PyTorch interpolates: places past
   the ends are the ends. */
static void interpolate_line(float *shares, int64_t to, int64_t from)
{
    const double scale = (double)from / (double)to;
    memset(shares, 0, (size_t)(to * from) * sizeof *shares);
    for (int64_t i = 0; i < to; i++) {
        const double at = ((double)i + 0.5) * scale - 0.5, first = floor(at) - 1;
        for (int64_t tap = 0; tap < 4; tap++) {
            const double place = first + (double)tap;
            const int64_t j = s24i_min(s24i_max((int64_t)place, 0), from - 1);
            shares[i * from + j] += (float)cubic(at - place, -0.75);
        }
    }
}

/* The same against steps where places become fewer: each is of all that lie there. */
static void average_line(float *shares, int64_t to, int64_t from)
{
    const double scale = (double)from / (double)to, wide = scale > 1 ? scale : 1;
    memset(shares, 0, (size_t)(to * from) * sizeof *shares);
    for (int64_t i = 0; i < to; i++) {
        const double at = ((double)i + 0.5) * scale;
        double sum = 0;
        const int64_t first = s24i_max((int64_t)(at - 2 * wide + 0.5), 0);
        const int64_t end = s24i_min((int64_t)(at + 2 * wide + 0.5), from);
        for (int64_t j = first; j < end; j++)
            sum += cubic(((double)j + 0.5 - at) / wide, -0.5);
        for (int64_t j = first; j < end; j++)
            shares[i * from + j] = (float)(cubic(((double)j + 0.5 - at) / wide, -0.5) / sum);
    }
}

/* Lines of rows of positions, and what makes shorter or longer ones of them. */
typedef struct interpolation {
    float *shares; /* [to, from] */
    int64_t to, from, width;
} interpolation;

/* to [n, width] = shares of rows that stand `apart` rows from each other. */
static void add_shares(float *to, const interpolation *of, const float *rows, int64_t apart)
{
    memset(to, 0, (size_t)(of->to * of->width) * sizeof *to);
    for (int64_t i = 0; i < of->to; i++)
        for (int64_t j = 0; j < of->from; j++) {
            const float share = of->shares[i * of->from + j];
            for (int64_t c = 0; c < of->width && share != 0.0f; c++)
                to[i * of->width + c] += share * rows[j * apart * of->width + c];
        }
}

/* to [side², width] from a table [from², width]. */
static s24_status interpolate(float *to, const s24_model *model, const float *table)
{
    const s24i_shape *s = &model->shape;
    const int64_t side = s->image / s->patch, from = s->table_side, width = s->width;
    s24_ctx *ctx = model->ctx;
    interpolation of = {NULL, side, from, width};
    float *lines = NULL;
    TRY(s24i_alloc_elems(&of.shares, ctx, side * from, sizeof *of.shares, "shares of positions"));
    s24_status status =
        s24i_alloc_elems(&lines, ctx, (side + 1) * from * width, sizeof *lines, "positions");
    float *column = lines ? lines + side * from * width : NULL;
    (model->architecture->antialiases ? average_line : interpolate_line)(of.shares, side, from);
    for (int64_t y = 0; y < from && status == S24_OK; y++)
        add_shares(lines + y * side * width, &of, table + y * from * width, 1);
    for (int64_t x = 0; x < side && status == S24_OK; x++) {
        add_shares(column, &of, lines + x * width, side);
        for (int64_t y = 0; y < side; y++)
            memcpy(to + (y * side + x) * width, column + y * width, (size_t)width * sizeof *to);
    }
    s24_ctx_free(ctx, of.shares);
    s24_ctx_free(ctx, lines);
    return status;
}

/* The table's rows where the model's tokens stand. */
static s24_status place(s24_model *model, const float *table)
{
    const s24i_shape *s = &model->shape;
    const s24i_architecture *a = model->architecture;
    const int64_t width = s->width, first = model->patch_map.first;
    const int64_t placed = s24i_table_rows(a, s) - s->table_side * s->table_side;
    const int64_t patches = s->positions - first;
    float *rows = s24i_writable(model->position_rows);
    memset(rows, 0, (size_t)(first * width) * sizeof *rows);
    memcpy(rows, table, (size_t)(placed * width) * sizeof *rows);
    table += placed * width;
    rows += first * width;
    if (patches != s->table_side * s->table_side) return interpolate(rows, model, table);
    memcpy(rows, table, (size_t)(patches * width) * sizeof *rows);
    return S24_OK;
}

/* The bias is every patch's, a token before them has one position only. */
static void fold_into_positions(s24_model *model)
{
    const int64_t width = model->shape.width, before = model->patch_map.first;
    float *rows = s24i_writable(model->position_rows);
    for (int64_t t = 0; t < model->shape.positions; t++) {
        const int64_t more = t - (model->first_token != NULL);
        const float *own = t >= before ? model->patch_bias
                           : more < 0  ? model->first_token
                                       : model->more_tokens + more * width;
        for (int64_t i = 0; i < width; i++)
            rows[t * width + i] += own[i];
    }
}

s24_status s24i_patches_build(s24_model *model, s24_ctx *ctx, const float *weight,
                              const float *table)
{
    const s24i_patches *p = &model->patch_map;
    const int64_t width = model->shape.width, used = p->channels * p->patch * p->patch;
    float *rows;
    if (table)
        TRY(place(model, table));
    else if (!model->architecture->positions)
        memset(s24i_writable(model->position_rows), 0,
               (size_t)(model->shape.positions * width) * sizeof *rows);
    fold_into_positions(model);
    TRY(s24i_alloc_elems(&rows, ctx, width * p->row, sizeof *rows, "the patches' layer"));
    memset(rows, 0, (size_t)(width * p->row) * sizeof *rows);
    for (int64_t r = 0; r < width; r++)
        memcpy(rows + r * p->row, weight + r * used, (size_t)used * sizeof *rows);
    const s24_dense dense = {rows, S24_F32, width, p->row, 0};
    const s24_status status = s24i_exact_build(&model->patches, model, ctx, &dense);
    s24_ctx_free(ctx, rows);
    return status;
}

/* ---- a head that pools ----------------------------------------------------------------------- */

void s24i_probe_build(s24_model *model)
{
    const s24i_shape *s = &model->shape;
    const int64_t width = s->width, d = width / s->heads;
    const float *weight = model->probe[S24I_PROBE_IN], *bias = model->probe[S24I_PROBE_IN_BIAS];
    float *keys = s24i_writable(model->probe_keys);
    if (!s->probes) return;
    /* The query is the same for every image: what it gives with a token's key is one product with
       the token. The key's bias is all tokens' alike, and softmax takes it out. */
    memset(keys, 0, (size_t)(s->heads * width) * sizeof *keys);
    for (int64_t r = 0; r < width; r++) {
        double query = (double)bias[r];
        for (int64_t i = 0; i < width; i++)
            query += (double)(model->probe[S24I_PROBE][i] * weight[r * width + i]);
        const float scaled = (float)(query / sqrt((double)d));
        for (int64_t i = 0; i < width; i++)
            keys[r / d * width + i] += scaled * weight[(width + r) * width + i];
    }
}
