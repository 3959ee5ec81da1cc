// SPDX-License-Identifier: Apache-2.0
/*
 * Calibration: the texts go through the model once, block by block, and each layer is pruned on the
 * inputs that all layers before it, pruned already, give it.
 *
 *     hidden = embeddings of all texts                   [tokens, width], the only large array
 *     for each block, whose weights are in memory for so long:
 *         for each stage of layers that share an input:
 *             run copies of hidden up to that input, gathering its Gram matrix
 *             prune the stage's layers and put their new weights in
 *         then run the block on hidden itself
 *
 * The runs up to the four inputs cost 0, 3, 4 and 8 of a block's 12·width² multiplications a token,
 * so going stage by stage, one Gram matrix at a time, costs little more than one look at them all.
 * Of a mixture each expert has statistics of its own, of the tokens that the router sends to it,
 * and as many experts are looked at together as a limit of memory lets. One that no token takes
 * has those of inputs that are all alike and independent, by which every criterion is magnitude.
 *
 * Texts are cut at max_tokens and laid end to end: no padding, every row of an input is a token. An
 * image is a text whose tokens are its patches.
 */
#include "io/checkpoint/checkpoint.h"
#include "recipe/prune_ranks.h"
#include "recipe/reach.h"

#include <string.h>

#include "io/checkpoint/config.h"
#include "run/session.h"

enum { BATCH_TOKENS = 4096, GRAM_BYTES = 1 << 30 };

enum { NOTHING_OBSERVED = -1 };
typedef s24i_stage stage;
typedef s24i_calibration calibration;

/* ---- texts ----------------------------------------------------------------------------------- */

