// SPDX-License-Identifier: Apache-2.0
/*
 * Calibration: the texts go through the model once, block by block, and each block is pruned on the
 * inputs that the blocks before it, pruned already, give it.
 *
 *     hidden = embeddings of all texts                        [tokens, width], the only large array
 *     for each block:  run it on copies of hidden, gathering the Gram matrix of each layer's inputs
 *                      prune its layers, put the new weights in, forget the Gram matrices
 *                      run it on hidden itself
 *
 * Texts are cut at max_tokens and laid end to end: no padding, so every row of a Gram matrix is a token.
 */
#include "nn/model_prune.h"

#include <string.h>

#include "io/config.h"
#include "nn/session.h"

enum { BATCH_TOKENS = 4096 };

/* Which slots share their input, by the slot the observer names it with. */
static const s24i_slot input_of[S24I_SLOTS] = {S24I_QUERY,     S24I_QUERY,        S24I_QUERY,
                                               S24I_ATTENTION, S24I_INTERMEDIATE, S24I_OUTPUT};

typedef struct calibration {
    const s24i_pruner *pruner;
    s24_ctx *ctx;
    s24_model *model;
    s24_session *session;
    int64_t max_tokens; /* of a text */
    int64_t texts;
    int64_t *ends; /* [texts + 1]: text t is ids[ends[t]] … ids[ends[t + 1]] */
    int32_t *ids;
    int64_t ids_capacity;
    int64_t most_tokens;            /* of a batch */
    int64_t *offsets;               /* [texts + 1]: of the batch at hand */
    float *hidden;                  /* [tokens, width] */
    float *copy;                    /* [most_tokens, width] */
    const s24_tensor **tensors;     /* [layers][S24I_SLOTS] */
    float *weights[S24I_SLOTS];     /* of the block at hand */
    s24_stats *stats[S24I_SLOTS];   /* of the block at hand, by input_of */
    const s24_tensor *const *block; /* its tensors */
    int64_t done, total;            /* steps of progress: batches and blocks */
} calibration;

static s24_status advance(calibration *c)
{
    return s24_ctx_progress(c->ctx, "pruning", ++c->done, c->total);
}

/* ---- texts -------------------------------------------------------------------------------------- */

/* What opts ask for, else sentence_bert_config.json's max_seq_length, else the model's positions. */
static s24_status read_max_tokens(calibration *c)
{
    const int64_t positions = c->model->shape.positions;
    const char *folder = s24_checkpoint_folder(c->pruner->in);
    s24i_config config;
    c->max_tokens = c->pruner->opts.max_tokens;
    if (c->max_tokens == 0) {
        c->max_tokens = positions;
        TRY(s24i_config_load(&config, c->ctx, folder, "sentence_bert_config.json", S24I_OPTIONAL));
        const s24_status status = config.json
                                      ? s24i_config_int(&c->max_tokens, &config, "max_seq_length",
                                                        S24I_OPTIONAL, 2, INT32_MAX)
                                      : S24_OK;
        s24i_config_free(&config);
        TRY(status);
        c->max_tokens = s24i_min(c->max_tokens, positions);
    }
    REQUIRE(c->ctx, c->max_tokens >= 2 && c->max_tokens <= positions, S24_ERROR_ARGUMENT,
            "max_tokens is %lld; 2 to the model's %lld positions was expected",
            (long long)c->max_tokens, (long long)positions);
    return S24_OK;
}

static s24_status reserve_ids(calibration *c, int64_t count)
{
    int32_t *larger;
    if (count <= c->ids_capacity) return S24_OK;
    const int64_t capacity = s24i_max(2 * c->ids_capacity, count);
    TRY(s24i_alloc_elems(&larger, c->ctx, capacity, sizeof *larger, "token ids"));
    if (c->ids) memcpy(larger, c->ids, (size_t)c->ids_capacity * sizeof *larger);
    s24_ctx_free(c->ctx, c->ids);
    c->ids = larger;
    c->ids_capacity = capacity;
    return S24_OK;
}

static s24_status encode_texts(calibration *c, const s24_tokenizer *tokenizer, s24_token *tokens)
{
    c->ends[0] = 0;
    for (int64_t t = 0; t < c->texts; t++) {
        const s24_text *text = &c->pruner->opts.texts[t];
        int64_t count;
        TRY(s24_tokenizer_encode(tokens, &count, c->max_tokens, tokenizer, c->ctx, text->data,
                                 text->bytes, NULL, 0));
        TRY(reserve_ids(c, c->ends[t] + count));
        for (int64_t i = 0; i < count; i++)
            c->ids[c->ends[t] + i] = tokens[i].id;
        c->ends[t + 1] = c->ends[t] + count;
    }
    return S24_OK;
}

