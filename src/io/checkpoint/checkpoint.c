// SPDX-License-Identifier: Apache-2.0
/*
 * Opens checkpoints: one .safetensors file, an index, or a Hugging Face folder. All checks happen
 * before s24i_checkpoint_open returns; what it gives out afterwards are pointers into the maps.
 *
 * Writers of 2022 did not align the data; such tensors are copied once to memory that is
 * aligned, so that everyone else may load them as what they are.
 */
#include "io/checkpoint/checkpoint.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/checkpoint/config.h"
#include "io/checkpoint/foreign.h"
#include "io/checkpoint/packed.h"
#include "io/torch/torch.h"

/* Of a packed tensor's parts the indices are bytes, and of a quantised one's the values too: only
   one part can be off. */
static const void **data_of(s24_tensor *tensor)
{
    if (tensor->layout) return &tensor->stream;
    if (tensor->bits) return (const void **)(void *)&tensor->scales;
    return tensor->packed ? &tensor->values : &tensor->data;
}

static size_t data_bytes(const s24_tensor *tensor)
{
    if (!tensor->packed || tensor->layout) return tensor->bytes;
    const int64_t k = s24i_stored_cols(tensor), codes = (k + 7) / 8;
    if (tensor->bits)
        return (size_t)tensor->shape[0] * (size_t)((k + tensor->group - 1) / tensor->group) *
               sizeof *tensor->scales;
    return tensor->bytes - (size_t)(tensor->shape[0] * codes) - s24i_factors_bytes(tensor);
}

enum { LINE = 64 };

static int is_aligned(s24_tensor *tensor)
{
    const size_t element = tensor->layout ? LINE
                           : tensor->bits ? sizeof *tensor->scales
                                          : s24_dtype_bytes(tensor->dtype);
    return (uintptr_t)*data_of(tensor) % element == 0;
}

static s24_status align_tensors(s24i_shard *shard, s24_ctx *ctx)
{
    size_t total = 0, moved = 0, count = shard->header.count;
    s24_tensor *tensors = shard->header.tensors;
    for (size_t i = 0; i < count; i++)
        if (!is_aligned(&tensors[i])) total += (data_bytes(&tensors[i]) + LINE - 1) / LINE * LINE;
    if (total == 0) return S24_OK;
    TRY(s24i_zeroed(&shard->aligned, ctx, total));
    char *place = shard->aligned;
    for (size_t i = 0; i < count; i++) {
        if (is_aligned(&tensors[i])) continue;
        size_t bytes = data_bytes(&tensors[i]);
        *data_of(&tensors[i]) = memcpy(place, *data_of(&tensors[i]), bytes);
        place += (bytes + LINE - 1) / LINE * LINE;
        moved++;
        TRY(s24_ctx_progress(ctx, "opening", (int64_t)i, (int64_t)count));
    }
    s24_ctx_log(ctx, S24_LOG_INFO, "%s: %zu of %zu tensors, not aligned in the file, were copied",
                shard->path, moved, count);
    return S24_OK;
}

/* "pytorch_model-00001-of-00002.bin" to "model-00001-of-00002.safetensors": what a writer calls
   the file that it makes of it. */
static s24_status rename_shard(s24i_shard *shard, s24_ctx *ctx)
{
    static const char prefix[] = "pytorch_", suffix[] = ".safetensors";
    const char *name = s24i_base_name(shard->path), *dot = strrchr(name, '.');
    if (!strncmp(name, prefix, sizeof prefix - 1)) name += sizeof prefix - 1;
    const size_t stem = dot && dot > name ? (size_t)(dot - name) : strlen(name);
    TRY(s24i_alloc_elems(&shard->renamed, ctx, (int64_t)(stem + sizeof suffix), 1, "a name"));
    memcpy(shard->renamed, name, stem);
    memcpy(shard->renamed + stem, suffix, sizeof suffix);
    shard->name = shard->renamed;
    return S24_OK;
}

