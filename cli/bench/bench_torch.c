// SPDX-License-Identifier: Apache-2.0
/*
 * Runs PyTorch's passes of the same shapes in the same windows, by turns with ours.
 */
#include <string.h>

#include "bench/bench_torch.h"

#define PREFIX "torch-" /* of a way's name */

extern const char bench_torch_script[];

void bench_torch_close(bench_torch *torch)
{
    bench_child_end(&torch->child);
    *torch = (bench_torch){0};
}

const char *bench_torch_way_name(int index)
{
    /* As WAYS of the script. */
    static const char *const names[BENCH_TORCH_WAYS] = {
        "eager", "compiled", "blocks", "tuned", "graphs", "frozen", "semi", "semi-compiled"};
    return index >= 0 && index < BENCH_TORCH_WAYS ? names[index] : NULL;
}

static int is_listed(const char *list, const char *name)
{
    char item[32];
    while (cli_list_next(item, sizeof item, &list))
        if (!strcmp(item, name)) return 1;
    return 0;
}

/* Takes those of the script's ways that were asked for. */
static void name_ways(bench_torch *torch, json_t *names, const char *asked)
{
    json_t *name;
    size_t i;
    json_array_foreach (names, i, name) {
        if (torch->way_count == BENCH_TORCH_WAYS || !json_is_string(name)) continue;
        if (!is_listed(asked, json_string_value(name))) continue;
        bench_torch_way *way = &torch->ways[torch->way_count++];
        way->torch = torch;
        snprintf(way->name, sizeof way->name, PREFIX "%s", json_string_value(name));
    }
}

int bench_torch_open(cli_app *cli, bench_torch *torch, const char *python, const char *ways)
{
    json_t *answer = NULL;
    *torch = (bench_torch){.child = {.peer = "torch",
                                     .needs = "torch and transformers",
                                     .python = python,
                                     .script = bench_torch_script}};
    int code = bench_child_start(cli, &torch->child);
    if (code == CLI_OK)
        code = bench_child_ask(cli, &torch->child, json_pack("{s:s}", "do", "version"), &answer);
    const char *version = json_string_value(json_object_get(answer, "version"));
    if (version) snprintf(torch->version, sizeof torch->version, "%s", version);
    name_ways(torch, json_object_get(answer, "ways"), ways);
    if (code == CLI_OK && !cli_on_cpu(cli) && !json_is_true(json_object_get(answer, "cuda")))
        code = bench_child_failed(cli, &torch->child, "its PyTorch finds no GPU");
    json_decref(answer);
    return code;
}

/* ---- shapes and turns ------------------------------------------------------------------------ */

static json_t *shape_json(const bench_torch_shape *shape)
{
    const s24_model_info *info = shape->info;
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "type",
                     info->model_type, "vocabulary", (json_int_t)info->vocabulary, "positions",
                     (json_int_t)info->positions, "width", (json_int_t)info->width, "layers",
                     (json_int_t)info->layers, "heads", (json_int_t)info->heads, "intermediate",
                     (json_int_t)info->intermediate, "answers", (json_int_t)info->has_qa_head,
                     "image", (json_int_t)info->image, "patch", (json_int_t)info->patch, "classes",
                     (json_int_t)info->classes, "kv_heads", (json_int_t)shape->kv_heads);
}

static json_t *ways_json(const bench_torch *torch)
{
    json_t *names = json_array();
    for (int i = 0; i < torch->way_count; i++)
        json_array_append_new(names, json_string(torch->ways[i].name + strlen(PREFIX)));
    return names;
}

/* Times a window of a way, on its side. */
static int run_window(cli_app *cli, void *state, double min_seconds, double *seconds)
{
    bench_torch_way *way = state;
    json_t *answer;
    json_t *order = json_pack("{s:s, s:s, s:f}", "do", "turn", "way", way->name + strlen(PREFIX),
                              "seconds", min_seconds);
    const int code = bench_child_ask(cli, &way->torch->child, order, &answer);
    *seconds = 1e-3 * json_number_value(json_object_get(answer, "ms"));
    json_decref(answer);
    return code;
}

static void note_refused(cli_app *cli, json_t *refused)
{
    const char *name;
    json_t *why;
    json_object_foreach (refused, name, why)
        cli_note(cli, PREFIX "%s is left out: %s", name, json_string_value(why));
}

int bench_torch_turns(cli_app *cli, bench_torch *torch, const bench_torch_shape *shape,
                      bench_turn turns[BENCH_TORCH_WAYS], int *count)
{
    json_t *answer, *name;
    size_t i;
    json_t *order =
        json_pack("{s:s, s:o, s:s, s:s, s:I, s:I, s:I, s:s?, s:s?, s:o}", "do", "prepare", "shape",
                  shape_json(shape), "dtype", s24_dtype_name(shape->dtype), "device",
                  cli->common->device, "threads", (json_int_t)shape->threads, "batch",
                  (json_int_t)shape->batch, "seq", (json_int_t)shape->seq, "include",
                  shape->include, "exclude", shape->exclude, "ways", ways_json(torch));
    const int code = bench_child_ask(cli, &torch->child, order, &answer);
    *count = 0;
    if (code != CLI_OK) return code;
    note_refused(cli, json_object_get(answer, "refused"));
    json_array_foreach (json_object_get(answer, "ways"), i, name)
        for (int w = 0; w < torch->way_count; w++)
            if (json_is_string(name) &&
                !strcmp(torch->ways[w].name + strlen(PREFIX), json_string_value(name)))
                turns[(*count)++] = (bench_turn){.window = run_window, .state = &torch->ways[w]};
    json_decref(answer);
    return CLI_OK;
}
