// SPDX-License-Identifier: Apache-2.0
/* What config.json says about a model: its shape, and which head it was trained for. */
#include "io/image/image_form.h"
#include "model/apart.h"
#include "model/text_config.h"
#include "model/tower.h"

#include <stdio.h>
#include <string.h>

/* Far beyond any encoder, and small enough that no product of three of them overflows. */
enum { MOST_ROWS = 1 << 24, MOST_WIDTH = 1 << 16 };

/* Of a gate that is clamped, whatever is said of an activation. */
static s24_status read_clamped(s24i_shape *shape, const s24i_config *config)
{
    double limit = 7;
    TRY(s24i_config_double(&limit, config, "swiglu_limit", S24I_OPTIONAL, 1e-3, 1e6));
    shape->activation = S24_ACTIVATION_GELU_QUICK;
    shape->gate_limit = (float)limit;
    return S24_OK;
}

static s24_status read_activation(s24i_shape *shape, const s24i_config *config,
                                  const s24i_architecture *arch)
{
    static const struct {
        const char *name;
        s24_activation activation;
        int squared;
    } names[] = {{"gelu", S24_ACTIVATION_GELU, 0},
                 {"gelu_new", S24_ACTIVATION_GELU_TANH, 0},
                 {"gelu_pytorch_tanh", S24_ACTIVATION_GELU_TANH, 0},
                 {"relu", S24_ACTIVATION_RELU, 0},
                 {"silu", S24_ACTIVATION_SILU, 0},
                 {"quick_gelu", S24_ACTIVATION_GELU_QUICK, 0},
                 {"relu2", S24_ACTIVATION_RELU, 1},
                 /* Other spellings of these. */
                 {"gelu_python", S24_ACTIVATION_GELU, 0},
                 {"gelu_fast", S24_ACTIVATION_GELU_TANH, 0},
                 {"gelu_accurate", S24_ACTIVATION_GELU_TANH, 0},
                 {"gelu_python_tanh", S24_ACTIVATION_GELU_TANH, 0},
                 {"swish", S24_ACTIVATION_SILU, 0},
                 /* Of a gate, as its gate. */
                 {"swiglu", S24_ACTIVATION_SILU, 0},
                 {"geglu", S24_ACTIVATION_GELU, 0},
                 {"reglu", S24_ACTIVATION_RELU, 0},
                 {"gated-gelu", S24_ACTIVATION_GELU_TANH, 0},
                 {"gated-relu", S24_ACTIVATION_RELU, 0},
                 {"gated-silu", S24_ACTIVATION_SILU, 0}};
    const char *name = arch->activation ? arch->activation : "gelu";
    TRY(s24i_config_string(&name, config, arch->key_activation, S24I_OPTIONAL));
    if (arch->gate_is_silu) name = "silu";
    if (arch->alternates) return read_clamped(shape, config);
    if (arch->gelu_is_tanh && !strcmp(name, "gelu")) name = "gelu_pytorch_tanh";
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i].name, name) != 0) continue;
        shape->activation = names[i].activation;
        shape->squared = names[i].squared;
        return S24_OK;
    }
    return s24_ctx_fail(config->ctx, S24_ERROR_UNSUPPORTED,
                        "%s: %s is '%s'; gelu, gelu_new, gelu_pytorch_tanh, quick_gelu, relu, "
                        "relu2 or silu was expected",
                        config->file, arch->key_activation, s24i_show(name).text);
}

/* A key that the architecture may not have, which leaves *out as it is. */
static s24_status read_int(int64_t *out, const s24i_config *config, const char *key, s24i_need need,
                           int64_t min, int64_t max)
{
    return key ? s24i_config_int(out, config, key, need, min, max) : S24_OK;
}

static s24_status read_float(float *out, const s24i_config *config, const char *key, double min,
                             double max)
{
    double value = (double)*out;
    if (key) TRY(s24i_config_double(&value, config, key, S24I_OPTIONAL, min, max));
    *out = (float)value;
    return S24_OK;
}