/* The metadata are what readers in PyTorch's world want of files that come from there. */
static s24_status read_torch(s24i_shard *shard, s24_ctx *ctx)
{
    static const char metadata[] = "{\"format\":\"pt\"}";
    TRY(rename_shard(shard, ctx));
    TRY(s24i_torch_read(shard, ctx));
    TRY(s24i_json_parse(&shard->header.metadata, ctx, shard->path, metadata, sizeof metadata - 1));
    for (size_t i = 0; i < shard->header.count; i++)
        shard->header.tensors[i].file = shard->name;
    return S24_OK;
}

static s24_status read_npz(s24i_shard *shard, s24_ctx *ctx)
{
    TRY(s24i_npz_read(shard, ctx));
    for (size_t i = 0; i < shard->header.count; i++)
        shard->header.tensors[i].file = shard->name;
    return S24_OK;
}

static s24_status read_shard(s24i_shard *shard, s24_ctx *ctx, s24i_takes takes)
{
    const uint8_t *data;
    shard->name = s24i_base_name(shard->path);
    TRY(s24i_map_open_fd(&shard->map, &shard->fd, ctx, shard->path));
    data = shard->map.data;
    if (takes && s24i_is_torch_archive(data, shard->map.bytes)) return read_torch(shard, ctx);
    if (takes == S24I_TAKES_MASKS && shard->map.bytes >= 4 && !memcmp(data, "PK\x03\x04", 4))
        return read_npz(shard, ctx);
    TRY(s24i_header_read(&shard->header, ctx, shard->path, &shard->map));
    TRY(s24i_header_fold_packed(&shard->header, ctx, shard->path));
    for (size_t i = 0; i < shard->header.count; i++)
        shard->header.tensors[i].file = shard->name;
    return align_tensors(shard, ctx);
}

/* All shards' tensors in one array. What it takes comes from the shards' own arrays, which go one
   by one; the only shard's is taken as it is, sorted already. */
static s24_status move_tensors(s24_checkpoint *checkpoint)
{
    s24_ctx *ctx = checkpoint->ctx;
    size_t total = 0;
    for (size_t i = 0; i < checkpoint->shard_count; i++)
        total += checkpoint->shards[i].header.count;
    if (checkpoint->shard_count != 1)
        TRY(s24i_alloc_elems(&checkpoint->tensors, ctx, (int64_t)total, sizeof *checkpoint->tensors,
                             "a model's tensors"));
    for (size_t i = 0; i < checkpoint->shard_count; i++) {
        s24i_header *header = &checkpoint->shards[i].header;
        if (checkpoint->shard_count == 1) {
            checkpoint->tensors = header->tensors;
        } else {
            memcpy(checkpoint->tensors + checkpoint->count, header->tensors,
                   header->count * sizeof *header->tensors);
            s24_ctx_free(ctx, header->tensors);
        }
        checkpoint->count += header->count;
        header->tensors = NULL;
        header->count = 0;
    }
    return S24_OK;
}

/* One sorted array of all shards' tensors; their names must be distinct. */
static s24_status gather_tensors(s24_checkpoint *checkpoint)
{
    TRY(move_tensors(checkpoint));
    const size_t count = checkpoint->count;
    if (checkpoint->shard_count > 1)
        qsort(checkpoint->tensors, count, sizeof *checkpoint->tensors, s24i_compare_names);
    for (size_t i = 1; i < count; i++) {
        const s24_tensor *a = &checkpoint->tensors[i - 1], *b = &checkpoint->tensors[i];
        REQUIRE(checkpoint->ctx, strcmp(a->name, b->name) != 0, S24_ERROR_FORMAT,
                "tensor \"%s\" is in two files: %s and %s", s24i_show(a->name).text,
                s24i_show(a->file).text, s24i_show(b->file).text);
    }
    return S24_OK;
}

