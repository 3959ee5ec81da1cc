// SPDX-License-Identifier: Apache-2.0
/*
 * Parts of a measurement (block_parts.h): a file holds what was measured of a part's layers, and a
 * hash of all that decides it: model, passages, options. join puts parts together to the file that
 * one process writes.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "block_parts.h"
#include "sensitivity.h"
#include "shard.h"

#define KIND "sensitivity"

enum { DIGITS = 17 /* of a double that is read back as it was */ };

int sensitivity_part(sensitivity_job *j)
{
    const struct sensitivity_options *o = j->options;
    const block_part part = {o->shard, o->include, o->exclude};
    return block_part_layers(j->cli, &j->names, j->in, &part);
}

uint64_t sensitivity_hash(const sensitivity_job *j, const passages *given)
{
    const struct sensitivity_options *o = j->options;
    const char *const texts[] = {s24_version(), o->method,  o->patterns, o->refine,
                                 o->include,    o->exclude, o->price};
    uint64_t hash = 1;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        hash = block_parts_hash_text(hash, texts[i]);
    hash = s24i_hash(hash, &o->passages.max_tokens, sizeof o->passages.max_tokens);
    return block_parts_hash(hash, given, j->in);
}

/* ---- the file -------------------------------------------------------------------------------- */

static json_t *number_or_null(double x)
{
    return isnan(x) ? json_null() : json_real(x);
}

static json_t *layer_of(const sensitivity_job *j, const sensitivity_layer *l)
{
    json_t *object = json_object(), *errors = json_array(), *kept = json_array(),
           *whole = json_array();
    for (int i = 0; i < j->form_count; i++) {
        json_array_append_new(whole, number_or_null(l->whole[i]));
        json_array_append_new(errors, number_or_null(l->error[i]));
        json_array_append_new(kept, number_or_null(l->kept[i]));
    }
    json_object_set_new(object, "name", json_string(l->name));
    json_object_set_new(object, "rows", json_integer(l->rows));
    json_object_set_new(object, "cols", json_integer(l->cols));
    json_object_set_new(object, "input", json_integer(l->input));
    json_object_set_new(object, "output_error", errors);
    json_object_set_new(object, "kept_l1", kept);
    json_object_set_new(object, "model_error", whole);
    return object;
}

static int write_file(cli_app *cli, const char *path, json_t *object)
{
    cli_output output;
    int code = cli_json_is_whole() ? cli_output_open(cli, &output, path)
                                   : cli_fail(cli, CLI_IO, "out of memory for %s", path);
    if (code == CLI_OK) {
        json_dumpf(object, output.file, JSON_INDENT(1) | JSON_REAL_PRECISION(DIGITS));
        fputc('\n', output.file);
        code = cli_output_commit(cli, &output);
    }
    json_decref(object);
    return code;
}

int sensitivity_save(const sensitivity_job *j)
{
    const struct sensitivity_options *o = j->options;
    char hash[24];
    json_t *object = json_object(), *layers = json_array();
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)j->hash);
    for (int64_t i = 0; i < j->count; i++)
        json_array_append_new(layers, layer_of(j, &j->layers[i]));
    json_object_set_new(object, "sparse24", json_string(KIND));
    if (o->shard) json_object_set_new(object, "part", json_string(o->shard));
    json_object_set_new(object, "run", json_string(hash));
    json_object_set_new(object, "method", json_string(o->method));
    json_object_set_new(object, "patterns", json_string(o->patterns));
    json_object_set_new(object, "layers", layers);
    return write_file(j->cli, o->output, object);
}

/* ---- a measurement that is there ------------------------------------------------------------- */

static double number_at(const json_t *numbers, int i)
{
    const json_t *x = json_array_get(numbers, (size_t)i);
    return json_is_number(x) ? json_number_value(x) : NAN;
}

static int load_layer(sensitivity_job *j, const json_t *from)
{
    const json_t *errors = json_object_get(from, "output_error"),
                 *kept = json_object_get(from, "kept_l1"),
                 *whole = json_object_get(from, "model_error");
    const char *name = json_string_value(json_object_get(from, "name"));
    const s24_layer_report report = {
        .name = name,
        .rows = (int64_t)json_integer_value(json_object_get(from, "rows")),
        .cols = (int64_t)json_integer_value(json_object_get(from, "cols")),
        .input = (int64_t)json_integer_value(json_object_get(from, "input"))};
    const s24_tensor *tensor = name ? s24_checkpoint_find(j->in, name) : NULL;
    if (!tensor || json_array_size(errors) != (size_t)j->form_count ||
        json_array_size(kept) != (size_t)j->form_count ||
        json_array_size(whole) != (size_t)j->form_count || j->count >= s24_checkpoint_count(j->in))
        return 0;
    sensitivity_layer *l = sensitivity_new(j, tensor, &report);
    for (int i = 0; i < j->form_count; i++) {
        l->error[i] = number_at(errors, i);
        l->kept[i] = number_at(kept, i);
        l->whole[i] = number_at(whole, i);
    }
    return 1;
}

