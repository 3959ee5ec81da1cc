// SPDX-License-Identifier: Apache-2.0
/*
 * What a run goes on from: one safetensors file with the three arenas (weights and the optimiser's
 * moments) and `state`, written as every output is: aside, synced, then renamed into its place.
 */
#include <string.h>

#include "train/run.h"

enum { STATE = 10 };

/* Where what learns under a mask is the weights themselves, they are not what runs, as they were
   in files of before. */
static int64_t version_of(const s24i_optimiser *o)
{
    return o->learns && !o->latent ? 5 : 4;
}

static s24_status write_floats(s24_writer *writer, s24_transformer *t, s24_ctx *ctx,
                               const char *name, const float *from, int64_t count)
{
    s24i_machine *m = &t->machine;
    float *host;
    TRY(s24i_alloc_elems(&host, ctx, count, sizeof *host, "a checkpoint"));
    m->ctx = ctx;
    m->ops->download(m, host, from, (size_t)count * sizeof *host);
    const s24_status status = s24_writer_write(writer, name, host);
    s24_ctx_free(ctx, host);
    return status;
}

static s24_status write_arena(s24_writer *writer, s24_transformer *t, s24_ctx *ctx,
                              const char *name, const float *arena)
{
    return write_floats(writer, t, ctx, name, arena, t->elems);
}

static s24_status write_moment(s24_writer *writer, s24_transformer *t, s24_ctx *ctx,
                               const char *name, const s24i_optimiser *o)
{
    float *all;
    TRY(s24i_alloc_elems(&all, ctx, t->elems, sizeof *all, "a checkpoint"));
    t->machine.ctx = ctx;
    s24_status status = s24i_moments_read(all, o, t, ctx, *name == 'm' ? o->m : o->v);
    if (status == S24_OK) status = s24_writer_write(writer, name, all);
    s24_ctx_free(ctx, all);
    return status;
}

/* Where ranks have parts of the moments, they were collected. */
static s24_status write_moments(s24_writer *writer, s24_transformer *t, s24_ctx *ctx,
                                const s24i_optimiser *o)
{
    if (!o->whole) {
        TRY(write_moment(writer, t, ctx, "m", o));
        return write_moment(writer, t, ctx, "v", o);
    }
    TRY(s24_writer_write(writer, "m", o->whole));
    return s24_writer_write(writer, "v", o->whole + t->elems);
}

static s24_status write_latent(s24_writer *writer, s24_transformer *t, s24_ctx *ctx,
                               const s24i_optimiser *o)
{
    float *all;
    TRY(s24i_alloc_elems(&all, ctx, t->elems, sizeof *all, "a checkpoint"));
    t->machine.ctx = ctx;
    s24i_learning_read(all, o, t);
    s24_status status = t->machine.status;
    if (status == S24_OK) status = s24_writer_write(writer, "latent", all);
    s24_ctx_free(ctx, all);
    return status;
}

/* Masks are of weights as they were when these were last looked at. */
static s24_status write_mask(s24_writer *writer, s24_transformer *t, s24_ctx *ctx,
                             const s24i_optimiser *o)
{
    s24i_machine *m = &t->machine;
    uint8_t *mask;
    TRY(s24i_alloc_elems(&mask, ctx, t->elems / 8, 1, "masks"));
    m->ops->download(m, mask, o->mask, (size_t)t->elems / 8);
    const s24_status status = s24_writer_write(writer, "mask", mask);
    s24_ctx_free(ctx, mask);
    return status;
}

/* What a method remembers, and what learns next to the weights, with its moments. */
static s24_status declare_method(s24_writer *writer, const s24i_optimiser *o)
{
    s24_tensor tensor = {.name = "method", .dtype = S24_I64, .rank = 1, .shape = {o->memory_count}};
    TRY(s24_writer_declare(writer, &tensor));
    tensor =
        (s24_tensor){.name = "extra", .dtype = S24_F32, .rank = 1, .shape = {3 * o->extra_count}};
    return o->extra ? s24_writer_declare(writer, &tensor) : S24_OK;
}