/* The numbers of an array as bits. */
static s24_status read_blocks(uint64_t *blocks, const s24i_config *config, const char *key,
                              int64_t layers)
{
    s24i_config array;
    TRY(s24i_config_child(&array, config, key, S24I_REQUIRED));
    s24i_json_walk walk = s24i_json_begin(array.json);
    const s24i_json *item;
    for (size_t i = 0; (item = s24i_json_next(&walk, NULL)) != NULL; i++) {
        const int is_integer = s24i_json_typeof(item) == S24I_JSON_INTEGER;
        const int64_t block = is_integer ? s24i_json_integer(item) : -1;
        REQUIRE(config->ctx, block >= 0 && block < layers, S24_ERROR_FORMAT,
                "%s: element %zu of %s is no number of a block, 0 to %lld", config->file, i, key,
                (long long)layers - 1);
        *blocks |= (uint64_t)1 << block;
    }
    return S24_OK;
}

/* Positions of an image are its patches and the tokens before them. */
static void set_image(s24i_shape *shape, const s24i_architecture *arch, int64_t image)
{
    const int64_t side = image / shape->patch;
    shape->image = image;
    shape->positions = side * side + (arch->first_token != NULL) + shape->more_tokens;
    if (!arch->rotary) return;
    shape->rope.side = side;
    shape->rope.before = shape->positions - side * side;
}

static s24_status read_image(s24i_shape *shape, const s24i_config *config,
                             const s24i_architecture *arch)
{
    if (!arch->key_image) return S24_OK;
    shape->channels = 3;
    TRY(s24i_config_int(&shape->image, config, arch->key_image, S24I_REQUIRED, 1, 1 << 14));
    TRY(s24i_config_int(&shape->patch, config, arch->key_patch, S24I_REQUIRED, 1, 1 << 14));
    TRY(s24i_config_int(&shape->channels, config, arch->key_channels, S24I_OPTIONAL, 1, 1 << 10));
    REQUIRE(config->ctx, shape->image % shape->patch == 0, S24_ERROR_FORMAT,
            "%s: %s %lld is no multiple of %s %lld", config->file, arch->key_image,
            (long long)shape->image, arch->key_patch, (long long)shape->patch);
    shape->table_side = shape->image / shape->patch;
    if (arch->more_tokens) shape->more_tokens = 1;
    TRY(read_int(&shape->more_tokens, config, arch->key_more_tokens, S24I_OPTIONAL, 0, 1 << 10));
    set_image(shape, arch, shape->image);
    shape->probes = arch->probe != NULL;
    return arch->key_probe
               ? s24i_config_bool(&shape->probes, config, arch->key_probe, S24I_OPTIONAL)
               : S24_OK;
}

/* Windows of attention, and the blocks that have none. */
static s24_status read_grid(s24i_shape *shape, const s24i_config *config,
                            const s24i_architecture *arch)
{
    enum { MOST_LAYERS = 64 };
    int relative = 1, absolute = 1;
    if (!arch->rel_h) return S24_OK;
    shape->grid = shape->image / shape->patch;
    TRY(s24i_config_bool(&relative, config, "use_rel_pos", S24I_OPTIONAL));
    TRY(s24i_config_bool(&absolute, config, "use_abs_pos", S24I_OPTIONAL));
    REQUIRE(config->ctx, relative && absolute, S24_ERROR_UNSUPPORTED,
            "%s: %s is false; only true is supported", config->file,
            relative ? "use_abs_pos" : "use_rel_pos");
    TRY(s24i_config_int(&shape->window, config, arch->key_window, S24I_REQUIRED, 0, shape->grid));
    REQUIRE(config->ctx, shape->layers <= MOST_LAYERS, S24_ERROR_UNSUPPORTED,
            "%s: %lld blocks with windows; at most %d are supported", config->file,
            (long long)shape->layers, MOST_LAYERS);
    return read_blocks(&shape->global_blocks, config, arch->key_globals, shape->layers);
}