int sensitivity_load(sensitivity_job *j)
{
    const char *path = j->options->from;
    json_t *object = NULL;
    char hash[24];
    int code = cli_json_need(j->cli, &object, path);
    if (code != CLI_OK) return code;
    const char *kind = json_string_value(json_object_get(object, "sparse24"));
    const char *run = json_string_value(json_object_get(object, "run"));
    const json_t *layers = json_object_get(object, "layers");
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)j->hash);
    if (!kind || strcmp(kind, KIND) != 0 || !run || json_object_get(object, "part"))
        code = cli_fail(j->cli, CLI_FORMAT,
                        "%s is no whole measurement of sensitivity --output, or of join", path);
    else if (strcmp(run, hash) != 0)
        code = cli_fail(j->cli, CLI_FORMAT,
                        "%s is of another model, of other passages, options or version than these",
                        path);
    for (size_t i = 0; code == CLI_OK && i < json_array_size(layers); i++)
        if (!load_layer(j, json_array_get(layers, i)))
            code = cli_fail(j->cli, CLI_FORMAT, "%s: layer %zu is none of this model", path, i);
    json_decref(object);
    return code;
}

/* ---- join ------------------------------------------------------------------------------------ */

int sensitivity_is_part(cli_app *cli, int *is_part, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) return cli_fail(cli, CLI_IO, "cannot open %s: %s", path, strerror(errno));
    errno = 0;
    *is_part = fgetc(file) == '{';
    const int has_failed = ferror(file), reason = errno;
    fclose(file);
    if (!has_failed) return CLI_OK;
    return cli_fail(cli, CLI_IO, "cannot read %s: %s", path, strerror(reason));
}

typedef struct joining {
    cli_app *cli;
    json_t **all; /* [operands]; NULL: not there yet */
    block_parts parts;
} joining;

/* Of a file: which part it is. */
static int read_part(cli_app *cli, json_t **object, shard *s, const char *path)
{
    int code = cli_json_need(cli, object, path);
    if (code != CLI_OK) return code;
    const char *kind = json_string_value(json_object_get(*object, "sparse24"));
    const char *part = json_string_value(json_object_get(*object, "part"));
    if (!kind || strcmp(kind, KIND) != 0 || !part ||
        !json_is_array(json_object_get(*object, "layers")) ||
        !json_is_string(json_object_get(*object, "run")))
        return cli_fail(cli, CLI_FORMAT, "%s is no part of sensitivity --shard I/N", path);
    return shard_read_place(cli, s, part, path);
}

static int take_part(joining *p, const char *path)
{
    json_t *object = NULL;
    shard s;
    int code = read_part(p->cli, &object, &s, path);
    if (code == CLI_OK)
        code = block_parts_take(p->cli, &p->parts, &s,
                                json_string_value(json_object_get(object, "run")), path);
    if (code == CLI_OK && !p->all && !(p->all = calloc((size_t)s.parts, sizeof *p->all)))
        code = cli_fail(p->cli, CLI_IO, "out of memory for the parts");
    if (code == CLI_OK)
        p->all[s.part - 1] = object;
    else
        json_decref(object);
    return code;
}

static int report(const joining *p, const char *path, int64_t layers)
{
    if (!p->cli->json) {
        cli_print(p->cli, "%s: %lld %s", path, (long long)layers,
                  cli_plural(layers, "layer", "layers"));
        return CLI_OK;
    }
    json_t *object = cli_json();
    json_object_set_new(object, "layers", json_integer(layers));
    json_object_set_new(object, "parts", json_integer(p->parts.count));
    return cli_json_print(p->cli, object);
}

/* All layers in the first part's object. */
static int save_joined(joining *p, const char *path)
{
    json_t *first = p->all[0], *layers = json_object_get(first, "layers");
    for (int64_t i = 1; i < p->parts.count; i++)
        json_array_extend(layers, json_object_get(p->all[i], "layers"));
    json_object_del(first, "part");
    const int code = write_file(p->cli, path, json_incref(first));
    return code == CLI_OK ? report(p, path, (int64_t)json_array_size(layers)) : code;
}

int sensitivity_join(cli_app *cli)
{
    joining p = {.cli = cli};
    int code = cli_may_write(cli, cli->operands[0]);
    for (int i = 1; i < cli->operand_count && code == CLI_OK; i++)
        code = take_part(&p, cli->operands[i]);
    if (code == CLI_OK) code = block_parts_are_whole(cli, &p.parts);
    if (code == CLI_OK) code = save_joined(&p, cli->operands[0]);
    for (int64_t i = 0; p.all && i < p.parts.count; i++)
        json_decref(p.all[i]);
    free(p.all);
    free(p.parts.paths);
    return code;
}