static s24_status tokenize(calibration *c)
{
    s24_tokenizer *tokenizer = NULL;
    s24_token *tokens = NULL;
    s24_status status;
    TRY(read_max_tokens(c));
    TRY(s24i_alloc_elems(&c->ends, c->ctx, c->texts + 1, sizeof *c->ends, "texts"));
    TRY(s24i_alloc_elems(&c->offsets, c->ctx, c->texts + 1, sizeof *c->offsets, "texts"));
    TRY_DONE(s24_tokenizer_load(&tokenizer, c->ctx, s24_checkpoint_folder(c->pruner->in)));
    TRY_DONE(s24i_alloc_elems(&tokens, c->ctx, c->max_tokens, sizeof *tokens, "tokens"));
    status = encode_texts(c, tokenizer, tokens);
done:
    s24_ctx_free(c->ctx, tokens);
    s24_tokenizer_destroy(tokenizer);
    return status;
}

/* ---- batches ------------------------------------------------------------------------------------ */

/* The text behind the batch that begins at `first`: whole texts, at least one. */
static int64_t batch_end(const calibration *c, int64_t first)
{
    int64_t end = first + 1;
    while (end < c->texts && c->ends[end + 1] - c->ends[first] <= BATCH_TOKENS)
        end++;
    return end;
}

static s24_batch batch_of(calibration *c, int64_t first, int64_t end)
{
    for (int64_t t = first; t <= end; t++)
        c->offsets[t - first] = c->ends[t] - c->ends[first];
    return (s24_batch){.texts = end - first, .offsets = c->offsets, .ids = c->ids + c->ends[first]};
}

static float *hidden_of(const calibration *c, int64_t text)
{
    return c->hidden + c->ends[text] * c->model->shape.width;
}

static s24_status embed(calibration *c)
{
    for (int64_t first = 0, end; first < c->texts; first = end) {
        end = batch_end(c, first);
        const s24_batch batch = batch_of(c, first, end);
        TRY(s24i_session_embed(c->session, c->ctx, &batch, hidden_of(c, first)));
    }
    return S24_OK;
}

static s24_status observe_input(void *user, s24i_slot slot, const s24_dense *x)
{
    const calibration *c = user;
    if (!c->stats[slot]) return S24_OK;
    return s24i_pruner_name(c->pruner, s24_stats_add(c->stats[slot], c->ctx, x), c->block[slot]);
}

/* All texts through a block: observed, hidden stays; else hidden becomes the block's output. */
static s24_status run_block(calibration *c, int64_t block, int observed)
{
    const s24i_observer observer = {observe_input, c};
    for (int64_t first = 0, end; first < c->texts; first = end) {
        end = batch_end(c, first);
        const s24_batch batch = batch_of(c, first, end);
        float *hidden = hidden_of(c, first);
        const int64_t elems = batch.offsets[batch.texts] * c->model->shape.width;
        if (observed) memcpy(c->copy, hidden, (size_t)elems * sizeof *hidden);
        TRY(s24i_session_block(c->session, c->ctx, &batch, block, observed ? c->copy : hidden,
                               observed ? &observer : NULL));
        TRY(advance(c));
    }
    return S24_OK;
}

/* ---- blocks ------------------------------------------------------------------------------------- */

static void clear_stats(calibration *c)
{
    for (int slot = 0; slot < S24I_SLOTS; slot++) {
        s24_stats_destroy(c->stats[slot]);
        c->stats[slot] = NULL;
    }
}

/* Does any layer of the block get pruned? */
static int takes_block(const calibration *c, int64_t block)
{
    for (int slot = 0; slot < S24I_SLOTS; slot++)
        if (s24i_pruner_takes(c->pruner, c->tensors[block * S24I_SLOTS + slot])) return 1;
    return 0;
}

/* Empty statistics for the inputs of the layers to prune. */
static s24_status make_stats(calibration *c)
{
    for (int slot = 0; slot < S24I_SLOTS; slot++) {
        s24_stats **stats = &c->stats[input_of[slot]];
        if (!*stats && s24i_pruner_takes(c->pruner, c->block[slot]))
            TRY(s24_stats_create(stats, c->ctx, c->block[slot]->shape[1]));
    }
    return S24_OK;
}

