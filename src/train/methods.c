// SPDX-License-Identifier: Apache-2.0
/* The table of methods, and what options say of a method: its name, its numbers, its layers. */
#include "train/method.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/file/io.h"
#include "train/run.h"

static const s24i_method methods[] = {
#define METHOD(name, forward, choice, inputs, adam, numbers, summary)                              \
    {name,                                                                                         \
     S24I_FORWARD_##forward,                                                                       \
     S24I_CHOICE_##choice,                                                                         \
     S24I_INPUTS_##inputs,                                                                         \
     S24I_ADAM_##adam,                                                                             \
     numbers,                                                                                      \
     summary},
#include "train/methods.def"
};
enum { METHODS = (int)(sizeof methods / sizeof *methods) };

static const struct {
    const char *name;
    size_t offset;
    double least, most;
    int whole;
    const char *help;
} numbers[] = {
#define NUMBER(field, name, least, most, whole, help)                                              \
    {name, offsetof(s24i_numbers, field), least, most, whole, help},
#include "train/method_numbers.def"
};
enum { NUMBERS = (int)(sizeof numbers / sizeof *numbers) };

const s24i_method *s24i_method_find(const char *name)
{
    for (int i = 0; i < METHODS; i++)
        if (strcmp(methods[i].name, name) == 0) return &methods[i];
    return NULL;
}

const char *s24_train_method_name(int index)
{
    return index >= 0 && index < METHODS ? methods[index].name : NULL;
}

int s24_train_method_describe(s24_train_method_info *info, const char *name)
{
    const s24i_method *row = info && name ? s24i_method_find(name) : NULL;
    if (row) *info = (s24_train_method_info){row->summary, row->numbers};
    return row != NULL;
}

/* The index of a number, by the first `length` characters of text; −1. */
static int find_number(const char *text, size_t length)
{
    for (int i = 0; i < NUMBERS; i++)
        if (strlen(numbers[i].name) == length && strncmp(numbers[i].name, text, length) == 0)
            return i;
    return -1;
}

const char *s24_train_number_name(int index)
{
    return index >= 0 && index < NUMBERS ? numbers[index].name : NULL;
}

const char *s24_train_number_help(int index)
{
    return index >= 0 && index < NUMBERS ? numbers[index].help : NULL;
}

/* Does the row have the number? */
static int has(const s24i_method *row, const char *name, size_t length)
{
    for (const char *at = row->numbers; *at; at += strcspn(at, ","), at += *at == ',')
        if (strncmp(at, name, length) == 0 && at[length] == '=') return 1;
    return 0;
}

/* One "NAME=X" of `length` characters. */
static s24_status read_number(s24i_numbers *to, s24_ctx *ctx, const s24i_method *row,
                              const char *text, size_t length)
{
    const char *equals = memchr(text, '=', length);
    const size_t named = equals ? (size_t)(equals - text) : length;
    char *end = NULL;
    REQUIRE(ctx, equals && has(row, text, named), S24_ERROR_ARGUMENT,
            "method %s has no number '%.*s'; %s%s", row->name, (int)named, text,
            *row->numbers ? "it has " : "it has none", row->numbers);
    const int index = find_number(text, named);
    const double value = strtod(equals + 1, &end);
    REQUIRE(ctx,
            end == text + length && end > equals + 1 && value >= numbers[index].least &&
                value <= numbers[index].most && (!numbers[index].whole || value == floor(value)),
            S24_ERROR_ARGUMENT, "method %s: %.*s; a %s of %g to %g is expected", row->name,
            (int)length, text, numbers[index].whole ? "whole number" : "number",
            numbers[index].least, numbers[index].most);
    memcpy((char *)to + numbers[index].offset, &value, sizeof value);
    return S24_OK;
}

static s24_status read_numbers(s24i_numbers *to, s24_ctx *ctx, const s24i_method *row,
                               const char *text)
{
    while (text && *text) {
        const size_t length = strcspn(text, ",");
        TRY(read_number(to, ctx, row, text, length));
        text += length;
        text += *text == ',';
    }
    return S24_OK;
}

static s24_status check(const s24i_method *row, const s24i_numbers *n, s24_ctx *ctx)
{
    REQUIRE(ctx, n->start + n->tail < 1, S24_ERROR_ARGUMENT,
            "method %s: start=%g and tail=%g leave nothing of the run in 2:4", row->name, n->start,
            n->tail);
    REQUIRE(ctx, n->least <= n->most, S24_ERROR_ARGUMENT, "method %s: least=%g is over most=%g",
            row->name, n->least, n->most);
    return S24_OK;
}

/* What the options before `method` say. */
static const char *old_name(const s24_train_opts *opts)
{
    return opts->refresh ? "sr-ste" : opts->fixed ? "fixed" : "dense";
}

s24_status s24i_method_read(const s24i_method **row, s24i_numbers *to, s24_ctx *ctx,
                            const s24_train_opts *opts)
{
    const char *name = opts->method ? opts->method : old_name(opts);
    REQUIRE(ctx, !opts->method || (!opts->fixed && !opts->refresh), S24_ERROR_ARGUMENT,
            "method %s goes without fixed and refresh, which choose one too", name);
    *row = s24i_method_find(name);
    REQUIRE(ctx, *row, S24_ERROR_ARGUMENT, "there is no method '%s'", s24i_show(name).text);
    *to = (s24i_numbers){.refresh = 1, .until = 1, .most = 1};
    TRY(read_numbers(to, ctx, *row, (*row)->numbers));
    TRY(read_numbers(to, ctx, *row, opts->numbers));
    if (opts->refresh) {
        to->refresh = (double)opts->refresh;
        to->until = opts->refresh_until;
    }
    return check(*row, to, ctx);
}

int s24i_method_takes(const s24i_optimiser *o, const s24i_place *p)
{
    s24_tensor tensor = {.name = p->name,
                         .dtype = S24_F32,
                         .rank = p->rank,
                         .transposed = p->transposed,
                         .linear = p->linear};
    memcpy(tensor.shape, p->shape, sizeof tensor.shape);
    return s24_tensor_is_selected(&tensor, NULL, o->exclude) &&
           (!o->include || s24_tensor_is_selected(&tensor, o->include, NULL));
}
