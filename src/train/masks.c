// SPDX-License-Identifier: Apache-2.0
/*
 * Which weights may be other than 0, layer by layer as a method's row says, and what of the weights
 * runs: those of 2:4 layers as they came, or of every layer that the method is for, chosen anew now
 * and then while what is masked learns on (Zhou et al., "Learning N:M fine-grained structured
 * sparse neural networks from scratch", 2021).
 */
#include <math.h>
#include <string.h>

#include "device/device_train.h"
#include "train/run.h"

/* Masks on the host while they are made. */
typedef struct maker {
    s24i_optimiser *o;
    s24_transformer *t;
    s24_ctx *ctx;
    const s24i_look *look;
    float *w, *other; /* room for the largest tensor, twice, */
    uint8_t *keep;    /* and for a byte a weight of it */
    uint16_t *bits;   /* the masks', where the host reaches them */
    int64_t extra;    /* numbers next to the weights before the place at work */
    int64_t found, flips, layers;
    double kept, all, beta;
    s24_device_train_mask_args *jobs; /* of a machine that makes masks itself */
    int64_t job_count;
} maker;

int s24i_mask_of_step(const s24i_optimiser *o, const s24i_moment *moment, int settles)
{
    const double *scores = o->memory + S24I_REMEMBERS_SCORES;
    const int masks = (int)o->numbers.masks;
    uint32_t words[4];
    int best = 0;
    s24_random(words, o->seed, (uint64_t)moment->step);
    if (!settles) return (int)(words[0] % (uint32_t)masks);
    for (int i = 1; i < masks; i++)
        if (scores[i] > 0 && (scores[best] <= 0 || scores[i] < scores[best])) best = i;
    return best;
}

static s24_dense view(const s24i_place *p, float *w)
{
    return (s24_dense){w, S24_F32, p->rows, p->cols, 0};
}

/* Of a place what runs, or what learns. */
static void download(const maker *k, float *to, const s24i_place *p, int learns)
{
    s24i_machine *m = &k->t->machine;
    const float *from = learns ? s24i_learning(k->o, k->t, p->offset) : k->t->weights + p->offset;
    m->ops->download(m, to, from, (size_t)(p->rows * p->cols) * sizeof *to);
}

/* k->keep among the bits. */
static void note(maker *k, const s24i_place *p)
{
    const int64_t end = p->offset + p->rows * p->cols;
    const uint8_t *keep = k->keep;
    for (int64_t at = p->offset, n; at < end; at += n, keep += n) {
        const int shift = (int)(at % 16);
        uint32_t bits = 0;
        n = s24i_min(16 - shift, end - at);
        for (int i = 0; i < n; i++)
            bits |= (uint32_t)(keep[i] != 0) << i;
        const uint32_t span = ((1u << n) - 1) << shift, old = k->bits[at / 16] & span;
        k->flips += __builtin_popcount(old ^ bits << shift);
        k->bits[at / 16] = (uint16_t)((k->bits[at / 16] & ~span) | bits << shift);
    }
}

/* The bits into k->keep. */
static void recall(const maker *k, const s24i_place *p)
{
    for (int64_t i = 0; i < p->rows * p->cols; i++) {
        const int64_t at = p->offset + i;
        k->keep[i] = k->bits[at / 16] >> at % 16 & 1;
    }
}

/* ---- who chooses ----------------------------------------------------------------------------- */

/* Were weights left out of a layer that is not 2:4, in blocks or anywhere? An eighth of them is
   more than rounding makes 0 of small ones. */
static int is_pruned(const maker *k, const s24i_place *p)
{
    const int64_t count = p->rows * p->cols;
    int64_t zeros = 0;
    for (int64_t i = 0; i < count; i++)
        zeros += k->w[i] == 0.0f;
    return 8 * zeros >= count;
}

/* A matrix that lies transposed in its file may be 2:4 along either side: other programs prune
   it as if k were its columns. */