static s24_status read_heads(s24i_shape *shape, const s24i_config *config,
                             const s24i_architecture *arch)
{
    TRY(s24i_config_int(&shape->heads, config, arch->key_heads, S24I_REQUIRED, 1, MOST_WIDTH));
    shape->kv_heads = shape->heads;
    TRY(read_int(&shape->kv_heads, config, arch->key_kv_heads, S24I_OPTIONAL, 1, MOST_WIDTH));
    shape->head_width = shape->width / shape->heads;
    int64_t said = 0;
    TRY(read_int(&said, config, arch->key_head_width, S24I_OPTIONAL, 1, MOST_WIDTH));
    if (said) shape->head_width = said;
    REQUIRE(config->ctx, said || shape->width % shape->heads == 0, S24_ERROR_FORMAT,
            "%s: %s %lld is no multiple of %s %lld", config->file, arch->key_width,
            (long long)shape->width, arch->key_heads, (long long)shape->heads);
    REQUIRE(config->ctx, shape->heads % shape->kv_heads == 0, S24_ERROR_FORMAT,
            "%s: %s %lld is no multiple of %s %lld", config->file, arch->key_heads,
            (long long)shape->heads, arch->key_kv_heads, (long long)shape->kv_heads);
    const int64_t each = arch->patches ? 4 : 2;
    REQUIRE(config->ctx, !arch->rotary || shape->head_width % each == 0, S24_ERROR_FORMAT,
            "%s: heads of %lld; %s width was expected by rotary positions", config->file,
            (long long)shape->head_width, each == 2 ? "an even" : "a multiple of 4 as");
    return S24_OK;
}

/* What tables hold besides a row of the blocks' width for each position. */
static s24_status read_tables(s24i_shape *shape, const s24i_config *config,
                              const s24i_architecture *arch)
{
    enum { LEAST_BUCKETS = 4, MOST_BUCKETS = 1 << 12, USUAL_FARTHEST = 128 };
    int64_t padding = 1;
    if (arch->relative) shape->buckets = S24I_BUCKETS;
    shape->tables = arch->relative && strchr(arch->relative, '%') ? shape->layers : 0;
    shape->farthest = USUAL_FARTHEST;
    TRY(read_int(&shape->buckets, config, arch->key_buckets, S24I_OPTIONAL,
                 arch->key_farthest ? LEAST_BUCKETS : S24I_BUCKETS, MOST_BUCKETS));
    shape->buckets_read = arch->key_farthest ? shape->buckets : S24I_BUCKETS;
    TRY(read_int(&shape->farthest, config, arch->key_farthest, S24I_OPTIONAL,
                 shape->buckets_read / 4 + 1, MOST_ROWS));
    TRY(read_int(&shape->end, config, arch->key_end, S24I_OPTIONAL, 0, MOST_ROWS));
    /* CLIP's first folders say 2, which ends no text of theirs: the highest id does. */
    if (shape->end == 2) shape->end = 0;
    shape->embedding = shape->width;
    TRY(read_int(&shape->embedding, config, arch->key_embedding, S24I_OPTIONAL, 1, MOST_WIDTH));
    REQUIRE(config->ctx, arch->project || shape->embedding == shape->width, S24_ERROR_UNSUPPORTED,
            "%s: %s is %lld; only %lld, the width of the blocks, is supported", config->file,
            arch->key_embedding, (long long)shape->embedding, (long long)shape->width);
    shape->projects = arch->always_projects;
    shape->skipped = arch->position_rows_before;
    if (!arch->key_padding) return S24_OK;
    TRY(s24i_config_int(&padding, config, arch->key_padding, S24I_OPTIONAL, 0, MOST_ROWS));
    shape->skipped = padding + 1;
    shape->pads = 1;
    shape->positions -= shape->skipped;
    REQUIRE(config->ctx, shape->positions > 0, S24_ERROR_FORMAT,
            "%s: %s is %lld; more than %s, %lld, and one was expected", config->file,
            arch->key_positions, (long long)(shape->positions + shape->skipped), arch->key_padding,
            (long long)padding);
    return S24_OK;
}

