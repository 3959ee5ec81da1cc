// SPDX-License-Identifier: Apache-2.0
/* What a model's config.json may ask of whoever runs it besides its steps (model/steps.h): those
   who lack a part refuse the model by the part's name. */
#ifndef S24_MODEL_PARTS_H
#define S24_MODEL_PARTS_H

#include "model/model.h"

typedef enum s24i_part {
    S24I_PART_SCALE,        /* scores of attention are multiplied by another number than 1/√d */
    S24I_PART_TURNED,       /* positions turn a part of each head */
    S24I_PART_ADJACENT,     /* they turn neighbours against each other */
    S24I_PART_FACTORS,      /* words' embeddings or logits are multiplied */
    S24I_PART_CAPS,         /* scores or logits are capped */
    S24I_PART_GROWN_NORMS,  /* norms multiply by 1 + their weight */
    S24I_PART_SIDE_BY_SIDE, /* both halves of a block read its input */
    S24I_PART_WIDE_NORMS,   /* norms of queries and keys are of all heads together */
    S24I_PART_HEAD_BY_HEAD, /* a head's query, key and value stand side by side */
    S24I_PART_TWO_TURNS,    /* blocks with a window that causal ones have turn by other angles */
    S24I_PART_GATE_LAST,    /* a joint gate stands after what it multiplies */
    S24I_PART_NORMS_TURNED, /* norms of queries and keys follow positions */
    S24I_PART_SLOPES,       /* scores fall by distance, each head's by its slope */
    S24I_PART_SHARED,       /* all blocks have the same tensors */
    S24I_PART_IMAGES,       /* an image has other tokens than a class token and patches */
    S24I_PART_TABLES,       /* each block has a table of distances */
    S24I_PART_MASKED,       /* masked words change a text's others */
    S24I_PART_AFTER_NORMS,  /* what layers give is normed before it is added */
    S24I_PART_QUICK,        /* the activation is x/(1 + exp(−1.702x)) */
    S24I_PART_PLACES_TURN,  /* where patches lie turns queries and keys */
    S24I_PARTS
} s24i_part;

/* A bit (1 << part) for each that the model needs. */
unsigned s24i_parts_of(const s24i_architecture *architecture, const s24i_shape *shape);
/* Refuses a model with a part that is not among `has`, by its name; `who` says who lacks it.
   UNSUPPORTED. */
s24_status s24i_parts_require(s24_ctx *ctx, const s24i_architecture *architecture,
                              const s24i_shape *shape, unsigned has, const char *who);

#endif
