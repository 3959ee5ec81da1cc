// SPDX-License-Identifier: Apache-2.0
/* Runs llama.cpp on the same shape and numbers of tokens, in turns with ours. */
#include "bench/bench_llamacpp.h"

extern const char bench_llamacpp_script[];

void bench_llamacpp_close(bench_llamacpp *peer)
{
    bench_child_end(&peer->child);
    *peer = (bench_llamacpp){.version = ""};
}

int bench_llamacpp_open(cli_app *cli, bench_llamacpp *peer, const char *python)
{
    json_t *answer = NULL;
    *peer = (bench_llamacpp){.child = {.peer = "llama.cpp",
                                       .needs = "llama_cpp and numpy",
                                       .python = python,
                                       .script = bench_llamacpp_script}};
    int code = bench_child_start(cli, &peer->child);
    if (code == CLI_OK)
        code = bench_child_ask(cli, &peer->child, json_pack("{s:s}", "do", "version"), &answer);
    const char *version = json_string_value(json_object_get(answer, "version"));
    if (version) snprintf(peer->version, sizeof peer->version, "%s", version);
    json_decref(answer);
    return code;
}

static json_t *shape_json(const bench_llamacpp_shape *shape)
{
    const s24_model_info *info = shape->info;
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "type", info->model_type,
                     "vocabulary", (json_int_t)info->vocabulary, "positions",
                     (json_int_t)info->positions, "width", (json_int_t)info->width, "layers",
                     (json_int_t)info->layers, "heads", (json_int_t)info->heads, "kv_heads",
                     (json_int_t)shape->kv_heads, "intermediate", (json_int_t)info->intermediate);
}

int bench_llamacpp_prepare(cli_app *cli, bench_llamacpp *peer, const bench_llamacpp_shape *shape,
                           char type[16], int64_t *resident_bytes)
{
    json_t *answer;
    json_t *order = json_pack("{s:s, s:o, s:s, s:I, s:I, s:I}", "do", "prepare", "shape",
                              shape_json(shape), "dtype", shape->form, "threads",
                              (json_int_t)shape->threads, "batch", (json_int_t)shape->batch,
                              "tokens", (json_int_t)(shape->prompt + shape->new_tokens));
    const int code = bench_child_ask(cli, &peer->child, order, &answer);
    type[0] = 0;
    if (code != CLI_OK) return code;
    const char *refused = json_string_value(json_object_get(answer, "refused"));
    const char *name = json_string_value(json_object_get(answer, "type"));
    if (refused) cli_note(cli, "llama.cpp is left out: %s", refused);
    if (name) snprintf(type, 16, "%s", name);
    *resident_bytes = json_integer_value(json_object_get(answer, "private_bytes"));
    json_decref(answer);
    return CLI_OK;
}

int bench_llamacpp_turn(cli_app *cli, bench_llamacpp *peer, const bench_llamacpp_shape *shape,
                        double *prefill, double *step)
{
    json_t *answer;
    json_t *order = json_pack("{s:s, s:I, s:I}", "do", "turn", "prompt", (json_int_t)shape->prompt,
                              "new", (json_int_t)shape->new_tokens);
    const int code = bench_child_ask(cli, &peer->child, order, &answer);
    *prefill = json_number_value(json_object_get(answer, "prefill"));
    *step = json_number_value(json_object_get(answer, "step"));
    json_decref(answer);
    return code;
}
