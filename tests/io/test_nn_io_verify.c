// SPDX-License-Identifier: Apache-2.0
/*
 * Hashes of what a writer wrote: nothing of it can change unseen. A number as the program's
 * argument asks for so many flipped bits in place of a few hundred.
 */
#include "nn_io_folder.h"

#include "io/file/xxh3.h"

static int64_t flips = 300;

static void add_side(const char *folder, const char *name, const char *text)
{
    io_write_text(in_folder(folder, name), text);
}

/* A folder as a writer makes it, with side files on two levels. */
static void make_hashed(io_env *env, const char *from, const char *to)
{
    s24_checkpoint *in;
    make_sharded(from);
    add_side(from, "vocab.txt", "[PAD]\nword\n");
    add_side(from, "README.md", "of no vector's concern\n");
    assert_int_equal(mkdir(in_folder(from, "1_Pooling"), 0700), 0);
    add_side(from, "1_Pooling/config.json", "{\"pooling_mode_mean_tokens\":true}");
    assert_ok(env, s24_checkpoint_open(&in, env->ctx, io_path(from)));
    const s24_writer_opts opts = {.size = sizeof opts, .model = in, .force = 1};
    s24_writer *writer;
    assert_ok(env, s24_writer_create(&writer, env->ctx, io_path(to), &opts));
    for (int64_t i = 0; i < s24_checkpoint_count(in); i++)
        assert_ok(env, s24_writer_declare(writer, s24_checkpoint_tensor(in, i)));
    for (int64_t i = 0; i < s24_checkpoint_count(in); i++)
        assert_ok(env, s24_writer_copy(writer, s24_checkpoint_tensor(in, i)));
    assert_ok(env, s24_writer_commit(writer));
    s24_writer_destroy(writer);
    s24_checkpoint_close(in);
}

/* Opens and verifies; the first that fails says how. */
static s24_status verify(io_env *env, const char *path, int whole, s24_verified *out)
{
    s24_checkpoint *in;
    s24_status status = s24_checkpoint_open(&in, env->ctx, path);
    if (status == S24_OK) status = s24_checkpoint_verify(out, env->ctx, in, whole);
    s24_checkpoint_close(in);
    return status;
}

static void refuse(io_env *env, const char *path, int whole, const char *sentence)
{
    assert_int_equal(verify(env, path, whole, NULL), S24_ERROR_FORMAT);
    assert_sentence(env->ctx, sentence);
}

/* Puts a byte of a file in place of the one that is there, which is returned. */
static char change(const char *path, long at, char to)
{
    char was;
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_equal(fread(&was, 1, 1, file), 1);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_equal(fwrite(&to, 1, 1, file), 1);
    assert_int_equal(fclose(file), 0);
    return was;
}

static const char *const hashed_files[] = {
    A1, A2, INDEX, "config.json", "vocab.txt", "1_Pooling/config.json"};
enum { HASHED = sizeof hashed_files / sizeof *hashed_files };

static void what_was_written_is_there(void **state)
{
    io_env env;
    s24_verified found;
    (void)state;
    io_begin(&env);
    make_hashed(&env, "plain", "hashed");
    check_sharded(&env, io_path("hashed"));
    assert_ok(&env, verify(&env, io_path("hashed"), 1, &found));
    assert_int_equal(found.tensors, 4);
    assert_int_equal(found.files, 4); /* less the shards, and README.md */
    assert_ok(&env, verify(&env, io_path("hashed"), 0, &found));
    assert_int_equal(found.bytes, 9);
    assert_int_equal(found.files, 0);
    /* One file of it has hashes, but nothing of the folder is asked for. */
    assert_ok(&env, verify(&env, in_folder("hashed", A2), 1, &found));
    assert_int_equal(found.tensors, 3);
    refuse(&env, io_path("plain"), 1, A1 ": there are no hashes to verify it with");
    assert_ok(&env, verify(&env, io_path("plain"), 0, &found));
    assert_int_equal(found.tensors, 0);
    io_end(&env);
}

