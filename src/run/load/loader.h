// SPDX-License-Identifier: Apache-2.0
/* A model on its way out of a checkpoint: what the walk over its tensors (model_load.c) shares with
   what makes sources of its linear weights (model_source.c). */
#ifndef S24_RUN_LOAD_LOADER_H
#define S24_RUN_LOAD_LOADER_H

#include "model/walk.h"
#include "run/load/cut.h"
#include "run/load/token_score.h"

typedef struct s24i_loader {
    s24_ctx *ctx;
    const s24_checkpoint *checkpoint;
    const s24i_architecture *arch;
    s24i_shape shape; /* as files have it, whatever a rank takes of it */
    s24i_ranks ranks;
    s24_model_opts opts;
    s24_dtype dtype;
    int headless;                  /* there is to be no head of a language model */
    int next_token;                /* there is one */
    s24i_text_reading reading;     /* of a head that classifies texts or tokens */
    const s24i_token_score *score; /* whose row is that head, or NULL */
    int without_weights; /* blocks get theirs later, and there is no head of a language model */
    s24i_walk walk;
    float *patches, *project, *table; /* weights that are built last, until then */
    const s24_tensor *lm_head;        /* likewise; NULL: it is the words */
    s24_model *model;                 /* NULL in the walk that only checks */
    const void *mapped;   /* data of the tensor that is used where the file is mapped, or NULL */
    int widens;           /* words of integers become floats: only a CPU looks such rows up */
    int widens_layers;    /* and dense layers, which encoders on a device have no integers for */
    int joined;           /* a block's query, key and value are one source, the query's */
    void **buffers;       /* by a layer's number, as many as there are */
    s24i_source *sources; /* likewise */
    int64_t of_others;    /* weights in layouts of other CPUs, which are copied */
} s24i_loader;

/* The tensor of a pattern's name for a block; NULL, and in name what it would be called. */
static inline const s24_tensor *s24i_loader_find(char name[S24I_NAME_BYTES], const s24i_loader *l,
                                                 const char *pattern, int64_t block,
                                                 const char *suffix)
{
    return s24i_tensor_find(name, l->checkpoint, l->arch, pattern, block, suffix);
}

/* Makes the source of a slot in l->sources from its weight, which was checked. */
s24_status s24i_source_slot(s24i_loader *l, int slot, const s24_tensor *tensor);
/* Before the sources of a block: query, key and value are one source where the file has them so. */
void s24i_join_in_place(s24i_loader *l, s24i_block *block, int64_t b);
void s24i_release_sources(s24i_loader *l);
/* Room for the sources of a block; and whatever is in it, freed. */
s24_status s24i_make_sources(s24i_loader *l);
void s24i_free_sources(s24i_loader *l);

#endif
