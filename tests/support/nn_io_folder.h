// SPDX-License-Identifier: Apache-2.0
/* A model folder of two shards with one packed tensor, and what must be read of it. */
#ifndef S24_TEST_NN_IO_FOLDER_H
#define S24_TEST_NN_IO_FOLDER_H

#include "nn_io.h"

#define A1    "model-00001-of-00002.safetensors"
#define A2    "model-00002-of-00002.safetensors"
#define INDEX "model.safetensors.index.json"

static inline const char *in_folder(const char *folder, const char *file)
{
    char name[256];
    snprintf(name, sizeof name, "%s/%s", folder, file);
    return io_path(name);
}

static inline void write_index(const char *folder, const char *weight_map)
{
    char text[1024];
    snprintf(text, sizeof text, "{\"metadata\":{\"total_size\":1},\"weight_map\":%s}", weight_map);
    io_write_text(in_folder(folder, INDEX), text);
}

#define GOOD_MAP                                                                                   \
    "{\"a\":\"" A1 "\",\"w.s24_indices\":\"" A2 "\",\"w.s24_values\":\"" A2 "\",\"z\":\"" A2 "\"}"

/* a in the first shard; z and the packed w [1, 4] in the second. */
static inline void make_sharded(const char *folder)
{
    const uint8_t second[7] = {1, 2, 3, 4, 5, 6, 0x0e};
    assert_int_equal(mkdir(io_path(folder), 0700), 0);
    io_write_tensors(in_folder(folder, A1),
                     "{\"__metadata__\":{\"format\":\"pt\"},"
                     "\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
                     NULL, 2);
    io_write_tensors(in_folder(folder, A2),
                     "{\"__metadata__\":{\"format\":\"pt\",\"sparse24.version\":\"1\","
                     "\"sparse24.packed\":\"{\\\"w\\\":[1,4]}\"},"
                     "\"z\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                     "\"w.s24_values\":{\"dtype\":\"I8\",\"shape\":[1,2],\"data_offsets\":[4,6]},"
                     "\"w.s24_indices\":{\"dtype\":\"U8\",\"shape\":[1,1],\"data_offsets\":[6,7]}}",
                     second, 7);
    write_index(folder, GOOD_MAP);
    io_write_text(in_folder(folder, "config.json"), "{\"model_type\":\"bert\"}");
}

static inline void check_sharded(io_env *env, const char *path)
{
    s24_checkpoint *checkpoint;
    assert_ok(env, s24_checkpoint_open(&checkpoint, env->ctx, path));
    assert_int_equal(s24_checkpoint_count(checkpoint), 3);
    assert_string_equal(s24_checkpoint_tensor(checkpoint, 0)->name, "a");
    assert_string_equal(s24_checkpoint_tensor(checkpoint, 0)->file, A1);
    assert_string_equal(s24_checkpoint_tensor(checkpoint, 1)->name, "w");
    assert_string_equal(s24_checkpoint_tensor(checkpoint, 1)->file, A2);
    assert_int_equal(s24_checkpoint_tensor(checkpoint, 1)->packed, 1);
    assert_string_equal(s24_checkpoint_tensor(checkpoint, 2)->name, "z");
    assert_memory_equal(s24_checkpoint_tensor(checkpoint, 2)->data, "\1\2\3\4", 4);
    assert_string_equal(s24_checkpoint_model_type(checkpoint), "bert");
    assert_string_equal(s24_checkpoint_metadata(checkpoint, "format"), "pt");
    assert_non_null(s24_checkpoint_folder(checkpoint));
    s24_checkpoint_close(checkpoint);
}

#endif