static void no_flipped_bit_goes_unseen(void **state)
{
    io_env env;
    uint64_t seed = 24;
    (void)state;
    io_begin(&env);
    make_hashed(&env, "source", "flipped");
    for (int64_t i = 0; i < flips; i++) {
        size_t bytes;
        char path[512];
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        strcpy(path, in_folder("flipped", hashed_files[(seed >> 33) % HASHED]));
        char *all = io_read_file(path, &bytes);
        const size_t at = (size_t)(seed >> 20) % bytes;
        const char was = change(path, (long)at, (char)(all[at] ^ (1 << (seed >> 60) % 8)));
        assert_int_equal(was, all[at]);
        if (verify(&env, io_path("flipped"), 1, NULL) == S24_OK)
            fail_msg("%s: bit %d of byte %zu", path, (int)((seed >> 60) % 8), at);
        change(path, (long)at, was);
        free(all);
    }
    assert_ok(&env, verify(&env, io_path("flipped"), 1, NULL));
    change(in_folder("flipped", "README.md"), 0, 'O');
    assert_ok(&env, verify(&env, io_path("flipped"), 1, NULL));
    io_end(&env);
}

static void sentences_name_what_differs(void **state)
{
    io_env env;
    size_t bytes;
    (void)state;
    io_begin(&env);
    make_hashed(&env, "from", "to");
    const char *shard = in_folder("to", A2);
    free(io_read_file(shard, &bytes));
    const char was = change(shard, (long)bytes - 4, 9); /* of w's values */
    for (int whole = 0; whole < 2; whole++) {
        refuse(&env, io_path("to"), whole, A2 ": tensor \"");
        assert_sentence(env.ctx, "\" has the hash ");
        assert_sentence(env.ctx, " was written (damaged, or changed since)");
    }
    change(shard, (long)bytes - 4, was);
    io_write_text(in_folder("to", "config.json"), "{\"model_type\":\"gpt2\"}");
    assert_ok(&env, verify(&env, io_path("to"), 0, NULL)); /* who edits it means it */
    refuse(&env, io_path("to"), 1, "to/config.json: the file has the hash ");
    assert_int_equal(remove(in_folder("to", "vocab.txt")), 0);
    io_write_text(in_folder("to", "config.json"), "{\"model_type\":\"bert\"}");
    assert_int_equal(verify(&env, io_path("to"), 1, NULL), S24_ERROR_IO);
    assert_sentence(env.ctx, "vocab.txt");
    assert_int_equal(s24_checkpoint_verify(NULL, env.ctx, NULL, 1), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_checkpoint_verify(NULL, NULL, NULL, 1), S24_ERROR_ARGUMENT);
    io_end(&env);
}

#define ENTRY "\"w\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}"
#define LEAD  "{\"__metadata__\":{\"sparse24.xxh3\":\"{\\\"header\\\":\\\""

/* A file of one tensor of bytes 0 and 1 whose header is right; tensors: the hashes that it has. */
static void hash_file(const char *path, const char *tensors)
{
    char header[1024], rest[768];
    snprintf(rest, sizeof rest, "\\\",%s}\"}," ENTRY, tensors);
    snprintf(header, sizeof header, LEAD "%s%s",
             s24i_xxh3_digits(s24i_xxh3(rest, strlen(rest))).text, rest);
    io_write_tensors(path, header, NULL, 2);
}