static s24_status find_zeros(maker *k, const s24i_place *p)
{
    const s24_dense dense = view(p, k->w);
    int yes = 0;
    download(k, k->w, p, 0);
    if (p->cols % 4 == 0) TRY(s24_check(&yes, NULL, k->ctx, &dense));
    if (!yes && p->transposed) TRY(s24_check_along_n(&yes, NULL, k->ctx, &dense));
    yes = yes || is_pruned(k, p);
    for (int64_t i = 0; yes && i < p->rows * p->cols; i++)
        k->keep[i] = k->w[i] != 0.0f;
    if (yes) note(k, p);
    k->found += yes;
    return S24_OK;
}

/* Was the layer 2:4 along both sides, for the sake of dX, when its zeros were first chosen? Then it
   stays so. */
static s24_status is_both(int *both, const maker *k, const s24i_place *p, int64_t index)
{
    enum { UNKNOWN, NO, YES };
    double *known = &k->o->memory[S24I_REMEMBERS_FIXED + index];
    const s24_dense dense = view(p, k->other);
    *both = 0;
    if (k->o->method->forward != S24I_FORWARD_KEPT) return S24_OK;
    if (*known == UNKNOWN) {
        download(k, k->other, p, 0);
        TRY(s24_check(both, NULL, k->ctx, &dense));
        if (*both) TRY(s24_check_along_n(both, NULL, k->ctx, &dense));
        *known = *both ? YES : NO;
    }
    *both = *known == YES;
    return S24_OK;
}

/* Magnitudes times factors that tell the masks apart: which of them, chance or, at the end, the
   least loss says. */
static s24_status sample(const maker *k, const s24i_place *p)
{
    const s24i_optimiser *o = k->o;
    const s24_dense noisy = view(p, k->other);
    const int which = s24i_mask_of_step(o, &k->look->moment, k->look->settles);
    for (int64_t i = 0; i < p->rows * p->cols; i++) {
        uint32_t words[4];
        s24_random(words, o->seed ^ (uint64_t)(which + 1) << 56, (uint64_t)(p->offset + i));
        const double u = ((double)words[0] + 1.0) / 4294967296.0;
        const double angle = (double)words[1] / 4294967296.0 * 6.283185307179586;
        const double factor = which ? exp(o->numbers.noise * sqrt(-2 * log(u)) * cos(angle)) : 1;
        k->other[i] = (float)((double)k->w[i] * factor);
    }
    return s24_magnitude_mask(k->keep, k->ctx, &noisy, 0);
}

static s24_status chooses_tiles(int *yes, const maker *k, const s24i_place *p, int64_t index)
{
    *yes = k->o->numbers.watch_tiles > 0;
    return *yes ? S24_OK : is_both(yes, k, p, index);
}

/* k->keep for the weights k->w. */
static s24_status choose(maker *k, const s24i_place *p, int64_t index)
{
    const s24_dense dense = view(p, k->w);
    int both = 0;
    switch (k->o->method->choice) {
    case S24I_CHOICE_TILES:
        return s24_tile_mask(k->keep, k->ctx, &dense, S24_SELECT_TILE_BEST, 0);
    case S24I_CHOICE_GREEDY:
        return s24_tile_mask(k->keep, k->ctx, &dense, S24_SELECT_TILE_GREEDY, 0);
    case S24I_CHOICE_SAMPLES:
        return sample(k, p);
    case S24I_CHOICE_PATTERNS: {
        const s24i_pattern_draw draw = s24i_patterns_draw(k->o, k->look, index);
        s24i_patterns_keep(k->keep, &draw, k->o->extra + k->extra, p->rows * p->cols);
        return S24_OK;
    }
    default:
        TRY(chooses_tiles(&both, k, p, index));
        return both ? s24_tile_mask(k->keep, k->ctx, &dense, S24_SELECT_TILE_BEST, 0)
                    : s24_magnitude_mask(k->keep, k->ctx, &dense, 0);
    }
}

/* ---- what runs ------------------------------------------------------------------------------- */

