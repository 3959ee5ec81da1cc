// SPDX-License-Identifier: Apache-2.0
/*
 * Attention over latents (DeepSeek, "DeepSeek-V2", 2024): of a token's keys and values one short
 * vector is kept, from which those of every head are made, and next to it one key for all heads
 * that positions turn.
 *
 *     c = norm(first `rank` of KEY·x)     r = turned(the others of KEY·x)
 *     q = QUERY·x, or QUERY·norm(LATENT·x): of a head `plain` elements, then those that are turned
 *     scores of a head: (Kᵀ·plain of q)·c + turned(q)·r        its value: V·(Σ p·c)
 *
 * K and V are the head's rows of VALUE: `plain` that make keys, then `value` that make values. Both
 * stand outside of the sums over tokens, so that all heads attend to one row of rank + turned
 * elements for each token, which is all that a cache holds.
 */
#ifndef S24_MODEL_LATENT_H
#define S24_MODEL_LATENT_H

#include <stdint.h>

/* How a row of models.def spells it. */
typedef struct s24i_latent_row {
    const char *key_queries, *key_rank, *key_turned, *key_plain, *key_value;
    const char *key_adjacent; /* do positions turn neighbours? NULL, or not there: they do */
    int halves;               /* 1: they turn halves, whatever is said */
    const char *query;        /* the layer of models without latent queries, without .weight */
} s24i_latent_row;

typedef struct s24i_latent {
    int64_t rank;    /* 0: the model has none */
    int64_t queries; /* of latent queries; 0: they come from x */
    int64_t turned, plain, value;
    int halves; /* positions turn halves against each other */
} s24i_latent;

/* Of norms of latents, whatever config.json says of the others. */
#define S24I_LATENT_EPS 1e-6f

/* Elements of a head's query. */
static inline int64_t s24i_latent_query(const s24i_latent *latent)
{
    return latent->plain + latent->turned;
}

#endif