/* Is a key there, and on (1) or off (0)? */
static int is_set(const s24i_config *config, const char *key, int on)
{
    const s24i_json *value = s24i_json_get(config->json, key);
    const s24i_json_type type = s24i_json_typeof(value);
    if (type <= S24I_JSON_NULL) return 0;
    return on == (type == S24I_JSON_BOOL ? s24i_json_is_true(value) : s24i_json_number(value) != 0);
}

/* Words that are masked, if they change a text's others. */
static s24_status read_masked(s24i_shape *shape, const s24i_config *config,
                              const s24i_architecture *arch)
{
    if (!arch->key_masked) return S24_OK;
    TRY(s24i_config_bool(&shape->masked_grows, config, arch->key_masked_grows, S24I_OPTIONAL));
    if (!shape->masked_grows) return S24_OK;
    return s24i_config_int(&shape->masked, config, arch->key_masked, S24I_REQUIRED, 0, MOST_ROWS);
}

static s24_status check_position_type(const s24i_config *config, const s24i_architecture *arch)
{
    const char *found = "absolute", *wanted = arch->position_type ? arch->position_type : found;
    if (!arch->key_position_type) return S24_OK;
    TRY(s24i_config_string(&found, config, arch->key_position_type, S24I_OPTIONAL));
    REQUIRE(config->ctx, strcmp(found, wanted) == 0, S24_ERROR_UNSUPPORTED,
            "%s: %s is '%s'; only %s is supported", config->file, arch->key_position_type,
            s24i_show(found).text, wanted);
    return S24_OK;
}

/* What a row's models have not, or always have. */
static s24_status check_switches(const s24i_config *config, const s24i_architecture *arch)
{
    for (const char *const *key = arch->off; key && *key; key++)
        REQUIRE(config->ctx, !is_set(config, *key, 1), S24_ERROR_UNSUPPORTED,
                "%s: %s is on, which is not supported", config->file, *key);
    for (const char *const *key = arch->one; key && *key; key++) {
        int64_t value = 1;
        TRY(s24i_config_int(&value, config, *key, S24I_OPTIONAL, 1, MOST_ROWS));
        REQUIRE(config->ctx, value == 1, S24_ERROR_UNSUPPORTED,
                "%s: %s is %lld; only 1 is supported", config->file, *key, (long long)value);
    }
    REQUIRE(config->ctx, !arch->causal || !is_set(config, "is_causal", 0), S24_ERROR_UNSUPPORTED,
            "%s: is_causal is false, which is not supported of a model of type '%s'", config->file,
            arch->model_type);
    REQUIRE(config->ctx, !arch->key_on || !is_set(config, arch->key_on, 0), S24_ERROR_UNSUPPORTED,
            "%s: %s is off, which is not supported", config->file, arch->key_on);
    return S24_OK;
}

static s24_status read_intermediate(s24i_shape *shape, const s24i_config *config,
                                    const s24i_architecture *arch)
{
    enum { MULTIPLE = 8 };
    int64_t ratio = 4;
    TRY(read_int(&ratio, config, arch->key_ratio, S24I_OPTIONAL, 1, 1 << 8));
    /* GPT-2 and GPT-Neo leave it out for four times the width; the others say it. */
    const int optional = arch->joint || (arch->causal && !shape->gated);
    shape->intermediate = ratio * shape->width;
    if (arch->key_ratio && shape->gated) /* as many weights as without a gate */
        shape->intermediate = s24i_round_up(shape->intermediate * 2 / 3, MULTIPLE);
    return arch->key_ratio
               ? S24_OK
               : s24i_config_int(&shape->intermediate, config, arch->key_intermediate,
                                 optional ? S24I_OPTIONAL : S24I_REQUIRED, 1, 4 * MOST_WIDTH);
}

