// SPDX-License-Identifier: Apache-2.0
/*
 * What strangers hand over in a checkpoint's place: other frameworks' files, by their content where
 * it tells and else by their names, a name on a hub, a folder with nothing to read.
 */
#include "io/checkpoint/foreign.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "io/checkpoint/checkpoint.h"

#define TORCH   "a PyTorch checkpoint (a pickle)"
#define CONVERT "AutoModel.from_pretrained(IN).save_pretrained(OUT) of transformers writes them"
#define OURS    "'sparse24 convert IN OUT' writes them"
#define ORIGIN  "take the folder that it was made from"
#define ARRAYS  "safetensors.numpy.save_file writes them"
#define UNPACK  "unpack it first"
#define PAGE    "a web page, perhaps of a download that failed"
#define AGAIN   "download it again"

typedef struct format {
    const char *magic; /* at the file's beginning; "": its name alone tells */
    size_t magic_bytes;
    const char *suffix; /* of its name; "": the content alone tells */
    const char *what, *remedy;
} format;

#define MAGIC(text) text, sizeof text - 1
static const format formats[] = {
    {MAGIC("version https://git-lfs"), "", "a Git LFS pointer", "'git lfs pull' fetches them"},
    {MAGIC("GGUF"), ".gguf", "a GGUF file of llama.cpp", OURS},
    {MAGIC("\x80\x02"), "", TORCH, CONVERT},
    {MAGIC("\x80\x03"), "", TORCH, CONVERT},
    {MAGIC("\x80\x04"), "", TORCH, CONVERT},
    {MAGIC(""), ".bin", TORCH, OURS},
    {MAGIC(""), ".pt", TORCH, OURS},
    {MAGIC(""), ".pth", TORCH, OURS},
    {MAGIC(""), ".ckpt", TORCH, OURS},
    {MAGIC(""), ".bin.index.json", "the index of a PyTorch checkpoint (pickles)", OURS},
    {MAGIC(""), ".onnx", "an ONNX model", ORIGIN},
    {MAGIC("\x89HDF\r\n"), ".h5", "an HDF5 file (Keras)", "with from_tf=True " CONVERT},
    {MAGIC(""), ".msgpack", "a Flax checkpoint", "with from_flax=True " CONVERT},
    {MAGIC("\x93NUMPY"), ".npy", "a NumPy array", ARRAYS},
    {MAGIC(""), ".npz", "an archive of NumPy arrays", ARRAYS},
    {MAGIC("PK\x03\x04"), ".zip", "a zip archive", UNPACK},
    {MAGIC("\x1f\x8b\x08"), ".gz", "a file that gzip packed", UNPACK},
    {MAGIC("\xfd\x37zXZ"), ".xz", "a file that xz packed", UNPACK},
    {MAGIC("\x28\xb5\x2f\xfd"), ".zst", "a file that zstd packed", UNPACK},
    {MAGIC("<!DOCTYPE"), ".html", PAGE, AGAIN},
    {MAGIC("<!doctype"), "", PAGE, AGAIN},
    {MAGIC("<html"), "", PAGE, AGAIN},
};
enum { FORMATS = (int)(sizeof formats / sizeof *formats), MOST_LOOK = 512 };

int s24i_is_torch_archive(const uint8_t *data, size_t bytes)
{
    static const char entry[] = "data.pkl";
    const size_t look = bytes < MOST_LOOK ? bytes : MOST_LOOK;
    for (size_t i = 0; i + sizeof entry - 1 <= look; i++)
        if (!memcmp(data + i, entry, sizeof entry - 1)) return !memcmp(data, "PK", 2);
    return 0;
}

static const format *by_name(const char *path)
{
    const format *found = NULL;
    for (int i = 0; i < FORMATS; i++)
        if (*formats[i].suffix && s24i_ends_with(path, formats[i].suffix)) found = &formats[i];
    return found;
}

static const format *by_content(const uint8_t *data, size_t bytes)
{
    /* A safetensors file that was cut short begins with a length, of which two bytes may be
       anything. */
    uint64_t length = UINT64_MAX;
    if (bytes >= 8) memcpy(&length, data, sizeof length);
    for (int i = 0; i < FORMATS; i++) {
        const format *f = &formats[i];
        if (f->magic_bytes == 2 && length <= S24I_HEADER_MAX_BYTES) continue;
        if (f->magic_bytes && bytes >= f->magic_bytes && !memcmp(data, f->magic, f->magic_bytes))
            return s24i_is_torch_archive(data, bytes) ? by_name(".pt") : f;
    }
    return NULL;
}

