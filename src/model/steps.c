// SPDX-License-Identifier: Apache-2.0
/* A row of models.def as the steps of its block. */
#include "model/steps.h"

static void put(s24i_steps *steps, s24i_block_step step)
{
    steps->step[steps->count++] = step;
}

static void put_norm(s24i_steps *steps, int norm, s24i_step_place to)
{
    put(steps,
        (s24i_block_step){.kind = S24I_STEP_NORM, .from = S24I_AT_SUMS, .to = to, .norm = norm});
}

static void put_product(s24i_steps *steps, s24i_slot slot, s24i_step_place from, s24i_step_place to)
{
    put(steps, (s24i_block_step){.kind = S24I_STEP_PRODUCT,
                                 .from = from,
                                 .to = to,
                                 .slot = slot,
                                 .adds = to == S24I_AT_SUMS});
}

static void put_in_place(s24i_steps *steps, s24i_step_kind kind, s24i_step_place at)
{
    put(steps, (s24i_block_step){.kind = kind, .from = at, .to = at});
}

static s24i_step_kind attends(const s24i_architecture *a)
{
    if (a->apart) return S24I_STEP_ATTEND_APART;
    if (a->sinks) return S24I_STEP_ATTEND_SINKS;
    if (s24i_has_distances(a)) return S24I_STEP_ATTEND_DISTANCE;
    return a->key_near ? S24I_STEP_ATTEND_NEAR : S24I_STEP_ATTEND;
}

/* A layer whose result joins the residual, at once or by way of a norm or a factor. */
static void put_added(s24i_steps *steps, const s24i_architecture *a, s24i_slot slot)
{
    const int is_output = slot == S24I_OUTPUT;
    const s24i_step_place context = a->latent ? S24I_AT_VALUES : S24I_AT_CONTEXT;
    const s24i_step_place from = is_output ? S24I_AT_OUTER : context;
    if (!s24i_adds_aside(a)) {
        put_product(steps, slot, from, S24I_AT_SUMS);
        return;
    }
    put_product(steps, slot, from, S24I_AT_NORMED);
    if (a->after_attention_norm)
        put(steps, (s24i_block_step){.kind = S24I_STEP_NORM,
                                     .from = S24I_AT_NORMED,
                                     .to = S24I_AT_NORMED,
                                     .norm = is_output ? S24I_AFTER_OUTPUT_NORM
                                                       : S24I_AFTER_ATTENTION_NORM});
    put(steps,
        (s24i_block_step){
            .kind = S24I_STEP_ADD, .from = S24I_AT_NORMED, .to = S24I_AT_SUMS, .slot = slot});
}

/* The feed-forward layers up to the last. */
static void put_outer(s24i_steps *steps, const s24i_architecture *a, s24i_step_place input)
{
    put_product(steps, S24I_INTERMEDIATE, input, S24I_AT_OUTER);
    if (s24i_is_gated(a)) put_in_place(steps, S24I_STEP_GATE, S24I_AT_OUTER);
}

/* What stands before the step that attends, and this. */
static void put_attention(s24i_steps *steps, const s24i_architecture *a, s24i_step_place input)
{
    if (a->latent) {
        put(steps, (s24i_block_step){.kind = S24I_STEP_LATENT, .from = input, .to = S24I_AT_QKV});
    } else {
        put_product(steps, S24I_QUERY, input, S24I_AT_QKV);
        if (a->query_norm && !a->norms_turned)
            put_in_place(steps, S24I_STEP_HEAD_NORM, S24I_AT_QKV);
        if (a->rotary) put_in_place(steps, S24I_STEP_ROTATE, S24I_AT_QKV);
        if (a->norms_turned) put_in_place(steps, S24I_STEP_HEAD_NORM, S24I_AT_QKV);
    }
    steps->attend = steps->count;
    put(steps, (s24i_block_step){.kind = attends(a), .from = S24I_AT_QKV, .to = S24I_AT_CONTEXT});
    if (!a->latent) return;
    put(steps,
        (s24i_block_step){.kind = S24I_STEP_VALUES, .from = S24I_AT_CONTEXT, .to = S24I_AT_VALUES});
}