static s24_status prune_layers(calibration *c, int64_t block)
{
    s24_dense weights[S24I_SLOTS];
    for (int slot = 0; slot < S24I_SLOTS; slot++) {
        const s24_tensor *tensor = c->block[slot];
        weights[slot] =
            (s24_dense){c->weights[slot], S24_F32, tensor->shape[0], tensor->shape[1], 0};
        TRY(s24i_pruner_name(c->pruner, s24i_pruner_load(c->pruner, c->weights[slot], tensor),
                             tensor));
        if (!s24i_pruner_takes(c->pruner, tensor)) continue;
        TRY(s24i_pruner_layer(c->pruner, c->weights[slot], tensor, c->stats[input_of[slot]]));
    }
    return s24i_model_set_block(c->model, c->ctx, block, weights);
}

static s24_status prune_block(calibration *c, int64_t block)
{
    c->block = c->tensors + block * S24I_SLOTS;
    if (takes_block(c, block)) {
        TRY(make_stats(c));
        TRY(run_block(c, block, 1));
        TRY(prune_layers(c, block));
        clear_stats(c);
    }
    return block + 1 < c->model->shape.layers ? run_block(c, block, 0) : S24_OK;
}

static s24_status find_tensors(calibration *c)
{
    TRY(s24i_alloc_elems(&c->tensors, c->ctx, c->model->shape.layers * S24I_SLOTS,
                         sizeof *c->tensors, "the table of layers"));
    for (int64_t i = 0; i < s24_checkpoint_count(c->pruner->in); i++) {
        const s24_tensor *tensor = s24_checkpoint_tensor(c->pruner->in, i);
        int64_t block;
        s24i_slot slot;
        if (s24i_model_find_linear(&block, &slot, c->model, tensor->name))
            c->tensors[block * S24I_SLOTS + slot] = tensor;
    }
    return S24_OK;
}

static s24_status prepare(calibration *c)
{
    int64_t batches = 0;
    TRY(find_tensors(c));
    TRY(tokenize(c));
    for (int64_t first = 0, end; first < c->texts; first = end, batches++) {
        end = batch_end(c, first);
        c->most_tokens = s24i_max(c->most_tokens, c->ends[end] - c->ends[first]);
    }
    for (int64_t b = 0; b < c->model->shape.layers; b++)
        c->total += batches * (takes_block(c, b) + (b + 1 < c->model->shape.layers));
    const int64_t width = c->model->shape.width;
    TRY(s24i_alloc_elems(&c->hidden, c->ctx, c->ends[c->texts] * width, sizeof *c->hidden,
                         "the hidden states of the calibration texts"));
    TRY(s24i_alloc_elems(&c->copy, c->ctx, c->most_tokens * width, sizeof *c->copy,
                         "the hidden states of a batch"));
    for (int slot = 0; slot < S24I_SLOTS; slot++) {
        int64_t rows, cols;
        s24i_slot_shape(&rows, &cols, &c->model->shape, (s24i_slot)slot);
        TRY(s24i_alloc_elems(&c->weights[slot], c->ctx, rows * cols, sizeof(float), "a weight"));
    }
    return s24_session_create(&c->session, c->ctx, c->model, c->most_tokens);
}

s24_status s24i_pruner_blocks(const s24i_pruner *pruner, s24_model *model)
{
    calibration c = {.pruner = pruner, .ctx = pruner->ctx, .model = model};
    s24_status status;
    c.texts = pruner->opts.text_count;
    TRY_DONE(prepare(&c));
    TRY_DONE(embed(&c));
    for (int64_t b = 0; b < model->shape.layers; b++)
        TRY_DONE(prune_block(&c, b));
done:
    clear_stats(&c);
    s24_session_destroy(c.session);
    for (int slot = 0; slot < S24I_SLOTS; slot++)
        s24_ctx_free(c.ctx, c.weights[slot]);
    s24_ctx_free(c.ctx, c.copy);
    s24_ctx_free(c.ctx, c.hidden);
    s24_ctx_free(c.ctx, (void *)c.tensors);
    s24_ctx_free(c.ctx, c.offsets);
    s24_ctx_free(c.ctx, c.ids);
    s24_ctx_free(c.ctx, c.ends);
    return status;
}
