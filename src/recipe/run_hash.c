// SPDX-License-Identifier: Apache-2.0
/* Options and model of a run of pruning, as they go into its hash. */
#include "recipe/run_hash.h"

#include <string.h>

enum { EDGE = 4096 /* bytes at a tensor's beginning and end that tell models apart */ };

static void add_text(s24i_xxh3_stream *hash, const char *text)
{
    const char *known = text ? text : "";
    const char present = text != NULL;
    s24i_xxh3_add(hash, &present, 1);
    s24i_xxh3_add(hash, known, strlen(known) + 1);
}

static void add_number(s24i_xxh3_stream *hash, double number)
{
    s24i_xxh3_add(hash, &number, sizeof number);
}

void s24i_run_hash_options(s24i_xxh3_stream *hash, const s24_model_prune_opts *o)
{
    const s24_prune_opts *p = &o->prune;
    const char *const texts[] = {s24_version(), p->criterion, p->pattern,
                                 p->refine,     o->include,   o->exclude,
                                 o->quantize,   o->low_rank,  s24_device_text(o->device),
                                 o->aim};
    const double numbers[] = {p->dampening, p->block,    (double)p->seed,
                              o->dtype,     o->packed,   (double)o->reconstruct,
                              o->global,    o->normalize};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        add_text(hash, texts[i]);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        add_number(hash, numbers[i]);
}

void s24i_run_hash_model(s24i_xxh3_stream *hash, const s24_checkpoint *in)
{
    for (int64_t i = 0; i < s24_checkpoint_count(in); i++) {
        const s24_tensor *t = s24_checkpoint_tensor(in, i);
        add_text(hash, t->name);
        add_number(hash, t->dtype);
        for (int d = 0; d < t->rank; d++)
            add_number(hash, (double)t->shape[d]);
        if (!t->data || !t->bytes) continue;
        const size_t edge = t->bytes < EDGE ? t->bytes : EDGE;
        s24i_xxh3_add(hash, t->data, edge);
        s24i_xxh3_add(hash, (const char *)t->data + t->bytes - edge, edge);
    }
}
