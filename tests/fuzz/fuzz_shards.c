// SPDX-License-Identifier: Apache-2.0
/*
 * model.safetensors.index.json next to two shards that hold what it should say. Whatever it is, it
 * is refused with a sentence, or every tensor that it names can be found and read.
 */
#include "fuzz.h"

#include <string.h>

static void put_shard(const char *name, const char *header)
{
    char file[512];
    const uint64_t length = strlen(header);
    memcpy(file, &length, 8);
    memcpy(file + 8, header, (size_t)length);
    memset(file + 8 + length, 1, 32);
    fuzz_put(name, file, 8 + (size_t)length + 32);
}

static void put_shards(void)
{
    put_shard("model-1.safetensors",
              "{\"__metadata__\":{\"sparse24.version\":\"1\",\"sparse24.packed\":"
              "\"{\\\"c\\\":[2,8]}\"},"
              "\"a\":{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[0,20]},"
              "\"c.s24_values\":{\"dtype\":\"I8\",\"shape\":[2,4],\"data_offsets\":[20,28]},"
              "\"c.s24_indices\":{\"dtype\":\"U8\",\"shape\":[2,1],\"data_offsets\":[28,30]},"
              "\"e\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[30,32]}}");
    put_shard("model-2.safetensors",
              "{\"b\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[0,32]}}");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static int is_made;
    s24_ctx *ctx = fuzz_ctx();
    s24_checkpoint *checkpoint;
    const s24_tensor *tensor;
    if (!is_made) put_shards();
    is_made = 1;
    fuzz_put("model.safetensors.index.json", data, bytes);
    const s24_status status = s24_checkpoint_open(&checkpoint, ctx, fuzz_folder());
    CHECK(status == S24_OK || (!checkpoint && *s24_ctx_error(ctx)));
    for (int64_t i = 0; status == S24_OK && i < s24_checkpoint_count(checkpoint); i++) {
        tensor = s24_checkpoint_tensor(checkpoint, i);
        CHECK(s24_checkpoint_find(checkpoint, tensor->name) == tensor);
        CHECK(!strncmp(tensor->file, "model-", 6));
    }
    s24_checkpoint_close(checkpoint);
    return 0;
}
