// SPDX-License-Identifier: Apache-2.0
/*
 * s24_gguf_convert: a GGUF file into a Hugging Face folder. The file stays mapped, and one tensor
 * is in memory at a time. What must stay true: the folder's names and orders are those of its
 * model type, whatever GGUF's are.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "io/gguf/gguf.h"

/* Rows of floats that one is converted by. */
enum { ROOM = 4 };

/* One tensor on its way. */
typedef struct job {
    const s24i_gguf *g;
    const s24i_gguf_model *model;
    s24_writer *writer;
    const s24i_gguf_tensor *tensor;
    s24i_gguf_place place;
    s24i_gguf_tensor part; /* of experts: one's matrix, which tensor is then */
    const uint8_t *with;   /* data of the tensor whose outputs join its own; or NULL */
    char name[128];        /* in the folder */
    int64_t rows, cols;
    s24_dtype dtype;
} job;

static int is_turned(const job *j)
{
    return j->place.how == S24I_GGUF_TURNED;
}

static s24_tensor stored(const job *j)
{
    const s24i_gguf_tensor *t = j->tensor;
    s24_tensor out = {.name = j->name, .dtype = j->dtype, .rank = t->rank};
    for (int i = 0; i < t->rank; i++)
        out.shape[i] = t->shape[is_turned(j) ? 1 - i : i];
    if (j->place.how == S24I_GGUF_KEYS) {
        out.rank = 2;
        out.shape[0] = t->shape[0] * (t->shape[2] + j->place.with->shape[1]);
        return out;
    }
    if (j->with) out.shape[j->place.along ? t->rank - 1 : 0] *= 2;
    if (j->place.how != S24I_GGUF_ONE_ROW || t->rank != 1) return out;
    out.rank = 2;
    out.shape[1] = out.shape[0];
    out.shape[0] = 1;
    return out;
}

/* The folder's place of one of `count` rows of heads: pairs of a head are put apart, or parts of
   all heads together. */
static int64_t head_place(const job *j, int64_t row, int64_t count)
{
    const int64_t head = count / j->place.heads, in = row % head, h = row / head;
    if (j->place.how != S24I_GGUF_BY_HEADS) return row - in + in % 2 * (head / 2) + in / 2;
    return (h % (j->place.heads / 3) * 3 + h / (j->place.heads / 3)) * head + in;
}

/* Where an element is stored. */
static int64_t place_of(const job *j, int64_t row, int64_t col)
{
    if (is_turned(j)) return col * j->rows + row;
    if (j->place.heads && j->tensor->rank == 1) return head_place(j, col, j->cols);
    if (j->place.heads) row = head_place(j, row, j->rows);
    return row * j->cols + col;
}

/* Takes a row as f32 to where it belongs, by way of `given` if it does not stay together. */
static s24_status put_row(const job *j, uint8_t *out, const float *row, uint8_t *given,
                          int64_t number)
{
    const size_t size = s24_dtype_bytes(j->dtype);
    const int stays = !is_turned(j) && !(j->place.heads && j->tensor->rank == 1);
    uint8_t *at = stays ? out + (size_t)place_of(j, number, 0) * size : given;
    TRY(s24_convert(at, j->dtype, row, S24_F32, j->cols));
    for (int64_t c = 0; c < j->cols && !stays; c++)
        memcpy(out + (size_t)place_of(j, number, c) * size, given + (size_t)c * size, size);
    return S24_OK;
}

/* Two tensors' outputs as one's. A row of either is decoded after the other; of biases, whose
   outputs are columns, two rows make one. */
static s24_status fill_joined(const job *j, uint8_t *out, float *row)
{
    const s24i_gguf_tensor *t = j->tensor;
    const size_t bytes = s24i_gguf_row_bytes(t->type, j->cols), size = s24_dtype_bytes(j->dtype);
    const int along = j->place.along, turns = j->place.in_turns;
    float *joined = row + 2 * j->cols;
    for (int64_t i = 0; i < j->rows; i++) {
        for (int part = 0; part < 2; part++) {
            const uint8_t *from = (part ? j->with : t->data) + (size_t)i * bytes;
            const int64_t to = turns ? 2 * i + part : part * j->rows + i;
            TRY(s24i_gguf_row(row + part * j->cols, t->type, from, j->cols));
            if (!along)
                TRY(s24_convert(out + (size_t)(to * j->cols) * size, j->dtype, row + part * j->cols,
                                S24_F32, j->cols));
        }
        for (int64_t c = 0; c < 2 * j->cols && along; c++)
            joined[turns ? c % j->cols * 2 + c / j->cols : c] = row[c];
        if (along)
            TRY(s24_convert(out + (size_t)(2 * i * j->cols) * size, j->dtype, joined, S24_F32,
                            2 * j->cols));
    }
    return S24_OK;
}