static s24_status read_shape(s24i_shape *shape, const s24i_config *config,
                             const s24i_architecture *arch)
{
    TRY(check_switches(config, arch));
    TRY(check_position_type(config, arch));
    TRY(read_masked(shape, config, arch));
    shape->types = arch->key_types ? 2 : 0;
    shape->joint = arch->joint;
    shape->gated = s24i_is_gated(arch);
    shape->joint_gate = arch->joint_gate;
    shape->eps = arch->usual_eps > 0.0f ? arch->usual_eps : 1e-12f;
    TRY(read_int(&shape->vocabulary, config, arch->key_vocabulary, S24I_REQUIRED, 1, MOST_ROWS));
    shape->positions = arch->usual_positions;
    TRY(read_int(&shape->positions, config, arch->key_positions, S24I_REQUIRED, 1, MOST_ROWS));
    TRY(read_int(&shape->types, config, arch->key_types, S24I_OPTIONAL, 0, MOST_WIDTH));
    TRY(s24i_config_int(&shape->width, config, arch->key_width, S24I_REQUIRED, 1, MOST_WIDTH));
    TRY(s24i_config_int(&shape->layers, config, arch->key_layers, S24I_REQUIRED, 1, 4096));
    TRY(read_heads(shape, config, arch));
    TRY(read_intermediate(shape, config, arch));
    TRY(read_float(&shape->eps, config, arch->key_eps, 0.0, 1.0));
    TRY(read_float(&shape->dropout, config, arch->key_dropout, 0.0, 1.0));
    TRY(read_float(&shape->attention_dropout, config, arch->key_attention_dropout, 0.0, 1.0));
    TRY(read_activation(shape, config, arch));
    TRY(s24i_factors_read(shape, config, arch));
    TRY(read_image(shape, config, arch));
    TRY(read_grid(shape, config, arch));
    TRY(s24i_rope_read(shape, config, arch));
    TRY(s24i_windows_read(shape, config, arch));
    TRY(read_tables(shape, config, arch));
    TRY(s24i_apart_read(shape, config, arch));
    TRY(s24i_latent_read(shape, config, arch));
    return s24i_mixture_read(shape, config, arch);
}

/* The size that images come in, of a model whose positions follow it. */
static s24_status read_size(s24i_shape *shape, s24_ctx *ctx, const s24i_architecture *arch,
                            const char *folder)
{
    int64_t size = 0;
    if (!arch->interpolates) return S24_OK;
    TRY(s24i_image_size_read(&size, ctx, folder));
    if (!size) return S24_OK;
    REQUIRE(ctx, size % shape->patch == 0, S24_ERROR_UNSUPPORTED,
            "%s/preprocessor_config.json: images of %lld pixels a side are no whole number of "
            "patches of %lld",
            folder, (long long)size, (long long)shape->patch);
    set_image(shape, arch, size);
    return S24_OK;
}

/* Of the whole object, or of a tower's in it. */
static s24_status read_part(s24i_shape *shape, const s24i_config *whole,
                            const s24i_architecture *arch)
{
    s24i_config config, usual;
    TRY(s24i_tower_config(&config, &usual, whole, arch));
    const s24_status status = read_shape(shape, &config, arch);
    s24i_config_free(&usual);
    return status;
}

s24_status s24i_shape_read(s24i_shape *shape, s24_ctx *ctx, const s24i_architecture *architecture,
                           const char *folder)
{
    s24i_config config;
    *shape = (s24i_shape){0};
    s24_status status = s24i_config_load(&config, ctx, folder, "config.json", S24I_REQUIRED);
    if (status == S24_OK) status = read_part(shape, &config, architecture);
    if (status == S24_OK) status = read_size(shape, ctx, architecture, folder);
    s24i_config_free(&config);
    return status;
}

s24_status s24i_next_token_read(int *has, s24_ctx *ctx, const s24i_architecture *architecture,
                                const s24_checkpoint *checkpoint)
{
    char name[S24I_NAME_BYTES];
    s24i_config config;
    *has = architecture->lm_head != NULL;
    if (!*has ||
        s24i_tensor_find(name, checkpoint, architecture, architecture->lm_head, 0, ".weight"))
        return S24_OK;
    TRY(s24i_config_load(&config, ctx, s24_checkpoint_folder(checkpoint), "config.json",
                         S24I_REQUIRED));
    s24i_config part, usual;
    s24_status status = s24i_tower_config(&part, &usual, &config, architecture);
    if (status == S24_OK)
        status = s24i_config_bool(has, &part, "tie_word_embeddings", S24I_OPTIONAL);
    if (status == S24_OK)
        status = s24i_config_bool(has, &config, "tie_word_embeddings", S24I_OPTIONAL);
    s24i_config_free(&usual);
    s24i_config_free(&config);
    return status;
}