/* As it stands there; whether it is known is asked by who needs numbers. */
static s24_status read_quant_method(s24_checkpoint *checkpoint, const s24i_json *config)
{
    const s24i_json *said = s24i_json_get(config, "quantization_config");
    if (s24i_json_typeof(said) <= S24I_JSON_NULL)
        said = s24i_json_get(config, "compression_config");
    if (s24i_json_typeof(said) <= S24I_JSON_NULL) return S24_OK;
    const char *method = s24i_json_string(s24i_json_get(said, "quant_method"));
    return s24i_copy_string(&checkpoint->quant_method, checkpoint->ctx, method ? method : "");
}

/* The model_type of an object of config.json, which need not be one. */
static s24_status copy_type(char **out, s24_ctx *ctx, const s24i_json *object)
{
    const char *type = s24i_json_string(s24i_json_get(object, "model_type"));
    return type ? s24i_copy_string(out, ctx, type) : S24_OK;
}

static s24_status read_model_type(s24_checkpoint *checkpoint)
{
    const char *model_type = NULL;
    s24i_config config;
    TRY(s24i_config_load(&config, checkpoint->ctx, checkpoint->folder, "config.json",
                         S24I_OPTIONAL));
    s24_status status = s24i_config_string(&model_type, &config, "model_type", S24I_OPTIONAL);
    if (status == S24_OK && model_type)
        status = s24i_copy_string(&checkpoint->model_type, checkpoint->ctx, model_type);
    if (status == S24_OK)
        status = copy_type(&checkpoint->text_type, checkpoint->ctx,
                           s24i_json_get(config.json, S24I_TEXT_CONFIG));
    if (status == S24_OK) status = read_quant_method(checkpoint, config.json);
    s24i_config_free(&config);
    return status;
}

/* Refuses an index that names a file which is not there. */
static s24_status check_shard(s24_ctx *ctx, const char *shard, const char *index)
{
    int is_there;
    TRY(s24i_path_is_there(&is_there, ctx, shard));
    REQUIRE(ctx, is_there, S24_ERROR_IO,
            "%s: no such file, but %s says that tensors lie in it; the download may not have ended",
            shard, s24i_base_name(index));
    return S24_OK;
}

/* Opens every shard; path names the index for sentences, if there is one. */
static s24_status read_shards(s24_checkpoint *checkpoint, const s24i_json *index, const char *path)
{
    for (size_t i = 0; i < checkpoint->shard_count; i++) {
        if (index) TRY(check_shard(checkpoint->ctx, checkpoint->shards[i].path, path));
        TRY(read_shard(&checkpoint->shards[i], checkpoint->ctx, checkpoint->takes));
        TRY(s24_ctx_progress(checkpoint->ctx, "opening", (int64_t)i + 1,
                             (int64_t)checkpoint->shard_count));
    }
    TRY(gather_tensors(checkpoint));
    if (index && !s24i_ends_with(path, ".bin.index.json"))
        TRY(s24i_index_check(checkpoint, index, path));
    return checkpoint->folder ? read_model_type(checkpoint) : S24_OK;
}

static s24_status open_file(s24_checkpoint *checkpoint, const char *path)
{
    TRY(s24i_zeroed(&checkpoint->shards, checkpoint->ctx, sizeof *checkpoint->shards));
    TRY(s24i_copy_string(&checkpoint->shards->path, checkpoint->ctx, path));
    checkpoint->shard_count = 1;
    return read_shards(checkpoint, NULL, NULL);
}

static s24_status open_index(s24_checkpoint *checkpoint, const char *path)
{
    s24i_json *index;
    checkpoint->has_index = 1;
    s24_status status = s24i_index_read(&index, checkpoint, path);
    if (status == S24_OK) status = read_shards(checkpoint, index, path);
    s24_ctx_free(checkpoint->ctx, index);
    return status;
}

