// SPDX-License-Identifier: Apache-2.0
/* Runs another engine on the same shape and numbers of tokens, in turns with ours: llama.cpp on the
   CPU, PyTorch on a GPU. */
#include "bench/bench_decoder.h"

extern const char bench_llamacpp_script[], bench_static_script[];

static const struct {
    const char *name, *needs, *script;
} decoders[] = {{"llama.cpp", "llama_cpp and numpy", bench_llamacpp_script},
                {"torch", "torch and transformers", bench_static_script}};

const char *bench_decoder_name(int on_gpu)
{
    return decoders[on_gpu].name;
}

void bench_decoder_close(bench_decoder *peer)
{
    bench_child_end(&peer->child);
    *peer = (bench_decoder){.version = ""};
}

int bench_decoder_open(cli_app *cli, bench_decoder *peer, const char *python)
{
    json_t *answer = NULL;
    const int on_gpu = !cli_on_cpu(cli);
    *peer = (bench_decoder){.child = {.peer = decoders[on_gpu].name,
                                      .needs = decoders[on_gpu].needs,
                                      .python = python,
                                      .script = decoders[on_gpu].script}};
    int code = bench_child_start(cli, &peer->child);
    if (code == CLI_OK)
        code = bench_child_ask(cli, &peer->child, json_pack("{s:s}", "do", "version"), &answer);
    const char *version = json_string_value(json_object_get(answer, "version"));
    if (version) snprintf(peer->version, sizeof peer->version, "%s", version);
    json_decref(answer);
    return code;
}

static json_t *shape_json(const bench_decoder_shape *shape)
{
    const s24_model_info *info = shape->info;
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "type", info->model_type,
                     "vocabulary", (json_int_t)info->vocabulary, "positions",
                     (json_int_t)info->positions, "width", (json_int_t)info->width, "layers",
                     (json_int_t)info->layers, "heads", (json_int_t)info->heads, "kv_heads",
                     (json_int_t)shape->kv_heads, "intermediate", (json_int_t)info->intermediate);
}

int bench_decoder_prepare(cli_app *cli, bench_decoder *peer, const bench_decoder_shape *shape,
                          char type[16], int64_t *resident_bytes)
{
    json_t *answer;
    json_t *order =
        json_pack("{s:s, s:o, s:s, s:I, s:I, s:I, s:I}", "do", "prepare", "shape",
                  shape_json(shape), "dtype", shape->form, "threads", (json_int_t)shape->threads,
                  "batch", (json_int_t)shape->batch, "prompt", (json_int_t)shape->prompt, "tokens",
                  (json_int_t)(shape->prompt + shape->new_tokens));
    const int code = bench_child_ask(cli, &peer->child, order, &answer);
    type[0] = 0;
    if (code != CLI_OK) return code;
    const char *refused = json_string_value(json_object_get(answer, "refused"));
    const char *name = json_string_value(json_object_get(answer, "type"));
    if (refused) cli_note(cli, "%s is left out: %s", peer->child.peer, refused);
    if (name) snprintf(type, 16, "%s", name);
    *resident_bytes = json_integer_value(json_object_get(answer, "private_bytes"));
    json_decref(answer);
    return CLI_OK;
}

int bench_decoder_turn(cli_app *cli, bench_decoder *peer, const bench_decoder_shape *shape,
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