static void keep_kept(maker *k, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        k->all += fabs((double)k->w[i]);
        if (k->keep[i])
            k->kept += fabs((double)k->w[i]);
        else
            k->w[i] = 0.0f;
    }
}

/* The scale, which is taken where the layer, k->w, is first thresholded. */
static s24_status beta_of(double *beta, maker *k, const s24i_place *p, int64_t index)
{
    double *known = &k->o->memory[S24I_REMEMBERS_FIXED + index];
    const s24_dense dense = view(p, k->w);
    if (*known == 0) {
        download(k, k->w, p, 1);
        TRY(s24_soft_threshold_scale(known, k->ctx, &dense));
    }
    *beta = *known;
    k->beta += *beta;
    return S24_OK;
}

static s24_status soften(maker *k, const s24i_place *p, int64_t index)
{
    double beta;
    const s24_dense dense = view(p, k->w), copy = view(p, k->other);
    TRY(beta_of(&beta, k, p, index));
    memcpy(k->other, k->w, (size_t)(p->rows * p->cols) * sizeof *k->w);
    TRY(s24_soft_threshold(k->ctx, &dense, k->keep, &copy, (float)beta));
    for (int64_t i = 0; i < p->rows * p->cols; i++) {
        k->all += fabs((double)k->other[i]);
        k->kept += k->keep[i] ? fabs((double)k->other[i]) : 0;
    }
    return S24_OK;
}

/* k->w, as it learns, becomes what runs. */
static s24_status make_forward(maker *k, const s24i_place *p, int64_t index)
{
    const int64_t count = p->rows * p->cols;
    switch (k->o->method->forward) {
    case S24I_FORWARD_SOFT:
        return soften(k, p, index);
    case S24I_FORWARD_SCALED:
        s24i_scales_apply(k->w, k->o->extra + k->extra, p->rows, p->cols);
        if (k->look->settles) keep_kept(k, count);
        return S24_OK;
    default:
        keep_kept(k, count);
        return S24_OK;
    }
}

/* Masks that are looked at only leave the weights alone. */
static int looks_only(const maker *k)
{
    return k->o->method->choice == S24I_CHOICE_NOBODY;
}

static s24_status make_here(maker *k, const s24i_place *p, int64_t index)
{
    s24i_machine *m = &k->t->machine;
    const int64_t count = p->rows * p->cols;
    download(k, k->w, p, 1);
    TRY(m->status);
    if (!k->look->sparse) {
        memset(k->keep, 1, (size_t)count);
    } else if (k->look->chooses) {
        TRY(choose(k, p, index));
    } else {
        recall(k, p);
    }
    if (k->look->sparse && !looks_only(k)) TRY(make_forward(k, p, index));
    if (!k->look->settles) note(k, p);
    if (!looks_only(k))
        m->ops->upload(m, k->t->weights + p->offset, k->w, (size_t)count * sizeof *k->w);
    return S24_OK;
}

/* ---- where the host does not reach the weights ----------------------------------------------- */

static s24_status stays_of(s24_device_train_stays *stays, const maker *k, const s24i_place *p,
                           int64_t index)
{
    int tiles = 0;
    switch (k->o->method->choice) {
    case S24I_CHOICE_TILES:
        *stays = S24_DEVICE_TRAIN_TILES;
        return S24_OK;
    case S24I_CHOICE_GREEDY:
        *stays = S24_DEVICE_TRAIN_GREEDY;
        return S24_OK;
    case S24I_CHOICE_SAMPLES:
        *stays = S24_DEVICE_TRAIN_SAMPLED;
        return S24_OK;
    case S24I_CHOICE_PATTERNS:
        *stays = S24_DEVICE_TRAIN_DRAWN;
        return S24_OK;
    default:
        TRY(chooses_tiles(&tiles, k, p, index));
        *stays = tiles ? S24_DEVICE_TRAIN_TILES : S24_DEVICE_TRAIN_GROUPS;
        return S24_OK;
    }
}