/* A folder without safetensors. */
static s24_status open_torch_folder(s24_checkpoint *checkpoint)
{
    s24_ctx *ctx = checkpoint->ctx;
    s24_status status;
    int is_single, is_index;
    char *single = NULL, *index = NULL;
    TRY_DONE(s24i_join_path(&single, ctx, checkpoint->folder, S24I_TORCH_FILE));
    TRY_DONE(s24i_join_path(&index, ctx, checkpoint->folder, S24I_TORCH_INDEX));
    TRY_DONE(s24i_path_is_there(&is_single, ctx, single));
    TRY_DONE(s24i_path_is_there(&is_index, ctx, index));
    if (checkpoint->takes && is_single)
        status = open_file(checkpoint, single);
    else if (checkpoint->takes && is_index)
        status = open_index(checkpoint, index);
    else
        status = s24i_fail_weightless(ctx, checkpoint->folder);
done:
    s24_ctx_free(ctx, single);
    s24_ctx_free(ctx, index);
    return status;
}

static s24_status open_folder(s24_checkpoint *checkpoint)
{
    s24_ctx *ctx = checkpoint->ctx;
    s24_status status;
    int is_single, is_index;
    char *single = NULL, *index = NULL;
    TRY_DONE(s24i_join_path(&single, ctx, checkpoint->folder, S24I_SINGLE_FILE));
    TRY_DONE(s24i_join_path(&index, ctx, checkpoint->folder, S24I_INDEX_FILE));
    TRY_DONE(s24i_path_is_there(&is_single, ctx, single));
    TRY_DONE(s24i_path_is_there(&is_index, ctx, index));
    status = is_single  ? open_file(checkpoint, single)
             : is_index ? open_index(checkpoint, index)
                        : open_torch_folder(checkpoint);
done:
    s24_ctx_free(ctx, single);
    s24_ctx_free(ctx, index);
    return status;
}

static s24_status open_path(s24_checkpoint *checkpoint, const char *path)
{
    s24_ctx *ctx = checkpoint->ctx;
    struct stat info;
    if (stat(path, &info) != 0) return s24i_fail_absent(ctx, path);
    if (S_ISDIR(info.st_mode)) {
        TRY(s24i_copy_string(&checkpoint->folder, ctx, path));
        return open_folder(checkpoint);
    }
    if (s24i_ends_with(path, ".safetensors.index.json") ||
        (checkpoint->takes && s24i_ends_with(path, ".bin.index.json"))) {
        TRY(s24i_parent_folder(&checkpoint->folder, ctx, path));
        return open_index(checkpoint, path);
    }
    return open_file(checkpoint, path);
}

s24_status s24i_checkpoint_open(s24_checkpoint **out, s24_ctx *ctx, const char *path,
                                s24i_takes takes)
{
    s24_checkpoint *checkpoint;
    if (!out) return s24_ctx_fail(ctx, S24_ERROR_ARGUMENT, "out is NULL");
    *out = NULL;
    REQUIRE(ctx, path && *path, S24_ERROR_ARGUMENT,
            "path is empty, a .safetensors file or a model folder is expected");
    TRY(s24i_zeroed(&checkpoint, ctx, sizeof *checkpoint));
    checkpoint->ctx = ctx;
    checkpoint->takes = takes;
    GIVE(out, checkpoint, s24_checkpoint_close, open_path(checkpoint, path));
}

s24_status s24_masks_open(s24_checkpoint **out, s24_ctx *ctx, const char *path)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    return s24i_checkpoint_open(out, ctx, path, S24I_TAKES_MASKS);
}

