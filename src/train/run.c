// SPDX-License-Identifier: Apache-2.0
/* The loop: a step's examples, gradients, the optimiser, a report; checkpoints now and then. */
#include "train/run.h"
#include "train/share.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum {
    HELD_OUT = 64, /* examples of it at a time, at most */
    /* Gradients in f16, as everybody scales them: halved where one is too large, doubled after
       so many steps in which none was. */
    SCALE_FIRST = 65536,
    SCALE_STEPS = 2000
};
static const char STAGE[] = "training"; /* as progress hears it */
static const double SCALE_LEAST = 1.0 / (1 << 24);

typedef struct runner {
    s24_transformer *t;
    s24_ctx *ctx;
    const s24_train_source *source;
    s24_train_opts opts;
    s24_batches *batches;
    s24i_examples examples, ahead, held_out;
    int64_t ahead_step; /* whose examples are read already; -1: none's */
    s24i_optimiser optimiser;
    s24i_train_state state;
    s24_train_report last;
    s24i_pulse pulse;
    s24i_share share;
    double now;          /* seconds of the run when a step was on its way, on rank 0 */
    int wants, stops;    /* to stop: this rank, and any */
    int64_t steps;       /* of the run; 0: it goes by time */
    double started;      /* on the clock, less what earlier runs took */
    double checkpointed; /* seconds of the run at the last checkpoint */
    int has_checkpoint;  /* of this run, at opts.checkpoint */
} runner;

/* ---- preparing ------------------------------------------------------------------------------- */

static s24_status read_options(s24_train_opts *o, s24_ctx *ctx, const s24_train_opts *opts)
{
    TRY(s24i_opts_read(ctx, o, sizeof *o, opts, "s24_train_opts"));
    if (!o->batch) o->batch = 32;
    if (!o->bucket) o->bucket = 1;
    if (o->rate == 0) o->rate = 1e-4;
    if (o->beta1 == 0) o->beta1 = 0.9;
    if (o->beta2 == 0) o->beta2 = 0.999;
    if (o->eps == 0) o->eps = 1e-8;
    if (!o->checkpoint_steps && o->checkpoint_seconds <= 0) o->checkpoint_steps = 200;
    if (o->refresh_until == 0) o->refresh_until = 0.5;
    o->objective.size = sizeof o->objective;
    REQUIRE(ctx, (o->epochs > 0) + (o->steps > 0) + (o->seconds > 0) == 1, S24_ERROR_ARGUMENT,
            "one of epochs, steps and seconds is expected to be over 0");
    REQUIRE(ctx,
            o->rate > 0 && o->warmup >= 0 && o->warmup < 1 && o->decay >= 0 && o->clip >= 0 &&
                o->batch > 0,
            S24_ERROR_ARGUMENT,
            "a learning rate over 0, a warm-up of 0 to below 1, no negative decay, clip or batch "
            "are expected");
    REQUIRE(ctx, o->epochs <= 1e9, S24_ERROR_ARGUMENT, "epochs is %g, 1e9 at most are expected",
            o->epochs);
    REQUIRE(ctx, o->beta1 > 0 && o->beta1 < 1 && o->beta2 > 0 && o->beta2 < 1 && o->eps > 0,
            S24_ERROR_ARGUMENT, "betas between 0 and 1 and an eps over 0 are expected");
    REQUIRE(
        ctx,
        o->refresh >= 0 && (o->fixed || !o->refresh) && o->refresh_until > 0 &&
            o->refresh_until <= 1,
        S24_ERROR_ARGUMENT,
        "masks are refreshed every 1 or more steps, of weights that are fixed, until a share of "
        "the run of over 0 to 1");
    return S24_OK;
}

