// SPDX-License-Identifier: Apache-2.0
/* Ranks that hold a model together: which they are, what each has of its shape, and that all have
   the same model. */
#include <string.h>

#include "comm/alike.h"
#include "device/device_layers.h"
#include "io/checkpoint/checkpoint.h"
#include "run/load/cut.h"

s24_status s24i_ranks_begin(s24i_ranks *ranks, s24_ctx *ctx, const s24_model_opts *opts)
{
    *ranks = (s24i_ranks){.world = 1};
    if (s24_comm_world(opts->comm) == 1) return S24_OK;
    REQUIRE(ctx,
            s24_device_is_same(s24i_comm_device(opts->comm), opts->device) &&
                (!opts->device || s24i_comm_enqueues(opts->comm)),
            S24_ERROR_UNSUPPORTED,
            "a model that %d ranks hold together is on the CPU with mpi between them, or on the "
            "devices of a communicator of nccl, each rank's on its own",
            s24_comm_world(opts->comm));
    ranks->comm = opts->comm;
    ranks->rank = s24_comm_rank(opts->comm);
    ranks->world = s24_comm_world(opts->comm);
    return s24i_alloc_elems(&ranks->table, ctx, s24i_alike_room(ranks->world), sizeof(double),
                            "what ranks say");
}

/* What of a row's blocks needs all heads or both halves at once; NULL: nothing. */
static const char *is_whole(const s24i_architecture *a)
{
    return s24i_adds_aside(a) ? "changes what layers give before it is added"
           : a->side_by_side  ? "has its halves side by side"
           : a->wide_norms    ? "has norms of all heads together"
           : a->head_by_head  ? "has queries, keys and values head by head"
           : a->latent        ? "attends over latents"
           : a->mixture       ? "has experts"
                              : NULL;
}

s24_status s24i_ranks_shape(s24i_shape *cut, s24_ctx *ctx, const s24i_ranks *ranks,
                            const s24i_architecture *architecture, const s24i_shape *whole,
                            const char *where)
{
    *cut = *whole;
    if (!ranks->comm) return S24_OK;
    const char *why = is_whole(architecture);
    REQUIRE(ctx, !why, S24_ERROR_UNSUPPORTED,
            "%s: a block of %s %s, which is not shared out among ranks", where,
            architecture->model_type, why);
    const struct {
        const char *what;
        int64_t count, *here;
    } shared[] = {{"heads", whole->heads, &cut->heads},
                  {"heads of keys and values", whole->kv_heads, &cut->kv_heads},
                  {"columns of a block's last layer", whole->intermediate, &cut->intermediate}};
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        REQUIRE(ctx, shared[i].count % ranks->world == 0, S24_ERROR_UNSUPPORTED,
                "%s: its %lld %s cannot be shared out among %d ranks", where,
                (long long)shared[i].count, shared[i].what, ranks->world);
        *shared[i].here = shared[i].count / ranks->world;
    }
    return S24_OK;
}

/* ---- what all must have alike ---------------------------------------------------------------- */

static uint64_t hash_text(uint64_t hash, const char *text)
{
    const size_t bytes = text ? strlen(text) + 1 : 0;
    return s24i_hash(s24i_hash(hash, &bytes, sizeof bytes), text ? text : "", bytes);
}

static uint64_t hash_options(const s24_model_opts *o)
{
    const int numbers[] = {(int)o->dtype, o->dense, o->sparse, o->all_sparse, o->verify};
    const char *const texts[] = {o->include, o->exclude, o->quantize, o->quantize_head,
                                 o->layer_dtypes};
    uint64_t hash = s24i_hash(S24I_ALIKE_FIRST, numbers, sizeof numbers);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        hash = hash_text(hash, texts[i]);
    return hash;
}

/* What decides about the bits of what each rank computes as a whole. */
static uint64_t hash_machine(const s24_ctx *ctx, const s24_device *device)
{
    if (device) return hash_text(S24I_ALIKE_FIRST, s24_device_text(device));
    const uint64_t numbers[] = {(uint64_t)s24_ctx_threads(ctx), s24_ctx_cpu(ctx)};
    return s24i_hash(S24I_ALIKE_FIRST, numbers, sizeof numbers);
}

/* Config and all files of weights, byte for byte. */
static s24_status hash_files(uint64_t *hash, s24_ctx *ctx, const s24_checkpoint *checkpoint)
{
    const char *folder = s24_checkpoint_folder(checkpoint);
    char *path = NULL;
    s24i_map map = {0};
    if (folder) TRY(s24i_join_path(&path, ctx, folder, "config.json"));
    s24_status status = path ? s24i_map_open(&map, ctx, path) : S24_OK;
    if (status == S24_OK) *hash = s24i_hash(*hash, map.data, map.bytes);
    s24i_map_close(&map);
    s24_ctx_free(ctx, path);
    for (size_t i = 0; i < checkpoint->shard_count && status == S24_OK; i++)
        *hash = s24i_alike_hash_large(ctx, *hash, checkpoint->shards[i].map.data,
                                      checkpoint->shards[i].map.bytes);
    return status;
}

s24_status s24i_ranks_end(s24_model **model, s24_ctx *ctx, s24i_ranks *ranks,
                          const s24i_ranks_model *of, s24_status mine)
{
    if (!ranks->comm) return mine;
    s24i_alike proofs[] = {
        {"another version of sparse24", hash_text(S24I_ALIKE_FIRST, s24_version())},
        {of->opts->device ? "another kind of device" : "other threads or instructions of the CPU",
         hash_machine(ctx, of->opts->device)},
        {"other options of the model", hash_options(of->opts)},
        {"another model", hash_text(S24I_ALIKE_FIRST, of->preset)}};
    if (mine == S24_OK && of->checkpoint) mine = hash_files(&proofs[3].hash, ctx, of->checkpoint);
    const s24_status status = s24i_alike_compare(ctx, ranks->comm, ranks->table, mine, proofs,
                                                 sizeof proofs / sizeof *proofs);
    if (status == S24_OK) {
        (*model)->ranks = *ranks;
        return S24_OK;
    }
    s24_ctx_free(ctx, ranks->table);
    s24_model_destroy(*model);
    *model = NULL;
    return status;
}