/* One file without tensors, as a writer is to make it. */
static s24_status open_config(s24_checkpoint *checkpoint, const char *folder)
{
    s24_ctx *ctx = checkpoint->ctx;
    s24i_config config;
    TRY(s24i_config_load(&config, ctx, folder, "config.json", S24I_REQUIRED));
    s24i_config_free(&config);
    TRY(s24i_copy_string(&checkpoint->folder, ctx, folder));
    TRY(s24i_zeroed(&checkpoint->shards, ctx, sizeof *checkpoint->shards));
    checkpoint->shard_count = 1;
    checkpoint->shards->name = S24I_SINGLE_FILE;
    TRY(s24i_join_path(&checkpoint->shards->path, ctx, folder, S24I_SINGLE_FILE));
    return read_model_type(checkpoint);
}

s24_status s24_checkpoint_open_config(s24_checkpoint **out, s24_ctx *ctx, const char *folder)
{
    s24_checkpoint *checkpoint;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, folder && *folder, S24_ERROR_ARGUMENT, "folder is empty");
    TRY(s24i_zeroed(&checkpoint, ctx, sizeof *checkpoint));
    checkpoint->ctx = ctx;
    GIVE(out, checkpoint, s24_checkpoint_close, open_config(checkpoint, folder));
}

/* Who holds a map reads weights in layouts. */
static void forget_rest(const s24_checkpoint *checkpoint)
{
    for (size_t i = 0; i < checkpoint->count; i++)
        if (!checkpoint->tensors[i].layout)
            s24_checkpoint_forget(checkpoint, &checkpoint->tensors[i]);
}

void s24_checkpoint_close(s24_checkpoint *checkpoint)
{
    if (!checkpoint) return;
    s24_ctx *ctx = checkpoint->ctx;
    checkpoint->is_closed = 1;
    if (checkpoint->holders) {
        forget_rest(checkpoint);
        return;
    }
    for (size_t i = 0; i < checkpoint->shard_count; i++) {
        s24i_shard *shard = &checkpoint->shards[i];
        s24i_header_free(&shard->header, ctx);
        if (shard->map.bytes) close(shard->fd);
        s24i_map_close(&shard->map);
        s24_ctx_free(ctx, shard->aligned);
        s24_ctx_free(ctx, shard->renamed);
        s24_ctx_free(ctx, shard->path);
    }
    s24_ctx_free(ctx, checkpoint->shards);
    s24_ctx_free(ctx, checkpoint->tensors);
    s24_ctx_free(ctx, checkpoint->split_names);
    s24_ctx_free(ctx, checkpoint->folder);
    s24_ctx_free(ctx, checkpoint->model_type);
    s24_ctx_free(ctx, checkpoint->text_type);
    s24_ctx_free(ctx, checkpoint->quant_method);
    s24_ctx_free(ctx, checkpoint);
}

void s24i_checkpoint_hold(const s24_checkpoint *checkpoint)
{
    ((s24_checkpoint *)(uintptr_t)checkpoint)->holders++;
}

void s24i_checkpoint_let_go(const s24_checkpoint *checkpoint)
{
    s24_checkpoint *held = (s24_checkpoint *)(uintptr_t)checkpoint;
    if (!--held->holders && held->is_closed) s24_checkpoint_close(held);
}

/* The file in whose map the bytes lie, or NULL. */
static const s24i_shard *shard_of(const s24_checkpoint *checkpoint, const void *from)
{
    for (size_t i = 0; i < checkpoint->shard_count; i++) {
        const s24i_map *map = &checkpoint->shards[i].map;
        if ((uintptr_t)from >= (uintptr_t)map->data &&
            (uintptr_t)from - (uintptr_t)map->data < map->bytes)
            return &checkpoint->shards[i];
    }
    return NULL;
}

int s24i_checkpoint_has(const s24_checkpoint *checkpoint, const void *from)
{
    return shard_of(checkpoint, from) != NULL;
}

static void forget(const s24_checkpoint *checkpoint, const void *part, size_t bytes)
{
    const char *from = part;
    if (from && shard_of(checkpoint, from)) s24i_map_forget(&from, from + bytes);
}