s24_status s24i_refuse_foreign(s24_ctx *ctx, const char *path, const uint8_t *data, size_t bytes)
{
    const format *told = by_content(data, bytes), *f = told ? told : by_name(path);
    const int is_json = bytes > 0 && data[0] == '{' && !memchr(data, 0, bytes < 8 ? bytes : 8);
    REQUIRE(ctx, told || !f || strcmp(f->what, TORCH) != 0, S24_ERROR_FORMAT,
            "%s: it is named as a PyTorch checkpoint, but is neither torch.save's archive nor a "
            "pickle; it may have been cut short",
            path);
    REQUIRE(ctx, !f, S24_ERROR_FORMAT, "%s: this is %s; safetensors are expected: %s", path,
            f->what, f->remedy);
    REQUIRE(ctx, !is_json, S24_ERROR_FORMAT,
            "%s: this is JSON; a safetensors file is expected, or the folder that has it", path);
    return S24_OK;
}

/* "owner/name" of letters, digits and a few signs, of which nothing is there. */
static int may_be_on_a_hub(const char *path)
{
    static const char taken[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    const size_t owner = strspn(path, taken), name = strspn(path + owner + 1, taken);
    char folder[128];
    if (!owner || path[owner] != '/' || !name || path[owner + 1 + name] || *path == '.') return 0;
    if (owner >= sizeof folder) return 0;
    memcpy(folder, path, owner);
    folder[owner] = '\0';
    return access(folder, F_OK) != 0 && !s24i_ends_with(path, ".safetensors");
}

s24_status s24i_fail_absent(s24_ctx *ctx, const char *path)
{
    const int reason = errno;
    if (reason == ENOENT && *path && path[strcspn(path, "/")] && may_be_on_a_hub(path))
        return s24_ctx_fail(
            ctx, S24_ERROR_IO,
            "%s: there is no such file or folder; if it is a model's name on a hub, "
            "download it first: huggingface-cli download %s --local-dir FOLDER",
            path, path);
    errno = reason;
    return s24i_fail_errno(ctx, "open", path);
}

/* What of a folder tells best what it is: weights of another form, else a name that says where the
   weights are. */
typedef struct finding {
    char name[128];
    const format *weights;
    int is_safetensors, is_hub_cache;
} finding;

static void look_at(finding *f, const char *name)
{
    const format *weights = by_name(name);
    const int is_safetensors = s24i_ends_with(name, ".safetensors");
    f->is_hub_cache |= !strcmp(name, "snapshots");
    if (f->is_safetensors || (!is_safetensors && (!weights || f->weights))) return;
    f->is_safetensors = is_safetensors;
    f->weights = weights;
    strcpy(f->name, s24i_show(name).text);
}

s24_status s24i_fail_weightless(s24_ctx *ctx, const char *folder)
{
    finding f = {.weights = NULL};
    DIR *entries = opendir(folder);
    if (!entries) return s24i_fail_errno(ctx, "read the folder", folder);
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;)
        look_at(&f, entry->d_name);
    closedir(entries);
    REQUIRE(ctx, !f.is_hub_cache, S24_ERROR_IO,
            "%s: a hub's cache; the model is one of the folders in %s/snapshots", folder, folder);
    REQUIRE(ctx, !f.is_safetensors || strncmp(f.name, "adapter_", 8) != 0, S24_ERROR_IO,
            "%s: %s is an adapter of another model; merge_and_unload() of peft puts it into that",
            folder, f.name);
    REQUIRE(ctx, !f.is_safetensors, S24_ERROR_IO,
            "%s: the folder has no %s; name its file %s itself, or rename it", folder,
            S24I_SINGLE_FILE, f.name);
    REQUIRE(ctx, !f.weights, S24_ERROR_IO,
            "%s: the folder has no safetensors, but %s, which is %s: %s", folder, f.name,
            f.weights->what, f.weights->remedy);
    return s24_ctx_fail(ctx, S24_ERROR_IO, "%s: the folder has neither %s nor %s", folder,
                        S24I_SINGLE_FILE, S24I_INDEX_FILE);
}