s24i_steps s24i_steps_of(const s24i_architecture *a)
{
    s24i_steps steps = {.count = 0};
    const s24i_step_place input = a->pre_norm ? S24I_AT_NORMED : S24I_AT_SUMS;
    if (a->pre_norm) put_norm(&steps, S24I_ATTENTION_NORM, input);
    put_attention(&steps, a, input);
    if (a->side_by_side) {
        put_norm(&steps, S24I_OUTPUT_NORM, input);
        put_outer(&steps, a, input);
        put_added(&steps, a, S24I_ATTENTION);
        put_added(&steps, a, S24I_OUTPUT);
        return steps;
    }
    put_added(&steps, a, S24I_ATTENTION);
    if (a->output_norm)
        put_norm(&steps, a->pre_norm ? S24I_OUTPUT_NORM : S24I_ATTENTION_NORM, input);
    put_outer(&steps, a, input);
    put_added(&steps, a, S24I_OUTPUT);
    if (!a->pre_norm && a->output_norm) put_norm(&steps, S24I_OUTPUT_NORM, input);
    return steps;
}

/* Those of a block without them, but for its feed-forward layers. */
s24i_steps s24i_steps_mixed(const s24i_architecture *a)
{
    const s24i_steps plain = s24i_steps_of(a);
    const s24i_step_place input = s24i_steps_product(&plain, S24I_INTERMEDIATE)->from;
    s24i_steps steps = {.count = 0, .attend = plain.attend};
    for (int i = 0; i < plain.count; i++) {
        s24i_block_step step = plain.step[i];
        const int is_product = step.kind == S24I_STEP_PRODUCT;
        if (step.kind == S24I_STEP_GATE || (is_product && step.slot == S24I_INTERMEDIATE)) continue;
        if (is_product && step.slot == S24I_OUTPUT) {
            step.kind = S24I_STEP_EXPERTS;
            step.from = input;
        }
        put(&steps, step);
    }
    return steps;
}

s24i_steps s24i_steps_shared(const s24i_architecture *a)
{
    const s24i_steps alone = s24i_steps_of(a);
    s24i_steps steps = {.count = 0};
    for (int i = 0; i < alone.count; i++) {
        if (i == alone.attend) steps.attend = steps.count;
        put(&steps, alone.step[i]);
        if (alone.step[i].adds) put_in_place(&steps, S24I_STEP_SUM, S24I_AT_SUMS);
    }
    return steps;
}

const s24i_block_step *s24i_steps_product(const s24i_steps *steps, s24i_slot slot)
{
    const s24i_block_step *step = steps->step;
    while (step->kind != S24I_STEP_PRODUCT || step->slot != slot)
        step++;
    return step;
}

const char *s24i_step_name(s24i_step_kind kind)
{
    static const char *const names[] = {[S24I_STEP_NORM] = "norm",
                                        [S24I_STEP_PRODUCT] = "product",
                                        [S24I_STEP_HEAD_NORM] = "head norm",
                                        [S24I_STEP_ROTATE] = "rotate",
                                        [S24I_STEP_ATTEND] = "attend",
                                        [S24I_STEP_ATTEND_NEAR] = "attend near",
                                        [S24I_STEP_ATTEND_DISTANCE] = "attend by distance",
                                        [S24I_STEP_ATTEND_APART] = "attend by content and distance",
                                        [S24I_STEP_ATTEND_SINKS] = "attend with sinks",
                                        [S24I_STEP_LATENT] = "latents",
                                        [S24I_STEP_VALUES] = "values of latents",
                                        [S24I_STEP_ADD] = "add",
                                        [S24I_STEP_GATE] = "gate",
                                        [S24I_STEP_EXPERTS] = "experts",
                                        [S24I_STEP_SUM] = "sum"};
    return names[kind];
}

static s24_status require(s24_ctx *ctx, const s24i_steps *steps, unsigned has, const char *who,
                          const char *model_type)
{
    for (int i = 0; i < steps->count; i++)
        REQUIRE(ctx, has >> steps->step[i].kind & 1, S24_ERROR_UNSUPPORTED,
                "%s has no step '%s', which a block of %s needs", who,
                s24i_step_name(steps->step[i].kind), model_type);
    return S24_OK;
}

s24_status s24i_steps_require(s24_ctx *ctx, const s24i_architecture *architecture, unsigned has,
                              const char *who)
{
    const s24i_steps plain = s24i_steps_of(architecture), mixed = s24i_steps_mixed(architecture);
    TRY(require(ctx, &plain, has, who, architecture->model_type));
    return architecture->mixture ? require(ctx, &mixed, has, who, architecture->model_type)
                                 : S24_OK;
}
