// SPDX-License-Identifier: Apache-2.0
/*
 * s24_onnx_export: a folder with model.onnx and the model's other files. The graph lies in memory,
 * the weights go from the checkpoint to the file one at a time, as floats of 32 bits. A message of
 * protocol buffers ends at 2 GB: weights of larger models lie next to it, in model.onnx_data.
 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "export/onnx_model.h"
#include "io/file/output.h"

#define ONNX_FILE "model.onnx"
#define DATA_FILE "model.onnx_data"

enum { MODEL_VERSION = 1, MODEL_PRODUCER = 2, MODEL_PRODUCER_VERSION = 3, MODEL_GRAPH = 7 };
enum { MODEL_OPSET = 8, OPSET_VERSION = 2, GRAPH_NAME = 2, ENTRY_KEY = 1, ENTRY_VALUE = 2 };
enum { IR_VERSION = 8, IN_ANOTHER_FILE = 1 };

/* One of the output's files while it is written. */
typedef struct stream {
    char *path;
    int fd; /* −1: not open */
    uint64_t at;
} stream;

typedef struct job {
    s24_ctx *ctx;
    s24i_onnx_model model;
    int external;
    char *out;
    s24i_temporary temporary;
    stream file, data;
} job;

/* ---- the message ----------------------------------------------------------------------------- */

static int64_t bytes_of(const s24i_onnx_weight *w)
{
    return w->shape[0] * (w->rank == 2 ? w->shape[1] : 1) * (int64_t)sizeof(float);
}

static void put_entry(s24i_wire *wire, const char *key, const char *text, int64_t number)
{
    char digits[24];
    const int64_t begin = wire->count;
    if (!text) snprintf(digits, sizeof digits, "%lld", (long long)number);
    s24i_wire_text(wire, ENTRY_KEY, key);
    s24i_wire_text(wire, ENTRY_VALUE, text ? text : digits);
    s24i_wire_end(wire, S24I_TENSOR_EXTERNAL, begin, 0);
}

/* What stands before a weight's numbers; offset: in DATA_FILE, where they are there. */
static void put_head(s24i_wire *wire, const s24i_onnx_weight *w, int external, int64_t offset)
{
    const int64_t begin = wire->count, bytes = bytes_of(w);
    for (int i = 0; i < w->rank; i++)
        s24i_wire_number(wire, S24I_TENSOR_DIMS, w->shape[i]);
    s24i_wire_number(wire, S24I_TENSOR_TYPE, S24I_ONNX_FLOAT);
    s24i_wire_text(wire, S24I_TENSOR_NAME, w->value.name);
    if (external) {
        put_entry(wire, "location", DATA_FILE, 0);
        put_entry(wire, "offset", NULL, offset);
        put_entry(wire, "length", NULL, bytes);
        s24i_wire_number(wire, S24I_TENSOR_PLACE, IN_ANOTHER_FILE);
    } else {
        s24i_wire_end(wire, S24I_TENSOR_RAW, wire->count, bytes);
    }
    s24i_wire_end(wire, S24I_GRAPH_TENSOR, begin, external ? 0 : bytes);
}

/* Bytes of all weights in the graph's message. MEMORY. */
static s24_status measure(int64_t *bytes, const job *j)
{
    const s24i_onnx *g = &j->model.graph;
    s24i_wire wire = {.ctx = j->ctx};
    int64_t offset = 0;
    *bytes = 0;
    for (int64_t i = 0; i < g->count && wire.status == S24_OK; i++) {
        wire.count = 0;
        put_head(&wire, &g->weights[i], j->external, offset);
        *bytes += wire.count + (j->external ? 0 : bytes_of(&g->weights[i]));
        offset += bytes_of(&g->weights[i]);
    }
    const s24_status status = wire.status;
    s24i_wire_free(&wire);
    return status;
}

static s24_status append(job *j, stream *to, const void *bytes, int64_t count)
{
    TRY(s24i_write_at(to->fd, j->ctx, to->path, bytes, (size_t)count, to->at));
    to->at += (uint64_t)count;
    return S24_OK;
}

/* Puts a wire's bytes into the file and empties it, whatever happened. */
static s24_status append_wire(job *j, s24i_wire *wire)
{
    s24_status status = wire->status;
    if (status == S24_OK) status = append(j, &j->file, wire->bytes, wire->count);
    s24i_wire_free(wire);
    return status;
}

/* The model's fields, the last of which is the graph; the weights end it. */
static s24_status write_graph(job *j, int64_t weights)
{
    s24i_wire wire = {.ctx = j->ctx};
    s24i_wire_number(&wire, MODEL_VERSION, IR_VERSION);
    s24i_wire_text(&wire, MODEL_PRODUCER, "sparse24");
    s24i_wire_text(&wire, MODEL_PRODUCER_VERSION, S24_VERSION);
    const int64_t opset = wire.count;
    s24i_wire_number(&wire, OPSET_VERSION, S24I_ONNX_OPSET);
    s24i_wire_end(&wire, MODEL_OPSET, opset, 0);
    s24i_wire_end(&wire, MODEL_GRAPH, wire.count, j->model.graph.wire.count + weights);
    TRY(append_wire(j, &wire));
    return append(j, &j->file, j->model.graph.wire.bytes, j->model.graph.wire.count);
}

/* ---- weights --------------------------------------------------------------------------------- */

