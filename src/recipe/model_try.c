// SPDX-License-Identifier: Apache-2.0
/*
 * What a form would cost a layer by itself: the layer is pruned, rounded to integers or both, and
 * its outputs are compared with those before. Nothing is written.
 */
#include "io/checkpoint/checkpoint.h"
#include "recipe/model_prune.h"

#include <string.h>

enum { PATTERN_BYTES = 64 };

/* "PATTERN", "SCHEME" or "PATTERN+SCHEME". */
typedef struct form {
    char pattern[PATTERN_BYTES]; /* "": nothing goes */
    const char *scheme;          /* NULL: floats */
    int64_t group;               /* columns that it takes together */
    int lift;
} form;

static const char *scheme_named(const char *text)
{
    const char *name;
    for (int i = 0; (name = s24_scheme_name(i, NULL, NULL)); i++)
        if (!strcmp(name, text)) break;
    return name;
}

static int read_form(form *f, const char *text)
{
    const char *plus = strchr(text, '+');
    const size_t length = plus ? (size_t)(plus - text) : strlen(text);
    *f = (form){.scheme = scheme_named(plus ? plus + 1 : text), .group = 4};
    if (plus ? !f->scheme : f->scheme != NULL) return !plus;
    if (length >= PATTERN_BYTES) return 0;
    memcpy(f->pattern, text, length);
    f->group = s24_pattern_group(f->pattern);
    f->lift = s24_pattern_lift(f->pattern);
    return f->group && (!f->scheme || f->lift || !strcmp(f->pattern, "2:4"));
}

s24_status s24i_pruner_check_forms(const s24i_pruner *pruner)
{
    form f;
    for (int64_t i = 0; i < pruner->tried_count; i++)
        REQUIRE(pruner->ctx, pruner->tried[i] && read_form(&f, pruner->tried[i]),
                S24_ERROR_ARGUMENT,
                "\"%s\" is no pattern, no scheme of integers, nor 2:4, 6:8 or their kin + a "
                "scheme; s24_pattern_syntax and s24_scheme_name list them",
                s24i_show(pruner->tried[i] ? pruner->tried[i] : "NULL").text);
    return S24_OK;
}

/* All of w rounded to nearest. */
static s24_status round_dense(s24_ctx *ctx, const s24_dense *w, const char *scheme)
{
    s24_quantized q = {.rows = w->rows, .cols = w->cols};
    for (int i = 0; strcmp(s24_scheme_name(i, &q.bits, &q.group), scheme) != 0;)
        i++;
    if (!q.group) q.group = w->cols;
    const int64_t scales = w->rows * ((w->cols + q.group - 1) / q.group);
    float *memory;
    TRY(s24i_alloc_elems(&memory, ctx, scales + (w->rows * w->cols + 3) / 4, sizeof *memory,
                         "integers"));
    q.scales = memory;
    q.values = memory + scales;
    s24_status status = s24_dense_quantize(memory + scales, memory, ctx, w, scheme);
    if (status == S24_OK) status = s24_dense_from_quantized(ctx, w, &q);
    s24_ctx_free(ctx, memory);
    return status;
}

static s24_status round_pruned(const s24i_pruner *pruner, const s24_dense *w, const form *f,
                               const s24_dense *before, const s24_stats *stats)
{
    s24_matrix *integers = NULL;
    const s24_round_opts opts = {.size = sizeof opts,
                                 .scheme = f->scheme,
                                 .stats = stats,
                                 .target = before,
                                 .dampening = pruner->opts.prune.dampening};
    const s24_status status = s24i_pruner_round(&integers, pruner, w, f->lift, &opts);
    s24_matrix_destroy(integers);
    return status;
}

/* w, a copy of `before`, becomes the form. */
static s24_status try_form(s24_prune_report *report, const s24i_pruner *pruner, const s24_dense *w,
                           const form *f, const s24_dense *before, const s24_stats *stats)
{
    s24_prune_opts opts = pruner->opts.prune;
    opts.pattern = f->pattern;
    if (*f->pattern) TRY(s24_prune(report, pruner->ctx, w, stats, &opts));
    if (!f->scheme) return S24_OK;
    TRY(*f->pattern ? round_pruned(pruner, w, f, before, stats)
                    : round_dense(pruner->ctx, w, f->scheme));
    return s24_prune_measure(report, pruner->ctx, before, w, stats);
}

/* Small errors reach the model's end in proportion, so that the first form that leaves one says it
   for all: *reach is what the model loses for each unit of the layer's own error, −1: not known. */
static s24_status follow(double *model_error, double *reach, const s24i_trial *trial,
                         double own_error, float *w)
{
    *model_error = trial->follow ? 0.0 : -1.0;
    if (!trial->follow || !(own_error > 0.0)) return S24_OK;
    if (*reach < 0.0) {
        TRY(trial->follow(model_error, trial->user, w));
        *reach = *model_error / own_error;
    }
    *model_error = *reach * own_error;
    return S24_OK;
}

s24_status s24i_pruner_try(const s24i_pruner *pruner, const float *w, const s24_tensor *tensor,
                           const s24_stats *stats, const s24i_trial *trial)
{
    const s24_dense shape = s24i_pruner_matrix(NULL, tensor);
    const int64_t count = shape.rows * shape.cols;
    s24_dense before = shape, copy = shape;
    float *room;
    double reach = -1.0;
    form f;
    s24_status status = S24_OK;
    TRY(s24i_alloc_elems(&room, pruner->ctx, 2 * count, sizeof *room, "a weight"));
    before.data = memcpy(room, w, (size_t)count * sizeof *room);
    copy.data = room + count;
    for (int64_t i = 0; i < pruner->tried_count && status == S24_OK; i++) {
        s24_layer_report how = {
            .seconds = s24i_seconds(), .pattern = pruner->tried[i], .input = trial->input};
        s24_prune_report report;
        if (!read_form(&f, pruner->tried[i]) || shape.cols % f.group ||
            (*f.pattern && !s24_pattern_fits(f.pattern, shape.cols)))
            continue;
        memcpy(copy.data, w, (size_t)count * sizeof *room);
        status = try_form(&report, pruner, &copy, &f, &before, stats);
        if (status == S24_OK)
            status = follow(&how.model_error, &reach, trial, report.output_error, copy.data);
        if (status == S24_OK) s24i_pruner_report(pruner, tensor, &report, &how);
    }
    s24_ctx_free(pruner->ctx, room);
    return s24i_name_tensor(pruner->ctx, status, tensor);
}