/* FNV-1a over what makes one run differ from another. */
static uint64_t mix(uint64_t hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const uint8_t *)data)[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static uint64_t run_number(const runner *r)
{
    const s24_train_opts *o = &r->opts;
    const double reals[] = {o->epochs,
                            o->seconds,
                            o->rate,
                            o->warmup,
                            o->decay,
                            o->beta1,
                            o->beta2,
                            o->eps,
                            o->clip,
                            o->objective.labels,
                            o->objective.logits,
                            o->objective.temperature,
                            o->objective.hidden,
                            o->objective.cosine,
                            o->objective.dropout,
                            o->objective.attention_dropout,
                            o->refresh_until};
    const int64_t numbers[] = {o->steps,         o->batch,    o->bucket,
                               (int64_t)o->seed, o->schedule, o->fixed,
                               r->source->count, r->t->elems, r->t->opts.max_tokens,
                               r->t->opts.dtype, o->refresh};
    const s24i_optimiser *method = &r->optimiser;
    uint64_t hash = mix(UINT64_C(0xcbf29ce484222325), reals, sizeof reals);
    hash = mix(hash, numbers, sizeof numbers);
    hash = mix(hash, method->method->name, strlen(method->method->name));
    hash = mix(hash, &method->numbers, sizeof method->numbers);
    if (o->include) hash = mix(hash, o->include, strlen(o->include));
    if (o->exclude) hash = mix(hash, o->exclude, strlen(o->exclude) + 1);
    if (r->source->lengths)
        hash = mix(hash, r->source->lengths, (size_t)r->source->count * sizeof *r->source->lengths);
    return hash;
}

/* Steps of a run that goes by time, if they go on taking as long. */
static int64_t estimate(const runner *r)
{
    const double steps = (double)r->state.step * r->opts.seconds / r->state.seconds;
    return steps < 9e18 ? (int64_t)steps : 0; /* NaN before the first one */
}

static s24_train_report report_at(const runner *r, double loss, double rate, double norm)
{
    s24_train_report report = {
        .size = sizeof report,
        .step = r->state.step,
        .steps = r->steps ? r->steps : estimate(r),
        .tokens = r->state.tokens,
        .epoch = (double)r->state.step / (double)s24_batches_per_epoch(r->batches),
        .loss = loss,
        .rate = rate,
        .norm = norm,
        .seconds = r->state.seconds,
        .held_out = NAN,
        .sparse_layers = r->t->machine.two_four,
        .mask_hash = r->share.masks,
        .optimizer_bytes = 2 * r->optimiser.moment_count * (int64_t)sizeof(float)};
    s24i_method_report(&report, &r->optimiser);
    return report;
}

/* Room for a step's examples, twice: while a device works on one, the next one is read. */
static s24_status make_examples(runner *r)
{
    const int64_t most = s24i_min(r->opts.batch, r->source->count);
    const s24i_ready ready = {s24i_share_ready, &r->share};
    TRY(s24i_examples_create(&r->examples, r->t, r->ctx, r->source, most));
    TRY(s24i_examples_create(&r->ahead, r->t, r->ctx, r->source, most));
    r->examples.ready = r->ahead.ready = ready;
    r->ahead_step = -1;
    return S24_OK;
}

/* Of a step on this rank, about: as many of the source's mean length as it has examples. */
static int64_t step_tokens(const runner *r)
{
    const s24_train_source *source = r->source;
    const double share = (double)s24i_min(r->opts.batch, source->count) / (double)r->share.world;
    double mean = source->lengths ? 0 : (double)r->t->shape.positions;
    for (int64_t i = 0; source->lengths && i < source->count; i++)
        mean += (double)source->lengths[i] / (double)source->count;
    return s24i_max(1, (int64_t)(share * mean + 0.5));
}

static s24_status prepare(runner *r)
{
    s24_train_opts *o = &r->opts;
    const s24_train_source *source = r->source;
    const s24_batches_opts batches = {.size = sizeof batches,
                                      .examples = source->count,
                                      .lengths = source->lengths,
                                      .batch = o->batch,
                                      .bucket = o->bucket,
                                      .seed = o->seed,
                                      .keep_rest = source->count < o->batch};
    TRY(s24i_optimiser_create(&r->optimiser, r->t, r->ctx, o, s24i_share_owned(&r->share, r->t)));
    TRY(make_examples(r));
    r->optimiser.step_tokens = step_tokens(r);
    if (o->held_out)
        TRY(s24i_examples_create(&r->held_out, r->t, r->ctx, o->held_out,
                                 s24i_min(o->batch, HELD_OUT)));
    TRY(s24_batches_create(&r->batches, r->ctx, &batches));
    const int64_t epoch = s24_batches_per_epoch(r->batches);
    if (o->epochs > 0) r->steps = s24i_max(1, (int64_t)(o->epochs * (double)epoch + 0.5));
    if (o->steps) r->steps = o->steps;
    r->state.run = run_number(r);
    r->state.plan = S24I_NO_PLAN;
    r->state.scale = r->t->opts.dtype == S24_F16 ? SCALE_FIRST : 1;
    if (o->resume && o->checkpoint && access(o->checkpoint, F_OK) == 0) {
        TRY(s24i_checkpoint_read(&r->state, r->t, r->ctx, &r->optimiser, o->checkpoint));
        r->has_checkpoint = 1;
    }
    TRY(s24i_optimiser_fix(&r->optimiser, r->t, r->ctx, &r->state.plan));
    /* Where nothing is left to do; what no step of this process measured is NaN. */
    r->last = report_at(r, NAN, NAN, NAN);
    s24_transformer_clear(r->t, r->ctx);
    r->started = s24i_seconds() - r->state.seconds;
    r->checkpointed = r->state.seconds;
    return S24_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

/* Progress 0 … 1, and what a step adds to it. */
static double progress_of(const runner *r, double *share)
{
    const double step = (double)r->state.step;
    if (r->steps) {
        *share = 1.0 / (double)r->steps;
        return step / (double)r->steps;
    }
    const double progress = r->state.seconds / r->opts.seconds;
    *share = step > 0 ? progress / step : 0.001;
    return progress;
}

/* After the step to come. */
static double progress_after(const runner *r, double share)
{
    double none;
    return r->steps ? (double)(r->state.step + 1) / (double)r->steps
                    : progress_of(r, &none) + share;
}

/* ---- a step's examples ----------------------------------------------------------------------- */

/* Those of this rank: of how many in all, which is the first, and how many. */
typedef struct step_part {
    const int64_t *which;
    int64_t of, first, count;
} step_part;

static step_part part_of(runner *r, int64_t step)
{
    step_part part;
    part.of = s24_batches_at(&part.which, r->batches, step);
    const s24i_step_examples of = {part.which, part.of, r->source->lengths};
    s24i_share_part(&r->share, &of, &part.first, &part.count);
    return part;
}

static s24_status read_part(s24i_examples *e, const runner *r, const step_part *part)
{
    return s24i_examples_read(e, r->t, r->ctx, part->which + part->first, part->count);
}

/* While a device has a step's work before it, and before ranks tell one another what they have.
   NULL: nothing was read. What fails is read again, and told, by the step whose it is. */
static const s24i_examples *read_ahead(runner *r)
{
    const int64_t next = r->state.step + 1;
    if ((!r->t->machine.gpu && !r->share.comm) || (r->steps && next >= r->steps)) return NULL;
    const step_part part = part_of(r, next);
    r->ahead_step = read_part(&r->ahead, r, &part) == S24_OK ? next : -1;
    return r->ahead_step == next ? &r->ahead : NULL;
}

static s24_status take_examples(runner *r, const step_part *part)
{
    if (r->ahead_step != r->state.step) return read_part(&r->examples, r, part);
    const s24i_examples read = r->ahead;
    r->ahead = r->examples;
    r->examples = read;
    return S24_OK;
}

/* The gradients of all ranks, and a step of the optimiser. */
static s24_status apply(runner *r, const s24i_stride *stride, s24_status mine)
{
    s24_transformer *t = r->t;
    s24i_share_turn turn = {.stops = r->wants};
    mine = s24i_share_gradients(&r->share, t, r->ctx, mine);
    if (mine == S24_OK) mine = s24i_optimiser_step(&r->optimiser, t, r->ctx, &r->opts, stride);
    mine = s24i_share_weights(&r->share, t, r->ctx, &r->optimiser, mine);
    if (mine == S24_OK) turn.next = read_ahead(r);
    turn.now = s24i_seconds() - r->started;
    mine = s24i_share_end(&r->share, r->ctx, &turn, mine);
    r->now = turn.now;
    r->stops = turn.stops;
    return mine;
}

/* Gradients of what was read, unless that failed, and the sums that they leave. `stride` goes on
   with them; may be NULL. */
static s24_status run(s24i_sums *sums, runner *r, const s24i_examples *examples,
                      const s24_objective *objective, const s24i_stride *stride, s24_status status)
{
    s24_transformer *t = r->t;
    s24i_machine *m = &t->machine;
    s24_objective o;
    m->ctx = r->ctx;
    m->status = S24_OK;
    m->scale = (float)r->state.scale;
    m->ops->clear(m, t->at.sums, sizeof *t->at.sums);
    if (status == S24_OK) status = s24i_objective_read(&o, t, r->ctx, objective);
    if (status == S24_OK) status = s24i_examples_gradients(examples, t, r->ctx, &o);
    if (stride) status = apply(r, stride, status);
    TRY(status);
    m->ops->download(m, sums, t->at.sums, sizeof *sums);
    return m->status;
}

/* The objective over this rank's held-out examples; the gradients it makes are thrown away. */
static s24_status measure_part(double *sum, runner *r)
{
    const s24_train_source *source = r->opts.held_out;
    s24_objective objective = r->opts.objective;
    int64_t which[HELD_OUT];
    *sum = 0;
    objective.dropout = objective.attention_dropout = 0;
    /* Its gradients are thrown away, and the weights are not handed over in 8 bits. */
    r->optimiser.rule.mvue = r->optimiser.rule.fp8 = 0;
    const int64_t batch = s24i_min(r->opts.batch, HELD_OUT);
    for (int64_t at = batch * r->share.rank; at < source->count; at += batch * r->share.world) {
        const int64_t count = s24i_min(batch, source->count - at);
        s24i_sums sums;
        for (int64_t i = 0; i < count; i++)
            which[i] = at + i;
        TRY(s24i_examples_read(&r->held_out, r->t, r->ctx, which, count));
        TRY(run(&sums, r, &r->held_out, &objective, NULL, S24_OK));
        *sum += sums.loss * (double)count;
    }
    s24_transformer_clear(r->t, r->ctx);
    return S24_OK;
}

/* Its mean over all of them. */
static s24_status measure(double *mean, runner *r)
{
    double sum;
    const s24_status status = measure_part(&sum, r);
    TRY(s24i_share_say(&r->share, r->ctx, status, &sum, 1));
    *mean = s24i_share_sum(&r->share, 0) / (double)r->opts.held_out->count;
    return S24_OK;
}

static s24_status refuse(const runner *r, const char *what, double value)
{
    const char *path = r->has_checkpoint ? r->opts.checkpoint : NULL;
    s24i_comm_agree(r->share.comm); /* of sums that all have */
    return s24_ctx_fail(r->ctx, S24_ERROR_NUMERIC,
                        "%s is %s at step %lld (epoch %.2f); nothing of it was applied%s%s", what,
                        isnan(value) ? "NaN" : "infinite", (long long)r->state.step,
                        (double)r->state.step / (double)s24_batches_per_epoch(r->batches),
                        path ? ", the last good checkpoint is " : "", path ? path : "");
}

/* The scale of f16's gradients after a step of that norm, which was left out where that is not
   finite. */
static void rescale(s24i_train_state *state, double norm)
{
    const int left_out = !isfinite(norm);
    state->left_out += left_out;
    if (left_out)
        state->scale /= 2;
    else if (++state->since >= SCALE_STEPS)
        state->scale *= 2;
    if (left_out || state->since >= SCALE_STEPS) state->since = 0;
}

static s24_status begin_method(runner *r, const s24i_moment *moment)
{
    int changed;
    TRY(s24i_method_begin(&r->optimiser, r->t, r->ctx, moment, &changed));
    return changed && r->state.step
               ? s24i_optimiser_fix(&r->optimiser, r->t, r->ctx, &r->state.plan)
               : S24_OK;
}

/* Weights, masks and this rank's examples of a step; *mine: how it fared, where not all ranks know
   of it yet. */
static s24_status begin_step(runner *r, const s24i_moment *at, s24_status *mine)
{
    const step_part part = part_of(r, r->state.step);
    *mine = begin_method(r, at);
    if (*mine == S24_OK) *mine = take_examples(r, &part);
    const s24i_share_step begun = {&r->optimiser, &r->examples, at->step, part.of, part.first};
    return s24i_share_begin(&r->share, r->t, r->ctx, &begun, mine);
}

static s24_status step(runner *r)
{
    const s24_train_opts *o = &r->opts;
    double share;
    s24i_sums sums;
    s24_status begun;
    s24i_machine *m = &r->t->machine;
    const double began = s24i_seconds(), progress = progress_of(r, &share);
    const double rate = o->rate * s24i_schedule_at(o, progress, share);
    s24_objective objective = o->objective;
    r->pulse = (s24i_pulse){STAGE, r->state.step, r->last.steps};
    objective.seed = (o->seed + 1) * UINT64_C(0x9e3779b97f4a7c15) + ((uint64_t)r->state.step << 20);
    const s24i_stride stride = {.step = r->state.step + 1 - r->state.left_out,
                                .at = {r->state.step, progress},
                                .after = progress_after(r, share),
                                .rate = rate};
    m->ctx = r->ctx;
    (void)m->ops->laps(m); /* those between two steps are no step's */
    TRY(begin_step(r, &stride.at, &begun));
    TRY(run(&sums, r, &r->examples, &objective, &stride, begun));
    r->optimiser.overhead = m->ops->laps(m) / (s24i_seconds() - began);
    if (!isfinite(sums.loss)) return refuse(r, "the loss", sums.loss);
    const double norm = sqrt(sums.squares) / r->state.scale;
    const int scaled = r->t->opts.dtype == S24_F16;
    if (!isfinite(norm) && (!scaled || r->state.scale <= SCALE_LEAST))
        return refuse(r, "the gradients' norm", norm);
    if (scaled) rescale(&r->state, norm);
    if (isfinite(norm)) s24i_noise_told(&r->optimiser, &sums, norm, o, stride.step);
    TRY(s24i_method_end(&r->optimiser, r->t, &stride.at, sums.loss));
    r->state.step++;
    r->state.tokens += r->examples.all_tokens;
    r->state.seconds = r->share.comm ? r->now : s24i_seconds() - r->started;
    r->last = report_at(r, sums.loss, rate, norm);
    return S24_OK;
}

static int is_over(const runner *r)
{
    return r->steps ? r->state.step >= r->steps : r->state.seconds >= r->opts.seconds;
}

/* A disk that is full takes nothing from the run: the checkpoint before stays, and it goes on. */
static void write_checkpoint(runner *r)
{
    const char *path = r->opts.checkpoint;
    if (s24i_checkpoint_write(r->t, r->ctx, &r->optimiser, &r->state, path) == S24_OK)
        r->has_checkpoint = 1;
    else
        s24_ctx_log(r->ctx, S24_LOG_WARNING, "no checkpoint at step %lld: %s",
                    (long long)r->state.step, s24_ctx_error(r->ctx));
}

static s24_status checkpoint(runner *r)
{
    r->checkpointed = r->state.seconds;
    if (!r->opts.checkpoint) return S24_OK;
    const s24_status status = s24i_share_collect(&r->share, r->t, r->ctx, &r->optimiser);
    if (status == S24_OK && !r->share.rank) write_checkpoint(r);
    s24_ctx_free(r->ctx, r->optimiser.whole);
    r->optimiser.whole = NULL;
    return status;
}

static int is_due(const runner *r)
{
    const s24_train_opts *o = &r->opts;
    return (o->checkpoint_steps && r->state.step % o->checkpoint_steps == 0) ||
           (o->checkpoint_seconds > 0 &&
            r->state.seconds - r->checkpointed >= o->checkpoint_seconds);
}

/* The loss on what is held out, where it is due, with the weights that the run would end with. */
static s24_status measure_if_due(runner *r)
{
    const s24_train_opts *o = &r->opts;
    const int due = is_over(r) || (o->held_out_steps && r->state.step % o->held_out_steps == 0);
    double share;
    const s24i_moment moment = {r->state.step, progress_of(r, &share)};
    if (!is_over(r) && !(o->held_out && due)) return S24_OK;
    TRY(s24i_method_settle(&r->optimiser, r->t, r->ctx, &moment));
    return o->held_out ? measure(&r->last.held_out, r) : S24_OK;
}

/* One step and what is said of it. INTERRUPTED in the midst of a step: all is as before it;
   after the step: it stands. Who asks to stop after the last one is too late, and so is, of several
   ranks, who asks after the one before it: that the others hear at the end of the next. */
static s24_status turn(runner *r)
{
    const s24_train_opts *o = &r->opts;
    TRY(step(r));
    s24_status status = measure_if_due(r);
    if (status != S24_OK && status != S24_ERROR_INTERRUPTED) return status;
    r->wants |= o->report && o->report(o->user, &r->last);
    TRY(status);
    if (!r->wants)
        r->wants = s24_ctx_progress(r->ctx, STAGE, r->state.step, r->last.steps) != S24_OK;
    const int stops = r->share.comm ? r->stops : r->wants;
    return stops && !is_over(r) ? S24_ERROR_INTERRUPTED : S24_OK;
}

static s24_status loop(runner *r)
{
    while (!is_over(r)) {
        const s24_status status = turn(r);
        const int stops = status == S24_ERROR_INTERRUPTED;
        if (status != S24_OK && !stops) return status;
        r->t->machine.status = S24_OK;
        if (stops || is_over(r) || is_due(r)) TRY(checkpoint(r));
        if (stops)
            return s24_ctx_fail(r->ctx, S24_ERROR_INTERRUPTED,
                                "stopped while training, at step %lld of %lld",
                                (long long)r->state.step, (long long)r->last.steps);
    }
    return S24_OK;
}

/* All ranks are here, each with its status, and have the same run before them. */
static s24_status meet(runner *r, s24_status mine)
{
    const int64_t shared[] = {r->opts.shard_optimizer, r->opts.sum_bytes, !r->opts.checkpoint};
    const s24i_share_run run = {.examples = &r->examples,
                                .teacher = r->opts.objective.teacher,
                                .options = mix(r->state.run, shared, sizeof shared),
                                .step = r->has_checkpoint ? r->state.step : -1};
    return s24i_share_meet(&r->share, r->t, r->ctx, &run, mine);
}

/* Which layers run 2:4 is what rank 0 measured, which is what its checkpoints say. */
static s24_status share_plan(runner *r)
{
    const double mine = (double)r->state.plan;
    s24_status status = S24_OK;
    if (!r->share.comm) return S24_OK;
    TRY(s24i_share_say(&r->share, r->ctx, S24_OK, &mine, 1));
    const int64_t plan = (int64_t)s24i_share_of(&r->share, 0, 0);
    if (plan != r->state.plan) {
        r->state.plan = plan;
        status = s24i_optimiser_fix(&r->optimiser, r->t, r->ctx, &r->state.plan);
    }
    return s24i_share_say(&r->share, r->ctx, status, &mine, 0);
}

static void set_pulse(runner *r, const s24i_pulse *pulse)
{
    r->t->machine.pulse = pulse;
    if (r->opts.objective.teacher) r->opts.objective.teacher->machine.pulse = pulse;
}

static s24_status check(s24_ctx *ctx, const s24_transformer *t, const s24_train_source *source,
                        const s24_train_report *report)
{
    REQUIRE(ctx, !report || report->size >= sizeof report->size, S24_ERROR_ARGUMENT,
            "s24_train_report.size is %zu; expected sizeof(s24_train_report) = %zu", report->size,
            sizeof *report);
    REQUIRE(ctx, t && source && source->write && source->count > 0, S24_ERROR_ARGUMENT, "%s",
            !t                   ? "transformer is NULL"
            : !source            ? "source is NULL"
            : source->count <= 0 ? "the source has no examples"
                                 : "source.write is NULL");
    REQUIRE(ctx, t->gradients, S24_ERROR_ARGUMENT, "the transformer was not made to train");
    return S24_OK;
}

/* As much of it as the caller knows. */
static void give(s24_train_report *to, const s24_train_report *from)
{
    const size_t size = to->size;
    memcpy(to, from, size < sizeof *to ? size : sizeof *to);
    to->size = size;
}

s24_status s24_train(s24_train_report *report, s24_transformer *transformer, s24_ctx *ctx,
                     const s24_train_source *source, const s24_train_opts *opts)
{
    runner r = {.t = transformer, .ctx = ctx, .source = source};
    if (!ctx) return S24_ERROR_ARGUMENT;
    TRY(check(ctx, transformer, source, report));
    TRY(read_options(&r.opts, ctx, opts));
    s24_status status = s24i_share_create(&r.share, transformer, ctx, &r.opts);
    if (status == S24_OK) status = meet(&r, prepare(&r));
    if (status == S24_OK) status = share_plan(&r);
    set_pulse(&r, &r.pulse);
    status =
        s24i_method_finish(&r.optimiser, transformer, ctx, status == S24_OK ? loop(&r) : status);
    set_pulse(&r, NULL);
    if (report) give(report, &r.last);
    s24_batches_destroy(r.batches);
    s24i_examples_free(&r.examples, ctx);
    s24i_examples_free(&r.ahead, ctx);
    s24i_examples_free(&r.held_out, ctx);
    s24i_optimiser_free(&r.optimiser, transformer, ctx);
    s24i_share_free(&r.share, ctx);
    return status;
}