static s24_status write_all(s24_writer *writer, s24_transformer *t, s24_ctx *ctx,
                            const s24i_optimiser *o, const s24i_train_state *state)
{
    const char *const arenas[] = {"weights", "m", "v", "latent"};
    const int count = o->latent ? 4 : 3;
    s24_tensor tensor = {.name = "state", .dtype = S24_I64, .rank = 1, .shape = {STATE}};
    int64_t numbers[STATE] = {version_of(o), state->step, state->tokens};
    memcpy(numbers + 3, &state->seconds, sizeof state->seconds);
    memcpy(numbers + 4, &state->run, sizeof state->run);
    numbers[5] = t->elems;
    memcpy(numbers + 6, &state->scale, sizeof state->scale);
    numbers[7] = state->since;
    numbers[8] = state->left_out;
    numbers[9] = state->plan;
    TRY(s24_writer_declare(writer, &tensor));
    tensor = (s24_tensor){.dtype = S24_F32, .rank = 1, .shape = {t->elems}};
    for (int i = 0; i < count; i++) {
        tensor.name = arenas[i];
        TRY(s24_writer_declare(writer, &tensor));
    }
    tensor = (s24_tensor){.name = "mask", .dtype = S24_U8, .rank = 1, .shape = {t->elems / 8}};
    if (o->learns) TRY(s24_writer_declare(writer, &tensor));
    TRY(declare_method(writer, o));
    TRY(s24_writer_write(writer, "state", numbers));
    TRY(write_arena(writer, t, ctx, "weights", t->weights));
    TRY(write_moments(writer, t, ctx, o));
    if (o->latent) TRY(write_latent(writer, t, ctx, o));
    if (o->learns) TRY(write_mask(writer, t, ctx, o));
    TRY(s24_writer_write(writer, "method", o->memory));
    if (o->extra) TRY(write_floats(writer, t, ctx, "extra", o->extra, 3 * o->extra_count));
    return s24_writer_commit(writer);
}

/* Whoever asked to stop wants the checkpoint whole: it is written in a context that nobody can
   interrupt. */
s24_status s24i_checkpoint_write(s24_transformer *t, s24_ctx *ctx, const s24i_optimiser *o,
                                 const s24i_train_state *state, const char *path)
{
    s24_ctx *calm;
    s24_writer *writer;
    const s24_ctx_opts calm_opts = {.size = sizeof calm_opts, .threads = 1};
    const s24_writer_opts opts = {.size = sizeof opts, .force = 1};
    REQUIRE(ctx, o->whole || o->own.count == t->elems, S24_ERROR_MEMORY,
            "out of memory for all ranks' %lld moments", 2 * (long long)t->elems);
    REQUIRE(ctx, s24_ctx_create(&calm, &calm_opts) == S24_OK, S24_ERROR_MEMORY,
            "out of memory for a checkpoint");
    s24_status status = s24_writer_create(&writer, calm, path, &opts);
    if (status == S24_OK) {
        status = write_all(writer, t, calm, o, state);
        s24_writer_destroy(writer);
    }
    if (status != S24_OK) s24_ctx_fail(ctx, status, "%s", s24_ctx_error(calm));
    t->machine.ctx = ctx;
    s24_ctx_destroy(calm);
    return status;
}

/* A tensor of this dtype and this many numbers. */
static s24_status find(const s24_tensor **out, s24_ctx *ctx, const s24_checkpoint *file,
                       const char *path, const char *name, s24_dtype dtype, int64_t count)
{
    const s24_tensor *tensor = *out = s24_checkpoint_find(file, name);
    REQUIRE(ctx, tensor && tensor->dtype == dtype && tensor->rank == 1 && !tensor->packed,
            S24_ERROR_FORMAT, "%s: no training checkpoint: tensor '%s' is missing or misshapen",
            path, name);
    REQUIRE(ctx, tensor->shape[0] == count, S24_ERROR_FORMAT,
            "%s: tensor '%s' has %lld numbers; %lld were expected for this model", path, name,
            (long long)tensor->shape[0], (long long)count);
    return S24_OK;
}

