// SPDX-License-Identifier: Apache-2.0
/*
 * What is done to a pruned weight after the criterion: the table of refinements, and the state they
 * share. All of it is f64 until the result is stored.
 */
#include <string.h>

#include "prune/prune.h"

static const s24i_refinement refinements[] = {
#define REFINEMENT(name, singles, run) {name, singles, run},
#include "prune/refinements.def"
#undef REFINEMENT
};
enum { REFINEMENTS = sizeof refinements / sizeof *refinements };

const char *s24_refinement_name(int index)
{
    if (index == REFINEMENTS) return "all";
    return index >= 0 && index < REFINEMENTS ? refinements[index].name : NULL;
}

/* Those that the pattern takes. */
static unsigned all_refinements(int singles)
{
    unsigned all = 0;
    for (int i = 0; i < REFINEMENTS; i++)
        all |= (unsigned)(singles || !refinements[i].singles) << i;
    return all;
}

s24_status s24i_refinements_read(s24_ctx *ctx, unsigned *chosen, const char *names, int singles)
{
    *chosen = 0;
    for (const char *name = names; name && *name;) {
        const size_t length = strcspn(name, ",");
        int found = 0;
        while (found <= REFINEMENTS && (strlen(s24_refinement_name(found)) != length ||
                                        strncmp(s24_refinement_name(found), name, length)))
            found++;
        REQUIRE(ctx, found <= REFINEMENTS, S24_ERROR_ARGUMENT,
                "no refinement is named \"%.*s\"; expected some of s24_refinement_name(), "
                "separated by commas",
                (int)length, name);
        REQUIRE(ctx, found == REFINEMENTS || singles || !refinements[found].singles,
                S24_ERROR_UNSUPPORTED, "the refinement \"%.*s\" is of N:M and unstructured alone",
                (int)length, name);
        *chosen |= found == REFINEMENTS ? all_refinements(singles) : 1u << found;
        name += length + (name[length] == ',');
    }
    return S24_OK;
}

/* The target is what the criterion was given, but where inputs are always zero: there weights cost
   nothing and become zero. */
static void fill(s24_ctx *ctx, s24i_refit *refit, const s24i_prune_job *job, float *target,
                 const float *before)
{
    memcpy(target, before, (size_t)(job->n * job->k) * sizeof *target);
    for (int64_t i = 0; i < job->n * job->k; i++)
        refit->w[i] = (double)job->w[i];
    for (int64_t j = 0; j < job->k; j++)
        for (int64_t r = 0; r < job->n && job->stats->gram[j * job->k + j] == 0.0; r++) {
            target[r * job->k + j] = 0.0f;
            refit->w[r * job->k + j] = 0.0;
        }
    s24i_gram_dampen(ctx, refit->h, job->stats, job->dampening);
    refit->target = target;
}

static s24_status run(s24_ctx *ctx, s24i_refit *refit, const s24i_prune_job *job)
{
    s24i_refit_begin(ctx, refit);
    for (int i = 0; i < REFINEMENTS; i++)
        if (job->refinements >> i & 1u) TRY(refinements[i].run(ctx, refit));
    return s24i_refit_store(ctx, refit, job);
}

s24_status s24i_prune_refine(s24_ctx *ctx, const s24i_prune_job *job, const float *before)
{
    s24i_refit refit;
    TRY(s24i_refit_create(&refit, ctx, job));
    float *target = s24_ctx_alloc(ctx, (size_t)(job->n * job->k) * sizeof *target);
    s24_status status = S24_ERROR_MEMORY;
    refit.moved = s24_ctx_alloc(ctx, (size_t)job->n);
    if (target && refit.moved) {
        fill(ctx, &refit, job, target, before);
        status = run(ctx, &refit, job);
    } else {
        s24_ctx_fail(ctx, status, "out of memory to refine a weight of [%lld, %lld]",
                     (long long)job->n, (long long)job->k);
    }
    s24_ctx_free(ctx, refit.moved);
    s24_ctx_free(ctx, target);
    s24i_refit_free(&refit, ctx);
    return status;
}