/* ---- models that are no encoders ------------------------------------------------------------- */

/* A model that was trained for a head: how its architecture's name ends, or what tensor is
   there. */
typedef struct headed {
    const char *architecture, *tensor;
    const char *does;
    const char *instead; /* what it is for here */
} headed;

static const headed heads[] = {
    {"ForSequenceClassification", "classifier.weight", "scores texts or pairs of texts", ""},
    {"ForSequenceClassification", "classifier.out_proj.weight", "scores texts or pairs of texts",
     ""},
    {"ForSequenceClassification", "score.weight", "scores texts or pairs of texts", ""},
    {"ForQuestionAnswering", "qa_outputs.weight", "finds answers in a text",
     ", and eval --task qa measures this one"},
    {"ForTokenClassification", NULL, "classifies tokens", ""},
    {"ForMultipleChoice", NULL, "chooses among texts", ""},
    {"ForNextSentencePrediction", NULL, "judges whether two texts belong together", ""},
    {"ForMaskedLM", NULL, "fills in words", ""},
    {"ForPreTraining", NULL, "fills in words", ""},
    {"LMHeadModel", NULL, "continues a text", ", and eval --task lm measures this one"},
    {"ForCausalLM", NULL, "continues a text", ", and eval --task lm measures this one"}};

static s24_status refuse_head(s24_ctx *ctx, const char *folder, const char *evidence,
                              const headed *head)
{
    return s24_ctx_fail(ctx, S24_ERROR_UNSUPPORTED,
                        "%s: %s says that the model %s. Its token vectors were not trained to be "
                        "pooled, and no modules.json says how: an encoder's folder is expected%s",
                        folder, evidence, head->does, head->instead);
}

static s24_status check_heads(s24_ctx *ctx, const s24_checkpoint *checkpoint,
                              const char *architecture)
{
    const char *folder = s24_checkpoint_folder(checkpoint);
    char evidence[160];
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        if (architecture && s24i_ends_with(architecture, heads[i].architecture)) {
            snprintf(evidence, sizeof evidence, "architectures in config.json, '%s',",
                     s24i_show(architecture).text);
            return refuse_head(ctx, folder, evidence, &heads[i]);
        }
        if (heads[i].tensor && s24_checkpoint_find(checkpoint, heads[i].tensor)) {
            snprintf(evidence, sizeof evidence, "tensor '%s'", heads[i].tensor);
            return refuse_head(ctx, folder, evidence, &heads[i]);
        }
    }
    const char *type = s24_checkpoint_model_type(checkpoint);
    const s24i_architecture *arch = s24i_architecture_of(checkpoint);
    if (!arch || !arch->causal || arch->key_end) return S24_OK;
    snprintf(evidence, sizeof evidence, "model_type in config.json, '%s',", type);
    return refuse_head(ctx, folder, evidence, &heads[sizeof heads / sizeof *heads - 1]);
}

s24_status s24i_pooling_check(s24_ctx *ctx, const s24_checkpoint *checkpoint)
{
    const char *folder = s24_checkpoint_folder(checkpoint);
    s24i_config config, names = {.json = NULL};
    int is_said;
    TRY(s24i_pooling_said(&is_said, ctx, folder));
    if (is_said) return S24_OK;
    s24_status status = s24i_config_load(&config, ctx, folder, "config.json", S24I_REQUIRED);
    if (status == S24_OK)
        status = s24i_config_child(&names, &config, "architectures", S24I_OPTIONAL);
    if (status == S24_OK)
        status = check_heads(ctx, checkpoint, s24i_json_string(s24i_json_at(names.json, 0)));
    s24i_config_free(&config);
    return status;
}
