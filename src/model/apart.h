// SPDX-License-Identifier: Apache-2.0
/*
 * Scores of attention by content and distance together (DeBERTa: He et al., 2021). A table has a
 * row for each distance, near ones one by one and then ever wider ones; a block's own layers make
 * keys and queries of its rows, and the score of a query and a key grows by the query's product
 * with the distance's key, and by the key's with the distance's query.
 */
#ifndef S24_MODEL_APART_H
#define S24_MODEL_APART_H

#include "io/checkpoint/config.h"
#include "io/file/io.h"
#include "model/model.h"

/* shape->apart. UNSUPPORTED for what of config.json makes another attention of it. */
s24_status s24i_apart_read(s24i_shape *shape, const s24i_config *config,
                           const s24i_architecture *arch);

/* Rows of the table. */
static inline int64_t s24i_apart_rows(const s24i_apart *apart)
{
    return 2 * apart->span;
}

/* Columns of a head's keys or queries of distances: rows of the table, and room after them. */
static inline int64_t s24i_apart_ld(const s24i_apart *apart)
{
    return s24i_round_up(s24i_apart_rows(apart), S24I_VEC_PAD) + S24I_VEC_PAD;
}

/* The row of a query that stands `by` tokens after a key, or before it where that is negative. */
int64_t s24i_apart_row(const s24i_apart *apart, int64_t by);

#endif
