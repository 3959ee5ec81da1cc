// SPDX-License-Identifier: Apache-2.0
/*
 * The texts of a language model's cache. One that has ended stays there until its place is needed,
 * the longest unused first, and a prompt that begins as any text does, running or ended, takes over
 * its keys and values: the system prompts of a program are computed once. What must stay true: a
 * slot's ids are those whose keys and values the cache has, and more of the same text.
 */
#include <stdlib.h>
#include <string.h>

#include "serve/serve_language.h"

enum { LEAST = 16 /* tokens in common that are worth a copy */ };

int serve_slots_create(serve_model *model, const struct serve_options *o)
{
    serve_language *l = &model->language;
    const int64_t count = o->texts + (o->no_prefixes ? 0 : o->prefixes);
    l->most_running = o->texts;
    l->slots = calloc((size_t)count, sizeof *l->slots);
    if (!l->slots)
        return cli_fail(&model->cli, CLI_IO, "out of memory for %lld texts", (long long)count);
    for (l->slot_count = 0; l->slot_count < count; l->slot_count++) {
        serve_slot *s = &l->slots[l->slot_count];
        s->ids = malloc((size_t)(model->max_tokens + 1) * sizeof *s->ids);
        if (!s->ids)
            return cli_fail(&model->cli, CLI_IO, "out of memory for %lld texts", (long long)count);
    }
    return CLI_OK;
}

void serve_slots_free(serve_model *model)
{
    serve_language *l = &model->language;
    for (int64_t i = 0; i < l->slot_count; i++)
        free(l->slots[i].ids);
    free(l->slots);
}

/* Counts the tokens with which the prompt begins as the text of a slot does, as far as the cache
   has them; the prompt's last is not among them, since what follows it is asked for. */
static int64_t in_common(const serve_language *l, int64_t slot, const serve_generation *g)
{
    const int32_t *ids = l->slots[slot].ids;
    const int64_t there = s24_cache_tokens(l->cache, slot), prompt = g->offsets[1] - 1;
    const int64_t most = there < prompt ? there : prompt;
    int64_t count = 0;
    while (count < most && ids[count] == g->job.ids[count])
        count++;
    return count;
}

/* Finds the slot whose text has the most in common. Returns how much; 0: none has enough. */
static int64_t find_longest(int64_t *slot, const serve_language *l, const serve_generation *g)
{
    int64_t longest = LEAST - 1;
    if (l->slot_count == l->most_running) return 0; /* none is kept */
    for (int64_t i = 0; i < l->slot_count; i++) {
        const int64_t count = in_common(l, i, g);
        if (count <= longest) continue;
        longest = count;
        *slot = i;
    }
    return longest < LEAST ? 0 : longest;
}

/* Finds the slot that was longest unused; `but` only where it is the last. */
static int64_t find_oldest(const serve_language *l, int64_t but)
{
    int64_t oldest = but;
    for (int64_t i = 0; i < l->slot_count; i++)
        if (!l->slots[i].generation && i != but &&
            (oldest == but || l->slots[i].used < l->slots[oldest].used))
            oldest = i;
    return oldest;
}

/* May the prompt have the very slot? It goes on with the whole text, or is what the text began
   with; else the text stays, for the next. */
static int may_take(const serve_language *l, int64_t slot, const serve_generation *g,
                    int64_t common)
{
    return !l->slots[slot].generation &&
           (common == s24_cache_tokens(l->cache, slot) || common == g->offsets[1] - 1);
}

static void count_prefix(serve_model *m, int64_t tokens)
{
    pthread_mutex_lock(&m->lock);
    m->counts.prefix_texts += tokens > 0;
    m->counts.prefix_tokens += tokens;
    pthread_mutex_unlock(&m->lock);
}

s24_status serve_slots_take(serve_model *model, serve_generation *generation)
{
    serve_language *l = &model->language;
    serve_generation *g = generation;
    int64_t from = -1;
    const int64_t common = find_longest(&from, l, g);
    g->slot = common && may_take(l, from, g, common) ? from : find_oldest(l, from);
    serve_slot *s = &l->slots[g->slot];
    if (common) l->slots[from].used = ++l->clock;
    *s = (serve_slot){g, s->ids, g->offsets[1], ++l->clock};
    memcpy(s->ids, g->job.ids, (size_t)s->count * sizeof *s->ids);
    count_prefix(model, common);
    return s24_cache_copy(l->cache, model->cli.ctx, g->slot, common ? from : g->slot, common);
}

void serve_slots_add(serve_model *model, int64_t slot, int32_t id)
{
    serve_slot *s = &model->language.slots[slot];
    s->ids[s->count++] = id;
}

void serve_slots_give(serve_model *model, int64_t slot)
{
    serve_slot *s = &model->language.slots[slot];
    s->generation = NULL;
    s->used = ++model->language.clock;
}
