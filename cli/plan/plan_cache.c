// SPDX-License-Identifier: Apache-2.0
/*
 * Keeps the advisor's models on disk, a JSON file each among the caches. A file says which machine,
 * build, dtype and number of threads it is of; one that says otherwise, or that cannot be read,
 * counts as absent. Each is written under a temporary name, then renamed.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "plan/plan.h"

/* Makes the key: all that a time depends on next to the shape. */
static json_t *key_json(cli_app *cli, s24_dtype dtype, int64_t threads)
{
    json_t *key = cli_machine_key(cli);
    json_object_set_new(key, "dtype", json_string(s24_dtype_name(dtype)));
    json_object_set_new(key, "threads", json_integer(threads));
    return key;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Reads [m, k, n, sparse_ms, dense_ms]; 0: it is none. */
static int point_read(plan_point *point, const json_t *row)
{
    double value[5];
    if (!json_is_array(row) || json_array_size(row) != 5) return 0;
    for (size_t i = 0; i < 5; i++) {
        const json_t *entry = json_array_get(row, i);
        if (!json_is_number(entry)) return 0;
        value[i] = json_number_value(entry);
        const double least = i < 3 ? 1 : 0; /* of sizes, and of times */
        if (!(value[i] >= least && value[i] > 0 && value[i] <= 1e15)) return 0;
    }
    point->shape = (bench_shape){(int64_t)value[0], (int64_t)value[1], (int64_t)value[2]};
    point->times = (plan_times){1e-3 * value[3], 1e-3 * value[4]};
    return 1;
}

static int model_read(plan_model *model, const json_t *file)
{
    const json_t *sizes = json_object_get(file, "sizes");
    const json_t *points = json_object_get(file, "points");
    const json_t *checks = json_object_get(file, "checks");
    const char *date = json_string_value(json_object_get(file, "measured"));
    if (!date || !json_is_array(sizes) || !json_is_array(points) || !json_is_array(checks) ||
        json_array_size(sizes) > PLAN_SIZES || json_array_size(checks) > PLAN_CHECKS)
        return 0;
    snprintf(model->date, sizeof model->date, "%s", date);
    for (size_t i = 0; i < json_array_size(sizes); i++) {
        double size = json_number_value(json_array_get(sizes, i));
        if (!(size >= 1) || (i && size <= model->size[i - 1])) return 0;
        model->size[model->sizes++] = size;
    }
    for (size_t i = 0; i < json_array_size(points); i++) {
        plan_point point;
        if (!point_read(&point, json_array_get(points, i)) || !plan_model_add(model, &point))
            return 0;
    }
    for (size_t i = 0; i < json_array_size(checks); i++)
        if (!point_read(&model->checks[model->check_count++], json_array_get(checks, i))) return 0;
    return plan_model_finish(model);
}

int plan_cache_load(cli_app *cli, plan_model *model, char *path, s24_dtype dtype, int64_t threads)
{
    json_t *file = cli_cache_read(path, "plan", key_json(cli, dtype, threads));
    plan_model_begin(model, dtype, s24_ctx_cpu(cli->ctx), threads);
    int ok = file && model_read(model, file);
    if (!ok && *path && access(path, F_OK) == 0)
        cli_note(cli, "%s is of another make or damaged: measured again", path);
    if (ok && (model->flaw = plan_model_flaw(model)) != NULL) {
        cli_note(cli, "%s was measured while other work ran (%s): measured again", path,
                 model->flaw);
        ok = 0;
    }
    json_decref(file);
    return ok;
}

/* ---- writing --------------------------------------------------------------------------------- */

static json_t *point_json(bench_shape shape, plan_times times)
{
    return json_pack("[IIIoo]", (json_int_t)shape.m, (json_int_t)shape.k, (json_int_t)shape.n,
                     cli_real(1e3 * times.sparse), cli_real(1e3 * times.dense));
}

static json_t *model_json(const plan_model *model)
{
    json_t *sizes = json_array(), *points = json_array(), *checks = json_array();
    for (int k = 0; k < model->sizes; k++) {
        json_array_append_new(sizes, json_integer((json_int_t)model->size[k]));
        for (int n = 0; n < model->sizes; n++) {
            const plan_column *column = &model->columns[k][n];
            for (int i = 0; i < column->count; i++)
                json_array_append_new(
                    points, point_json((bench_shape){(int64_t)column->m[i], (int64_t)model->size[k],
                                                     (int64_t)model->size[n]},
                                       column->times[i]));
        }
    }
    for (int i = 0; i < model->check_count; i++)
        json_array_append_new(checks, point_json(model->checks[i].shape, model->checks[i].times));
    return json_pack("{s:s, s:o, s:o, s:o}", "measured", model->date, "sizes", sizes, "points",
                     points, "checks", checks);
}

int plan_cache_save(cli_app *cli, const plan_model *model, const char *path, s24_dtype dtype,
                    int64_t threads)
{
    return cli_cache_write(cli, path, key_json(cli, dtype, threads), model_json(model));
}