static void hashes_of_strangers(void **state)
{
    static const char data[2] = {0, 1};
    io_env env;
    char good[256], text[512];
    (void)state;
    io_begin(&env);
    const char *path = io_path("stranger.safetensors");
    snprintf(good, sizeof good, "\\\"w\\\":\\\"%s\\\"", s24i_xxh3_digits(s24i_xxh3(data, 2)).text);
    snprintf(text, sizeof text, "\\\"tensors\\\":{%s}", good);
    hash_file(path, text);
    assert_ok(&env, verify(&env, path, 1, NULL));
    hash_file(path, "\\\"tensors\\\":{}");
    refuse(&env, path, 0, "has no hash of tensor \"w\" in its place");
    hash_file(path, "\\\"tensors\\\":{\\\"w\\\":1}");
    refuse(&env, path, 0, "but none was written");
    snprintf(text, sizeof text, "\\\"tensors\\\":{%s,\\\"x\\\":\\\"0\\\"}", good);
    hash_file(path, text);
    refuse(&env, path, 0, "has the hash of a tensor that is not there");
    /* Written anew by a program that keeps what it does not know. */
    io_write_tensors(path, "{\"__metadata__\":{\"a\":\"b\",\"sparse24.xxh3\":\"{}\"}," ENTRY, NULL,
                     2);
    refuse(&env, path, 0, "the header has hashes (\"sparse24.xxh3\") but was written anew since");
    io_write_tensors(path, "{\"__metadata__\":{\"sparse24.xxh3\":\"{}\"}," ENTRY, NULL, 2);
    refuse(&env, path, 0, "was written anew since");
    io_write_tensors(path, LEAD "0123456789abcdef\\\"}\"}," ENTRY, NULL, 2);
    refuse(&env, path, 0, ": the header has the hash ");
    assert_sentence(env.ctx, "but 0123456789abcdef was written");
    io_end(&env);
}

static void side_files_lie_in_the_folder(void **state)
{
    static const char *const names[] = {"../secret", "/etc/passwd", "a/../../secret", ".."};
    static const char data[2] = {0, 1};
    io_env env;
    char text[512];
    (void)state;
    io_begin(&env);
    assert_int_equal(mkdir(io_path("trap"), 0700), 0);
    io_write_text(io_path("secret"), "x");
    for (size_t i = 0; i <= sizeof names / sizeof *names; i++) {
        char files[128] = "";
        if (i > 0)
            snprintf(files, sizeof files, "\\\"files\\\":{\\\"%s\\\":\\\"0\\\"},", names[i - 1]);
        snprintf(text, sizeof text, "%s\\\"tensors\\\":{\\\"w\\\":\\\"%s\\\"}", files,
                 s24i_xxh3_digits(s24i_xxh3(data, 2)).text);
        hash_file(in_folder("trap", "model.safetensors"), text);
        refuse(&env, io_path("trap"), 1,
               i > 0 ? "which is no file of the folder"
                     : "no file has hashes of config.json and the others of this folder");
    }
    io_end(&env);
}

static void allocations_fail(void **state)
{
    io_env env;
    s24_checkpoint *in;
    s24_status status = S24_ERROR_MEMORY;
    (void)state;
    io_begin(&env);
    make_hashed(&env, "whole", "copied");
    assert_ok(&env, s24_checkpoint_open(&in, env.ctx, io_path("copied")));
    for (int n = 1; status == S24_ERROR_MEMORY; n++) {
        env.memory.calls = 0;
        env.memory.fail_at = n;
        status = s24_checkpoint_verify(NULL, env.ctx, in, 1);
    }
    env.memory.fail_at = 0;
    assert_int_equal(status, S24_OK);
    env.progress_calls = 0;
    env.stop_at = 2;
    assert_int_equal(s24_checkpoint_verify(NULL, env.ctx, in, 1), S24_ERROR_INTERRUPTED);
    s24_checkpoint_close(in);
    io_end(&env);
}

int main(int count, char **words)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_was_written_is_there),
                                       cmocka_unit_test(no_flipped_bit_goes_unseen),
                                       cmocka_unit_test(sentences_name_what_differs),
                                       cmocka_unit_test(hashes_of_strangers),
                                       cmocka_unit_test(side_files_lie_in_the_folder),
                                       cmocka_unit_test(allocations_fail)};
    if (count > 1) flips = strtoll(words[1], NULL, 10);
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