void s24_checkpoint_forget(const s24_checkpoint *checkpoint, const s24_tensor *tensor)
{
    const size_t codes =
        tensor->indices ? (size_t)(tensor->shape[0] * ((tensor->shape[1] + 7) / 8)) : 0;
    const size_t scales = tensor->bits ? data_bytes(tensor) : 0;
    forget(checkpoint, tensor->data, tensor->bytes);
    forget(checkpoint, tensor->stream, tensor->bytes);
    forget(checkpoint, tensor->values, tensor->bytes - codes - scales - s24i_factors_bytes(tensor));
    forget(checkpoint, tensor->indices, codes);
}

s24_status s24i_checkpoint_map(s24i_map *map, const void **data, s24_ctx *ctx,
                               const s24_checkpoint *checkpoint, const void *from, size_t bytes,
                               int at_once)
{
    const s24i_shard *shard = shard_of(checkpoint, from);
    *data = NULL;
    if (!shard || !bytes) return S24_OK;
    const size_t begin = (size_t)((const uint8_t *)from - shard->map.data);
    TRY(s24i_map_again(map, ctx, shard->fd, begin, bytes, at_once, shard->path));
    *data = map->data + map->bytes - bytes;
    return S24_OK;
}

int64_t s24_checkpoint_count(const s24_checkpoint *checkpoint)
{
    return checkpoint ? (int64_t)checkpoint->count : 0;
}

const s24_tensor *s24_checkpoint_tensor(const s24_checkpoint *checkpoint, int64_t index)
{
    if (!checkpoint || index < 0 || (size_t)index >= checkpoint->count) return NULL;
    return &checkpoint->tensors[index];
}

const s24_tensor *s24_checkpoint_find(const s24_checkpoint *checkpoint, const char *name)
{
    if (!checkpoint || !name) return NULL;
    return s24i_find_name(checkpoint->tensors, checkpoint->count, name);
}

const char *s24_checkpoint_folder(const s24_checkpoint *checkpoint)
{
    return checkpoint ? checkpoint->folder : NULL;
}

const char *s24_checkpoint_model_type(const s24_checkpoint *checkpoint)
{
    return checkpoint ? checkpoint->model_type : NULL;
}

const char *s24_checkpoint_quantization(const s24_checkpoint *checkpoint)
{
    return checkpoint ? checkpoint->quant_method : NULL;
}

s24_status s24i_model_type(const char **type, s24_ctx *ctx, const s24_checkpoint *checkpoint)
{
    const char *folder = checkpoint->folder;
    char *path;
    *type = checkpoint->model_type;
    if (*type) return S24_OK;
    REQUIRE(ctx, folder, S24_ERROR_ARGUMENT,
            "%s is a single file; a model's folder is expected, with config.json and tokenizer",
            checkpoint->shards->path);
    TRY(s24i_join_path(&path, ctx, folder, "config.json"));
    const int is_there = access(path, F_OK) == 0;
    const s24_status status =
        is_there ? s24_ctx_fail(ctx, S24_ERROR_FORMAT, "%s: model_type is missing", path)
                 : s24_ctx_fail(ctx, S24_ERROR_FORMAT,
                                "%s: the folder has no config.json, which says what the model is; "
                                "it belongs to the model's files, beside %s",
                                folder, checkpoint->shards->name);
    s24_ctx_free(ctx, path);
    return status;
}

const char *s24_checkpoint_metadata(const s24_checkpoint *checkpoint, const char *key)
{
    if (!checkpoint || !key || checkpoint->shard_count == 0) return NULL;
    return s24i_json_string(s24i_json_get(checkpoint->shards[0].header.metadata, key));
}

s24_status s24i_name_tensor(s24_ctx *ctx, s24_status status, const s24_tensor *tensor)
{
    if (status == S24_OK || status == S24_ERROR_INTERRUPTED) return status;
    return s24_ctx_fail(ctx, status, "%s: tensor '%s': %s", tensor->file,
                        s24i_show(tensor->name).text, s24_ctx_error(ctx));
}