/* What opts ask for, else what the folder says. */
static s24_status read_max_tokens(calibration *c)
{
    const int64_t positions = c->model->shape.positions;
    c->max_tokens = c->pruner->opts.max_tokens;
    if (c->max_tokens == 0)
        TRY(s24i_text_limit_read(&c->max_tokens, c->ctx, s24_checkpoint_folder(c->pruner->in),
                                 positions));
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

/* The passages that come as ids, each cut as a text is. */
static s24_status take_ids(calibration *c)
{
    const s24_batch *given = c->pruner->opts.ids;
    const int64_t vocabulary = c->model->shape.vocabulary;
    const int64_t all = given->offsets[c->texts] - given->offsets[0];
    TRY(reserve_ids(c, all));
    if (given->types)
        TRY(s24i_alloc_elems(&c->types, c->ctx, all, sizeof *c->types, "types of tokens"));
    c->ends[0] = 0;
    for (int64_t t = 0; t < c->texts; t++) {
        const int32_t *ids = given->ids + given->offsets[t];
        const int64_t count = s24i_min(given->offsets[t + 1] - given->offsets[t], c->max_tokens);
        REQUIRE(c->ctx, count > 0, S24_ERROR_ARGUMENT, "calibration passage %lld has no token id",
                (long long)t);
        for (int64_t i = 0; i < count; i++) {
            REQUIRE(c->ctx, ids[i] >= 0 && ids[i] < vocabulary, S24_ERROR_ARGUMENT,
                    "calibration passage %lld: token %lld has id %d, 0 to %lld is expected",
                    (long long)t, (long long)i, (int)ids[i], (long long)vocabulary - 1);
            c->ids[c->ends[t] + i] = ids[i];
            if (c->types) c->types[c->ends[t] + i] = given->types[given->offsets[t] + i];
        }
        c->ends[t + 1] = c->ends[t] + count;
    }
    return S24_OK;
}

static s24_status take_images(calibration *c)
{
    for (int64_t t = 0; t <= c->texts; t++)
        c->ends[t] = t * c->model->shape.positions;
    return S24_OK;
}

static s24_status tokenize(calibration *c)
{
    s24_tokenizer *tokenizer = NULL;
    s24_token *tokens = NULL;
    s24_status status;
    TRY(s24i_alloc_elems(&c->ends, c->ctx, c->texts + 1, sizeof *c->ends, "texts"));
    TRY(s24i_alloc_elems(&c->offsets, c->ctx, c->texts + 1, sizeof *c->offsets, "texts"));
    if (c->pruner->opts.images) return take_images(c);
    TRY(read_max_tokens(c));
    if (c->pruner->opts.ids) return take_ids(c);
    TRY_DONE(s24_tokenizer_load(&tokenizer, c->ctx, s24_checkpoint_folder(c->pruner->in)));
    TRY_DONE(s24i_alloc_elems(&tokens, c->ctx, c->max_tokens, sizeof *tokens, "tokens"));
    status = encode_texts(c, tokenizer, tokens);
done:
    s24_ctx_free(c->ctx, tokens);
    s24_tokenizer_destroy(tokenizer);
    return status;
}

/* ---- batches --------------------------------------------------------------------------------- */

/* The text after the batch that begins at `first`: whole texts, at least one. */
static int64_t batch_end(const calibration *c, int64_t first)
{
    int64_t end = first + 1;
    while (end < c->texts && c->ends[end + 1] - c->ends[first] <= BATCH_TOKENS)
        end++;
    return end;
}

static float *hidden_of(const calibration *c, int64_t text)
{
    return c->hidden + c->ends[text] * c->model->shape.width;
}

static s24_status embed(calibration *c)
{
    for (int64_t first = 0, end; first < c->texts; first = end) {
        end = batch_end(c, first);
        const s24_batch batch = s24i_calibration_batch(c, first, end);
        TRY(s24i_session_embed(c->session, c->ctx, &batch, hidden_of(c, first)));
    }
    return S24_OK;
}

static s24_status observe_input(void *user, s24i_slot slot, const s24_dense *x)
{
    calibration *c = user;
    const int64_t expert = s24i_slot_expert(slot);
    if ((int)s24i_slot_kind(slot) != c->observed || expert < c->at.first || expert >= c->at.end)
        return S24_OK;
    return s24i_name_tensor(c->ctx, s24_stats_add(c->stats[expert - c->at.first], c->ctx, x),
                            c->block[slot]);
}

/* All texts through a block: up to the observed input of a slot, hidden staying as it is, or, with
   NOTHING_OBSERVED, to its end, so that hidden becomes the block's output. */
static s24_status run_block(calibration *c, int64_t block, int slot)
{
    const int observes = slot != NOTHING_OBSERVED;
    const s24i_observer observer = {observe_input, c, 1u << (observes ? slot : 0), c->at.first,
                                    c->at.end};
    c->observed = slot;
    for (int64_t first = 0, end; first < c->texts; first = end) {
        end = batch_end(c, first);
        const s24_batch batch = s24i_calibration_batch(c, first, end);
        float *hidden = hidden_of(c, first);
        const int64_t elems = batch.offsets[batch.texts] * c->model->shape.width;
        if (observes) memcpy(c->copy, hidden, (size_t)elems * sizeof *hidden);
        TRY(s24i_session_block(c->session, c->ctx, &batch, block, observes ? c->copy : hidden,
                               observes ? &observer : NULL));
        TRY(s24_ctx_progress(c->ctx, "pruning", ++c->done, c->total));
    }
    return S24_OK;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static int mixes(const calibration *c, int64_t block)
{
    return s24i_mixture_has(&c->model->shape.mixture, block);
}

/* The stage of a kind that follows another one of a block, at first one with end −1: some more
   experts, or at once the block's own layers. 0: there is none. */
static int next_stage(stage *s, const calibration *c, int64_t block)
{
    const int of_experts = mixes(c, block) && s->kind >= S24I_STAGES - S24I_OUTER_STAGES;
    int64_t rows, cols;
    if (!of_experts) {
        const int begins = s->end < 0;
        s->first = -1;
        s->end = 0;
        return begins;
    }
    s24i_slot_shape(&rows, &cols, &c->model->shape,
                    s24i_slot_of(0, s24i_stage_kind_of(&c->model->shape, s->kind).slots[0]));
    const int64_t most = s24i_max(1, GRAM_BYTES / (cols * cols * (int64_t)sizeof(double)));
    s->first = s24i_max(s->end, 0);
    s->end = s24i_min(s->first + most, s24i_mixture_all(&c->model->shape.mixture));
    return s->first < s->end;
}

static int takes_stage(const calibration *c, int64_t block, const stage *s)
{
    for (int64_t e = s->first; e < s->end; e++)
        if (s24i_calibration_takes(c, block, s->kind, e)) return 1;
    return 0;
}

static void drop_stats(calibration *c)
{
    for (int64_t e = 0; c->stats && e < c->numbers; e++) {
        s24_stats_destroy(c->stats[e]);
        c->stats[e] = NULL;
    }
}

static s24_status prune_stage(calibration *c, int64_t block, const stage *s)
{
    const s24i_slot kind = s24i_stage_kind_of(&c->model->shape, s->kind).slots[0];
    for (int64_t e = s->first; e < s->end; e++) {
        const s24i_slot slot = s24i_slot_of(e, kind);
        TRY(s24_stats_create(&c->stats[e - s->first], c->ctx, c->weights[slot].cols));
    }
    c->at = *s;
    TRY(run_block(c, block, (int)kind));
    TRY(s24i_calibration_prune(c, block, s));
    drop_stats(c);
    return s24i_model_set_block(c->model, c->ctx, block, c->weights);
}

static s24_status prune_here(calibration *c, int64_t block)
{
    TRY(s24i_calibration_load(c));
    TRY(s24i_model_set_block(c->model, c->ctx, block, c->weights));
    for (int kind = 0; kind < S24I_STAGES; kind++)
        for (stage s = {.kind = kind, .end = -1}; next_stage(&s, c, block);)
            if (takes_stage(c, block, &s)) TRY(prune_stage(c, block, &s));
    if (!c->reconstruction) return S24_OK;
    s24i_halves_write(c->halves, c->halves->state, c->hidden);
    TRY(s24i_reconstruct_aim(c->reconstruction, c->ctx, block));
    TRY(s24i_calibration_reconstruct(c, block));
    return s24i_model_set_block(c->model, c->ctx, block, c->weights);
}

static s24_status prune_new(calibration *c, int64_t block)
{
    return (c->is_there ? s24i_calibration_prune_there : prune_here)(c, block);
}

/* The same, into a file that keeps it. */
static s24_status prune_kept(calibration *c, int64_t block)
{
    const s24i_pruner *run = c->pruner;
    s24_status status = s24i_kept_open(&c->pruner, c->kept, block, c->block);
    if (status == S24_OK) status = prune_new(c, block);
    c->pruner = run;
    if (status == S24_OK) status = s24i_kept_close(c->kept, block);
    s24i_kept_drop(c->kept);
    return status;
}

/* Has an earlier run done the block? Then its weights are there: rank 0 has the files, and hands
   them round. */
static s24_status find_kept(int *found, calibration *c, int64_t block)
{
    s24i_prune_ranks *ranks = c->pruner->ranks;
    if (!c->pruner->opts.keep) return S24_OK;
    TRY(s24i_calibration_load(c));
    if (c->kept) TRY(s24i_kept_take(found, c->kept, block, c->block, c->weights));
    if (!ranks) return S24_OK;
    TRY(s24i_prune_ranks_say(ranks));
    TRY(s24_comm_broadcast(c->ctx, ranks->comm, found, sizeof *found, 0));
    for (int slot = 0; *found && slot < c->numbers; slot++)
        if (c->block[slot] && s24i_pruner_takes(c->pruner, c->block[slot]))
            TRY(s24i_prune_ranks_hand_round(ranks, &c->weights[slot], 0));
    return S24_OK;
}

static s24_status prune_block(calibration *c, int64_t block)
{
    int found = 0;
    c->block = c->tensors + block * c->numbers;
    if (c->halves) TRY(s24i_halves_open(c->halves, c->ctx, block));
    TRY(find_kept(&found, c, block));
    TRY((found ? s24i_calibration_take : c->kept ? prune_kept : prune_new)(c, block));
    if (block + 1 < c->model->shape.layers)
        TRY(c->is_there ? s24i_calibration_leave_there(c, block)
                        : run_block(c, block, NOTHING_OBSERVED));
    if (!c->is_there) s24i_block_clear(&c->model->blocks[block], c->ctx);
    return S24_OK;
}

static s24_status find_tensors(calibration *c)
{
    const int64_t count = c->model->shape.layers * c->numbers;
    TRY(s24i_alloc_elems(&c->tensors, c->ctx, count, sizeof *c->tensors, "the table of layers"));
    for (int64_t i = 0; i < count; i++)
        c->tensors[i] = NULL;
    for (int64_t i = 0; i < s24_checkpoint_count(c->pruner->in); i++) {
        const s24_tensor *tensor = s24_checkpoint_tensor(c->pruner->in, i);
        int64_t block;
        s24i_slot slot;
        if (!s24i_model_find_linear(&block, &slot, c->model, tensor->name)) continue;
        const s24_tensor **place = &c->tensors[block * c->numbers + slot];
        /* The model has read one of them; the other would be written as it was, or not at all. */
        REQUIRE(c->ctx, !*place, S24_ERROR_FORMAT,
                "%s: tensors '%s' and '%s' are the same layer; one of them was expected",
                tensor->file, (*place)->name, tensor->name);
        *place = tensor;
    }
    return S24_OK;
}

static s24_status prepare(calibration *c)
{
    int64_t batches = 0;
    c->numbers = s24i_slot_numbers(&c->model->shape.mixture);
    TRY(find_tensors(c));
    TRY(tokenize(c));
    for (int64_t first = 0, end; first < c->texts; first = end, batches++) {
        end = batch_end(c, first);
        c->most_tokens = s24i_max(c->most_tokens, c->ends[end] - c->ends[first]);
    }
    c->total = batches * (c->model->shape.layers - 1);
    for (int64_t b = 0; b < c->model->shape.layers; b++)
        for (int kind = 0; kind < S24I_STAGES; kind++)
            for (stage s = {.kind = kind, .end = -1}; next_stage(&s, c, b);)
                c->total += batches * takes_stage(c, b, &s);
    const int64_t width = c->model->shape.width;
    TRY(s24i_alloc_elems(&c->hidden, c->ctx, c->ends[c->texts] * width, sizeof *c->hidden,
                         "the hidden states of the calibration texts"));
    TRY(s24i_alloc_elems(&c->copy, c->ctx, c->most_tokens * width, sizeof *c->copy,
                         "the hidden states of a batch"));
    const size_t numbers = (size_t)c->numbers;
    TRY(s24i_zeroed(&c->weights, c->ctx, numbers * sizeof *c->weights));
    TRY(s24i_zeroed(&c->stats, c->ctx, numbers * sizeof *c->stats));
    for (int slot = 0; slot < c->numbers; slot++)
        c->weights[slot].dtype = S24_F32;
    return s24_session_create(&c->session, c->ctx, c->model, c->most_tokens);
}

s24_status s24i_pruner_blocks(const s24i_pruner *pruner, s24_model *model)
{
    calibration c = {.pruner = pruner, .ctx = pruner->ctx, .model = model};
    s24i_kept_blocks kept;
    s24_status status;
    c.texts = s24i_pruner_passages(pruner);
    TRY_DONE(prepare(&c));
    TRY_DONE(embed(&c));
    TRY_DONE(s24i_calibration_prepare_halves(&c));
    if (pruner->follows && !model->shape.mixture.experts) TRY_DONE(s24i_reach_create(&c.reach, &c));
    if (pruner->opts.keep && pruner->writer) {
        const s24i_kept_passages passages = {
            .ends = c.ends,
            .texts = c.texts,
            .ids = c.ids,
            .types = c.types,
            .pixels = pruner->opts.images ? pruner->opts.images->pixels : NULL,
            .image_elems = s24i_image_elems(&model->shape)};
        c.kept = &kept;
        TRY_DONE(s24i_kept_begin(&kept, pruner, &passages, c.numbers));
    }
    for (int64_t b = 0; b < model->shape.layers; b++)
        TRY_DONE(prune_block(&c, b));
    if (c.aim) s24i_aim_tell(c.aim, c.ctx);
done:
    if (c.kept) s24i_kept_free(c.kept);
    s24i_reach_destroy(c.reach, c.ctx);
    s24i_aim_destroy(c.aim);
    s24i_reconstruction_destroy(c.reconstruction);
    s24i_halves_destroy(c.halves);
    drop_stats(&c);
    s24_session_destroy(c.session);
    for (int slot = 0; c.weights && slot < c.numbers; slot++)
        s24_ctx_free(c.ctx, c.weights[slot].data);
    s24_ctx_free(c.ctx, c.weights);
    s24_ctx_free(c.ctx, (void *)c.stats);
    s24_ctx_free(c.ctx, c.copy);
    s24_ctx_free(c.ctx, c.hidden);
    s24_ctx_free(c.ctx, (void *)c.tensors);
    s24_ctx_free(c.ctx, c.offsets);
    s24_ctx_free(c.ctx, c.types);
    s24_ctx_free(c.ctx, c.ids);
    s24_ctx_free(c.ctx, c.ends);
    return status;
}