/* What chance has a part in. */
static void add_chance(s24_device_train_mask_args *job, const maker *k, int64_t index)
{
    const s24i_optimiser *o = k->o;
    if (o->method->choice == S24I_CHOICE_SAMPLES) {
        const int which = s24i_mask_of_step(o, &k->look->moment, k->look->settles);
        job->noise_seed = o->seed ^ (uint64_t)(which + 1) << 56;
        job->noise = which ? o->numbers.noise : 0;
    }
    if (o->method->choice == S24I_CHOICE_PATTERNS) {
        const s24i_pattern_draw draw = s24i_patterns_draw(o, k->look, index);
        job->logits = o->extra + k->extra;
        job->chance =
            (s24_device_train_chance){draw.seed, draw.place, draw.scale, draw.temperature, 0};
    }
}

/* What has been asked for, at once. */
static s24_status make_asked(maker *k)
{
    s24i_machine *m = &k->t->machine;
    if (k->job_count) m->ops->mask(m, k->jobs, k->job_count, !looks_only(k));
    k->job_count = 0;
    return m->status;
}

static s24_status make_there(maker *k, const s24i_place *p, int64_t index)
{
    const s24i_optimiser *o = k->o;
    const s24i_forward forward = o->method->forward;
    double beta = 0;
    s24_device_train_mask_args job = {.rows = p->rows,
                                      .cols = p->cols,
                                      .first = p->offset,
                                      .stays = k->look->sparse ? S24_DEVICE_TRAIN_BEFORE
                                                               : S24_DEVICE_TRAIN_ALL,
                                      .notes = !k->look->settles && !k->look->lays,
                                      .from = k->t->weights + p->offset,
                                      .to = k->look->ends ? k->t->weights + p->offset : NULL,
                                      .bits = (uint32_t *)(void *)o->bits,
                                      .sums = o->sums};
    if (k->look->sparse && k->look->chooses) {
        TRY(stays_of(&job.stays, k, p, index));
        add_chance(&job, k, index);
    }
    if (k->look->sparse && forward == S24I_FORWARD_SOFT) TRY(beta_of(&beta, k, p, index));
    if (k->look->sparse && forward == S24I_FORWARD_SCALED) {
        job.scales = o->extra + k->extra;
        job.all_run = !k->look->settles;
    }
    job.beta = (float)beta;
    if (k->job_count && k->jobs[0].stays != job.stays) TRY(make_asked(k));
    k->jobs[k->job_count++] = job;
    return S24_OK;
}