static s24_status read_all(s24i_train_state *state, s24_transformer *t, s24_ctx *ctx,
                           s24i_optimiser *o, const s24_checkpoint *file, const char *path)
{
    const s24_tensor *tensor, *w, *m, *v, *latent = NULL, *mask = NULL, *method, *extra = NULL;
    int64_t numbers[STATE];
    s24i_machine *machine = &t->machine;
    const size_t bytes = (size_t)t->elems * sizeof(float);
    const uint64_t run = state->run;
    TRY(find(&tensor, ctx, file, path, "state", S24_I64, STATE));
    memcpy(numbers, tensor->data, sizeof numbers);
    REQUIRE(ctx, numbers[0] == version_of(o), S24_ERROR_FORMAT,
            "%s: a checkpoint of version %lld; %lld is expected", path, (long long)numbers[0],
            (long long)version_of(o));
    TRY(find(&w, ctx, file, path, "weights", S24_F32, t->elems));
    TRY(find(&m, ctx, file, path, "m", S24_F32, t->elems));
    TRY(find(&v, ctx, file, path, "v", S24_F32, t->elems));
    if (o->latent) TRY(find(&latent, ctx, file, path, "latent", S24_F32, t->elems));
    if (o->learns) TRY(find(&mask, ctx, file, path, "mask", S24_U8, t->elems / 8));
    TRY(find(&method, ctx, file, path, "method", S24_I64, o->memory_count));
    if (o->extra) TRY(find(&extra, ctx, file, path, "extra", S24_F32, 3 * o->extra_count));
    state->step = numbers[1];
    state->tokens = numbers[2];
    memcpy(&state->seconds, numbers + 3, sizeof state->seconds);
    memcpy(&state->run, numbers + 4, sizeof state->run);
    REQUIRE(ctx, state->run == run, S24_ERROR_FORMAT,
            "%s is of a run with other options, another model or other examples", path);
    memcpy(&state->scale, numbers + 6, sizeof state->scale);
    state->since = numbers[7];
    state->left_out = numbers[8];
    state->plan = numbers[9];
    REQUIRE(ctx,
            state->step >= 0 && state->seconds >= 0 && state->scale > 0 && state->since >= 0 &&
                state->left_out >= 0 && state->left_out <= state->step,
            S24_ERROR_FORMAT, "%s: step %lld after %g seconds, %lld left out, scale %g", path,
            (long long)state->step, state->seconds, (long long)state->left_out, state->scale);
    machine->ops->upload(machine, t->weights, w->data, bytes);
    TRY(s24i_moments_write(o, t, ctx, o->m, m->data));
    TRY(s24i_moments_write(o, t, ctx, o->v, v->data));
    if (latent) s24i_learning_write(o, t, latent->data);
    if (mask) machine->ops->upload(machine, o->mask, mask->data, (size_t)t->elems / 8);
    memcpy(o->memory, method->data, (size_t)o->memory_count * sizeof *o->memory);
    if (extra)
        machine->ops->upload(machine, o->extra, extra->data,
                             (size_t)o->extra_count * 3 * sizeof *o->extra);
    machine->ops->refresh(machine);
    o->pending = 0; /* what was summed up is of other weights */
    return s24i_method_lay(o, t, ctx);
}

s24_status s24i_checkpoint_read(s24i_train_state *state, s24_transformer *t, s24_ctx *ctx,
                                s24i_optimiser *o, const char *path)
{
    s24_checkpoint *file;
    TRY(s24_checkpoint_open(&file, ctx, path));
    const s24_status status = read_all(state, t, ctx, o, file, path);
    s24_checkpoint_close(file);
    return status;
}