/* Of each head its keys' rows, which are columns here, and then its values'. */
static s24_status fill_heads(const job *j, uint8_t *out, float *row)
{
    const s24i_gguf_tensor *keys = j->tensor, *values = j->place.with;
    const int64_t rank = keys->shape[1], plain = keys->shape[2], value = values->shape[1];
    const size_t size = s24_dtype_bytes(j->dtype), bytes = s24i_gguf_row_bytes(keys->type, plain),
                 value_bytes = s24i_gguf_row_bytes(values->type, rank);
    uint8_t *given = (uint8_t *)(row + plain);
    for (int64_t h = 0; h < keys->shape[0]; h++) {
        uint8_t *to = out + (size_t)(h * (plain + value) * rank) * size;
        for (int64_t r = 0; r < rank; r++) {
            TRY(s24i_gguf_row(row, keys->type, keys->data + (size_t)(h * rank + r) * bytes, plain));
            TRY(s24_convert(given, j->dtype, row, S24_F32, plain));
            for (int64_t p = 0; p < plain; p++)
                memcpy(to + (size_t)(p * rank + r) * size, given + (size_t)p * size, size);
        }
        for (int64_t v = 0; v < value; v++) {
            TRY(s24i_gguf_row(row, values->type,
                              values->data + (size_t)(h * value + v) * value_bytes, rank));
            TRY(s24_convert(to + (size_t)((plain + v) * rank) * size, j->dtype, row, S24_F32,
                            rank));
        }
    }
    return S24_OK;
}

static s24_status fill_row(const job *j, uint8_t *out, float *row, int64_t number)
{
    const s24i_gguf_tensor *t = j->tensor;
    const size_t bytes = s24i_gguf_row_bytes(t->type, j->cols);
    TRY(s24i_gguf_row(row, t->type, t->data + (size_t)number * bytes, j->cols));
    for (int64_t c = 0; c < j->cols && j->place.less != 0.0f; c++)
        row[c] -= j->place.less;
    return put_row(j, out, row, (uint8_t *)(row + j->cols), number);
}

/* A tensor's rows, of which each thread has room for one. */
typedef struct filling {
    const job *j;
    uint8_t *out;
    float *row;
    int64_t room;
    atomic_int status;
} filling;

static void fill_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    filling *f = arg;
    for (int64_t i = begin; i < end; i++) {
        const s24_status status = fill_row(f->j, f->out, f->row + f->room * thread, i);
        if (status != S24_OK) atomic_store(&f->status, (int)status);
    }
}

static s24_status fill(const job *j, uint8_t *out, float *row)
{
    filling f = {.j = j, .out = out, .row = row, .room = ROOM * j->cols};
    atomic_init(&f.status, S24_OK);
    s24_ctx_parallel_for(j->g->ctx, j->rows, fill_rows, &f);
    return (s24_status)atomic_load(&f.status);
}

static s24_status write_tensor(job *j)
{
    s24_ctx *ctx = j->g->ctx;
    const s24i_gguf_tensor *t = j->tensor;
    uint8_t *out = NULL;
    float *row = NULL;
    j->cols = t->shape[t->rank - 1];
    j->rows = 1;
    for (int i = 0; i < t->rank - 1; i++)
        j->rows *= t->shape[i];
    const int is_moved = j->place.heads || is_turned(j);
    const int is_same =
        s24i_gguf_type_dtype(t->type) == j->dtype && !is_moved && !j->with && j->place.less == 0.0f;
    const s24_tensor to = stored(j);
    const int by_heads = j->place.how == S24I_GGUF_KEYS;
    int64_t count = 1, widest = j->cols;
    for (int i = 0; i < to.rank; i++)
        count *= to.shape[i];
    if (by_heads) widest = s24i_max(widest, t->shape[1]);
    if (is_same) return s24_writer_write(j->writer, j->name, t->data);
    s24_status status;
    TRY_DONE(s24i_alloc_elems(&out, ctx, count, s24_dtype_bytes(j->dtype),
                              "a tensor that is converted"));
    TRY_DONE(s24i_alloc_elems(&row, ctx, ROOM * widest * s24_ctx_threads(ctx), sizeof *row,
                              "rows that are converted"));
    TRY_DONE((by_heads ? fill_heads : j->with ? fill_joined : fill)(j, out, row));
    TRY_DONE(s24_writer_write(j->writer, j->name, out));
done:
    s24_ctx_free(ctx, row);
    s24_ctx_free(ctx, out);
    return status;
}