static s24_status make_place(maker *k, const s24i_place *p, int64_t index)
{
    if (k->o->method->choice == S24I_CHOICE_ZEROS) return find_zeros(k, p);
    TRY(k->t->machine.ops->mask ? make_there(k, p, index) : make_here(k, p, index));
    k->found += p->rows * p->cols;
    k->layers++;
    return S24_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Zeros are found on the host, whatever the machine. */
static s24_status make_rooms(maker *k)
{
    const s24_transformer *t = k->t;
    s24i_machine *m = &k->t->machine;
    int64_t most = 0;
    for (int64_t i = 0; i < t->place_count; i++)
        most = s24i_max(most, t->places[i].rows * t->places[i].cols);
    TRY(s24i_alloc_elems(&k->w, k->ctx, most, 2 * sizeof *k->w + sizeof *k->keep, "a weight"));
    k->other = k->w + most;
    k->keep = (uint8_t *)(k->other + most);
    k->bits = k->o->bits;
    if (m->ops->mask)
        m->ops->clear(m, k->o->sums,
                      S24_DEVICE_TRAIN_PARTS * S24_DEVICE_TRAIN_MASK_SUMS * sizeof *k->o->sums);
    if (m->ops->mask)
        TRY(s24i_alloc_elems(&k->jobs, k->ctx, t->place_count, sizeof *k->jobs, "masks"));
    if (!m->ops->mask || k->o->method->choice != S24I_CHOICE_ZEROS) return S24_OK;
    TRY(s24i_alloc_elems(&k->bits, k->ctx, t->elems / 16, sizeof *k->bits, "masks"));
    memset(k->bits, 0xff, (size_t)(t->elems / 8));
    return S24_OK;
}

static s24_status make_all(maker *k)
{
    const s24_transformer *t = k->t;
    TRY(make_rooms(k));
    for (int64_t i = 0; i < t->place_count; i++) {
        if (!s24i_method_takes(k->o, &t->places[i])) continue;
        TRY(make_place(k, &t->places[i], i));
        k->extra += s24i_extra_of(k->o, &t->places[i]);
    }
    TRY(make_asked(k));
    REQUIRE(k->ctx, k->found, S24_ERROR_NOT_TWO_FOUR, "%s",
            "no linear layer of the blocks is 2:4 or an eighth of zeros: there is nothing to keep "
            "zero");
    return S24_OK;
}

static void free_rooms(maker *k)
{
    s24i_machine *m = &k->t->machine;
    s24_ctx_free(k->ctx, k->w);
    s24_ctx_free(k->ctx, k->jobs);
    if (k->bits == k->o->bits) return;
    if (k->bits) m->ops->upload(m, k->o->bits, k->bits, (size_t)(k->t->elems / 8));
    s24_ctx_free(k->ctx, k->bits);
}

/* What is counted on a device is told after the step. */
static void remember(const maker *k)
{
    s24i_optimiser *o = k->o;
    double *memory = o->memory;
    const s24i_look *look = k->look;
    const int first = memory[S24I_REMEMBERS_SPARSE] != look->sparse;
    const int changes = look->chooses && !first;
    if (look->settles || look->lays) return;
    memory[S24I_REMEMBERS_FLIPS] = changes ? (double)k->flips / (double)k->found : 0;
    if (look->chooses || first) memory[S24I_REMEMBERS_CHOSEN] = (double)look->moment.step;
    if (k->all > 0) memory[S24I_REMEMBERS_KEPT] = k->kept / k->all;
    if (k->layers) memory[S24I_REMEMBERS_BETA] = k->beta / (double)k->layers;
    memory[S24I_REMEMBERS_SPARSE] = look->sparse;
    o->pending = o->sums != NULL;
    o->pending_bits = changes ? k->found : 0;
}

s24_status s24i_masks_told(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx)
{
    s24i_machine *m = &t->machine;
    double each[S24_DEVICE_TRAIN_PARTS][S24_DEVICE_TRAIN_MASK_SUMS];
    double sums[S24_DEVICE_TRAIN_MASK_SUMS] = {0}; /* flips, kept, all */
    if (!o->pending) return S24_OK;
    m->ctx = ctx;
    m->ops->download(m, each, o->sums, sizeof each);
    for (int part = 0; part < S24_DEVICE_TRAIN_PARTS; part++)
        for (int i = 0; i < S24_DEVICE_TRAIN_MASK_SUMS; i++)
            sums[i] += each[part][i];
    o->pending = 0;
    if (m->status != S24_OK) return m->status;
    if (o->pending_bits) o->memory[S24I_REMEMBERS_FLIPS] = sums[0] / (double)o->pending_bits;
    const int counts = o->memory[S24I_REMEMBERS_SPARSE] == 1 &&
                       o->method->forward != S24I_FORWARD_SCALED &&
                       o->method->choice != S24I_CHOICE_NOBODY;
    if (counts && sums[2] > 0) o->memory[S24I_REMEMBERS_KEPT] = sums[1] / sums[2];
    return S24_OK;
}

s24_status s24i_masks_make(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx,
                           const s24i_look *look)
{
    maker k = {.o = o, .t = t, .ctx = ctx, .look = look};
    s24i_machine *m = &t->machine;
    m->ctx = ctx;
    m->ops->lap(m, 1);
    const s24_status status = make_all(&k);
    free_rooms(&k);
    m->ops->lap(m, 0);
    TRY(status);
    remember(&k);
    if (o->latent && !m->ops->mask) m->ops->refresh(m);
    return m->status;
}
