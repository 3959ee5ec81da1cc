// SPDX-License-Identifier: Apache-2.0
/* What scores of attention grow by, from distances between tokens: by a model's table of buckets,
   as T5 has them (Raffel et al., 2020), one for each near distance, then ever wider ones; by
   slopes; or by whether tokens are near. */
#ifndef S24_MODEL_DISTANCES_H
#define S24_MODEL_DISTANCES_H

#include <float.h>

#include "model/model.h"

/* The bucket for a token that stands `by` tokens later, or earlier where that is negative: half of
   them are for either side. */
static inline int64_t s24i_bucket(const s24i_shape *shape, int64_t by)
{
    const int64_t side = shape->buckets_read / 2, near = side / 2, first = by > 0 ? side : 0;
    const int64_t apart = by > 0 ? by : -by;
    if (apart < near) return first + apart;
    const float share =
        logf((float)apart / (float)near) / logf((float)shape->farthest / (float)near);
    const int64_t far = near + (int64_t)(share * (float)(side - near));
    return first + (far < side ? far : side - 1);
}

/* By how much scores of head `head` of `heads` fall with each token that lies between (ALiBi, Press
   et al., 2022): powers of 2^(−8/heads), or those of the next lower power of two, then every second
   of the next higher one's. */
static inline float s24i_slope(int64_t head, int64_t heads)
{
    int64_t power = 1;
    while (2 * power <= heads)
        power *= 2;
    const float step = 8.0f / (float)power;
    if (head < power) return exp2f(-step * (float)(head + 1));
    return exp2f(-step / 2.0f * (float)(2 * (head - power) + 1));
}

/* Elements of a head's distances in texts of up to `longest` tokens, of which distance 0 is the
   one of this number; what stands after the greatest is read, but counts nothing. */
static inline int64_t s24i_distances(int64_t longest, int64_t *zero)
{
    *zero = longest - 1;
    return s24i_round_up(2 * longest - 1, S24I_VEC_PAD) + S24I_VEC_PAD;
}

/* Where distances come from: the model's table [buckets, heads], slopes of the heads first_head …
   of all_heads, or, with neither, whether tokens are near (shape->near), which is 0 or −FLT_MAX for
   all heads. */
typedef struct s24i_distance_rule {
    const s24i_shape *shape;
    const float *table;
    int slopes;
    int64_t first_head, all_heads;
} s24i_distance_rule;

static inline float s24i_distance(const s24i_distance_rule *rule, int64_t by, int64_t head)
{
    const s24i_shape *shape = rule->shape;
    if (rule->table) return rule->table[s24i_bucket(shape, by) * shape->heads + head];
    const int64_t apart = by > 0 ? by : -by;
    if (!rule->slopes) return apart >= shape->near ? -FLT_MAX : 0.0f;
    return -(float)apart * s24i_slope(rule->first_head + head, rule->all_heads);
}

static inline s24i_distance_rule s24i_distance_rule_of(const s24_model *model)
{
    const s24i_shape *shape = &model->shape;
    return (s24i_distance_rule){.shape = shape,
                                .table = model->relative,
                                .slopes = model->architecture->slopes,
                                .first_head = model->ranks.rank * shape->heads,
                                .all_heads = s24i_max(model->ranks.world, 1) * shape->heads};
}

static inline void s24i_distances_fill(float *to, const s24i_distance_rule *rule, int64_t longest)
{
    int64_t zero;
    const int64_t count = s24i_distances(longest, &zero);
    const int64_t heads = rule->table || rule->slopes ? rule->shape->heads : 1;
    for (int64_t head = 0; head < heads; head++)
        for (int64_t i = 0; i < count; i++)
            to[head * count + i] = s24i_distance(rule, i - zero, head);
}

/* Elements of all of a model's tables for texts of up to `longest` tokens: one, or one for each
   block; *head: of a head's, 0 where all heads have the same. */
static inline int64_t s24i_distance_tables(int64_t *head, int64_t *zero, const s24_model *model,
                                           int64_t longest)
{
    const s24i_shape *shape = &model->shape;
    const int64_t count = s24i_distances(longest, zero);
    const int by_head = s24i_has_distances(model->architecture);
    *head = by_head ? count : 0;
    return s24i_max(shape->tables, 1) * (by_head ? shape->heads : 1) * count;
}

static inline void s24i_distance_tables_fill(float *to, const s24_model *model, int64_t longest)
{
    const s24i_shape *shape = &model->shape;
    s24i_distance_rule rule = s24i_distance_rule_of(model);
    int64_t head, zero;
    const int64_t tables = s24i_max(shape->tables, 1);
    const int64_t each = s24i_distance_tables(&head, &zero, model, longest) / tables;
    for (int64_t t = 0; t < tables; t++) {
        s24i_distances_fill(to + t * each, &rule, longest);
        if (rule.table) rule.table += shape->buckets * shape->heads;
    }
}

#endif