static void transpose(float *to, const float *from, int64_t rows, int64_t cols)
{
    enum { TILE = 32 };
    for (int64_t r = 0; r < rows; r += TILE)
        for (int64_t c = 0; c < cols; c += TILE)
            for (int64_t y = r; y < s24i_min(r + TILE, rows); y++)
                for (int64_t x = c; x < s24i_min(c + TILE, cols); x++)
                    to[x * rows + y] = from[y * cols + x];
}

/* The numbers of a weight as the graph has them; room is for twice as many. */
static s24_status read_numbers(const float **out, s24_ctx *ctx, float *room,
                               const s24i_onnx_weight *w)
{
    const int64_t count = bytes_of(w) / (int64_t)sizeof(float);
    const float *from = w->floats;
    if (w->tensor) TRY(s24i_tensor_widen(ctx, room, w->tensor));
    if (w->tensor) from = room;
    if (w->transposed) transpose(room + count, from, w->shape[1], w->shape[0]);
    *out = w->transposed ? room + count : from;
    return S24_OK;
}

static s24_status write_weight(job *j, const s24i_onnx_weight *w)
{
    s24i_wire head = {.ctx = j->ctx};
    const float *numbers;
    float *room;
    put_head(&head, w, j->external, (int64_t)j->data.at);
    TRY(append_wire(j, &head));
    TRY(s24i_alloc_elems(&room, j->ctx, 2 * bytes_of(w), 1, "a weight"));
    s24_status status = read_numbers(&numbers, j->ctx, room, w);
    if (status == S24_OK)
        status = append(j, j->external ? &j->data : &j->file, numbers, bytes_of(w));
    s24_ctx_free(j->ctx, room);
    return status;
}

/* ---- the folder ------------------------------------------------------------------------------ */

static s24_status open_stream(job *j, stream *s, const char *name)
{
    TRY(s24i_join_path(&s->path, j->ctx, j->temporary.path, name));
    s->fd = open(s->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return s->fd < 0 ? s24i_fail_errno(j->ctx, "create", s->path) : S24_OK;
}

static s24_status write_files(job *j)
{
    const int64_t most = INT32_MAX - (1 << 20);
    const s24i_onnx *g = &j->model.graph;
    int64_t weights;
    TRY(measure(&weights, j));
    if (!j->external && weights + g->wire.count > most) {
        j->external = 1;
        TRY(measure(&weights, j));
    }
    TRY(open_stream(j, &j->file, ONNX_FILE));
    if (j->external) TRY(open_stream(j, &j->data, DATA_FILE));
    TRY(write_graph(j, weights));
    for (int64_t i = 0; i < g->count; i++) {
        TRY(s24_ctx_progress(j->ctx, "converting", i, g->count));
        TRY(write_weight(j, &g->weights[i]));
    }
    TRY(s24i_sync_and_close(&j->file.fd, j->ctx, j->file.path));
    return j->external ? s24i_sync_and_close(&j->data.fd, j->ctx, j->data.path) : S24_OK;
}

static s24_status export(job *j, const char *out, int force)
{
    const char *folder = s24_checkpoint_folder(j->model.checkpoint);
    const s24i_place place = {
        .path = out, .source = folder, .also = ONNX_FILE, .is_folder = 1, .force = force};
    TRY(s24i_output_place(&j->out, j->ctx, &place));
    TRY(s24i_onnx_make(&j->model));
    s24i_wire_text(&j->model.graph.wire, GRAPH_NAME, j->model.arch->model_type);
    TRY(j->model.graph.wire.status);
    TRY(s24i_temporary_create(&j->temporary, NULL, j->ctx, j->out, 0777));
    TRY(write_files(j));
    TRY(s24i_copy_side_files(j->ctx, folder, j->temporary.path, NULL));
    return s24i_put_in_place(&j->temporary, j->out, force);
}

static void release(job *j)
{
    stream *streams[] = {&j->file, &j->data};
    for (int i = 0; i < 2; i++) {
        if (streams[i]->fd >= 0) close(streams[i]->fd);
        s24_ctx_free(j->ctx, streams[i]->path);
    }
    s24i_temporary_end(&j->temporary);
    s24i_onnx_model_free(&j->model);
    s24_ctx_free(j->ctx, j->out);
}

s24_status s24_onnx_export(s24_onnx_report *report, s24_ctx *ctx, const s24_checkpoint *in,
                           const char *out, const s24_onnx_opts *opts)
{
    s24_onnx_opts known;
    job j = {.ctx = ctx, .model = {.ctx = ctx, .checkpoint = in}, .file.fd = -1, .data.fd = -1};
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, in && out && *out, S24_ERROR_ARGUMENT, "%s",
            in ? "out is NULL or empty" : "in is NULL");
    REQUIRE(ctx, s24_checkpoint_folder(in), S24_ERROR_ARGUMENT,
            "a file was opened; ONNX is made of a model's folder, with its config.json");
    TRY(s24i_opts_read(ctx, &known, sizeof known, opts, "s24_onnx_opts"));
    j.temporary.ctx = ctx;
    j.external = known.external;
    const s24_status status = export(&j, out, known.force);
    if (status == S24_OK && report)
        *report = (s24_onnx_report){.weights = j.model.graph.count,
                                    .bytes = (int64_t)(j.file.at + j.data.at),
                                    .dimensions = j.model.pools ? j.model.modules.width : 0,
                                    .external = j.external};
    release(&j);
    return status;
}