static s24_status put_tensor(job *j, int is_declaring)
{
    const s24_tensor tensor = stored(j);
    return is_declaring ? s24_writer_declare(j->writer, &tensor) : write_tensor(j);
}

/* Each expert's matrix by itself. */
static s24_status put_experts(job *j, int is_declaring)
{
    const s24i_gguf_tensor *all = j->tensor;
    const size_t bytes = s24i_gguf_row_bytes(all->type, all->shape[2]) * (size_t)all->shape[1];
    const char *number = strchr(j->place.name, '%');
    j->part = *all;
    j->part.rank = 2;
    j->part.shape[0] = all->shape[1];
    j->part.shape[1] = all->shape[2];
    j->tensor = &j->part;
    for (int64_t e = 0; e < j->place.experts; e++) {
        snprintf(j->name, sizeof j->name, "%.*s%lld%s", (int)(number - j->place.name),
                 j->place.name, (long long)e, number + 2);
        j->part.data = all->data + (size_t)e * bytes;
        if (j->place.with) j->with = j->place.with->data + (size_t)e * bytes;
        TRY(put_tensor(j, is_declaring));
    }
    return S24_OK;
}

/* All tensors, first as declarations and then with their data. */
static s24_status each_tensor(job *j, int is_declaring)
{
    const int64_t count = j->g->names.count;
    for (int64_t i = 0; i < count; i++) {
        j->tensor = &j->g->tensors[i];
        TRY(s24i_gguf_place_of(&j->place, j->g, j->model, j->tensor));
        if (!*j->place.name) continue;
        if (!is_declaring) TRY(s24_ctx_progress(j->g->ctx, "converting", i, count));
        snprintf(j->name, sizeof j->name, "%s", j->place.name);
        j->with = j->place.with ? j->place.with->data : NULL;
        TRY(j->place.experts ? put_experts(j, is_declaring) : put_tensor(j, is_declaring));
    }
    return S24_OK;
}

static s24_status convert(s24_writer *writer, const s24i_gguf *g, const s24i_gguf_model *model)
{
    job j = {.g = g, .model = model, .writer = writer, .dtype = model->dtype};
    TRY(each_tensor(&j, 1));
    TRY(s24i_gguf_add_tokenizer(writer, g, model));
    TRY(s24i_gguf_add_config(writer, model));
    TRY(each_tensor(&j, 0));
    return s24_writer_commit(writer);
}

static s24_status convert_to(const s24i_gguf *g, const char *out, const s24_gguf_opts *opts)
{
    s24i_gguf_model model;
    s24_writer *writer = NULL;
    const s24i_new_folder folder = {out, g->path, opts->force};
    TRY(s24i_gguf_model_read(&model, g));
    model.dtype = opts->dtype ? opts->dtype : S24_F32;
    TRY(s24i_writer_create_folder(&writer, g->ctx, &folder));
    const s24_status status = convert(writer, g, &model);
    s24_writer_destroy(writer);
    return status;
}

s24_status s24_gguf_convert(s24_ctx *ctx, const char *in, const char *out,
                            const s24_gguf_opts *opts)
{
    s24_gguf_opts known;
    s24i_gguf g;
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, in && out, S24_ERROR_ARGUMENT, "%s is NULL", in ? "out" : "in");
    TRY(s24i_opts_read(ctx, &known, sizeof known, opts, "s24_gguf_opts"));
    REQUIRE(ctx,
            !known.dtype || known.dtype == S24_F32 || known.dtype == S24_F16 ||
                known.dtype == S24_BF16,
            S24_ERROR_DTYPE, "s24_gguf_opts.dtype is %s, f32, f16 or bf16 is expected",
            s24_dtype_name(known.dtype));
    s24_status status = s24i_gguf_open(&g, ctx, in);
    if (status == S24_OK) status = convert_to(&g, out, &known);
    s24i_gguf_close(&g);
    return status;
}
