// SPDX-License-Identifier: Apache-2.0
/* Typed reads of a folder's JSON files: what is taken, and that errors name file, key and range. */
#include "nn_io.h"

#include "io/checkpoint/config.h"

static void load_text(io_env *env, s24i_config *config, const char *text)
{
    io_write_text(io_path("config.json"), text);
    if (s24i_config_load(config, env->ctx, io_root, "config.json", S24I_REQUIRED) != S24_OK)
        fail_msg("%s", s24_ctx_error(env->ctx));
}

static void reads_values(void **state)
{
    io_env env;
    s24i_config config, child, item;
    int64_t integer = 5;
    double number = 0.5;
    const char *text = "default";
    int flag = 1;
    (void)state;
    io_begin(&env);
    load_text(&env, &config,
              "{\"int\":-7,\"real\":1e-12,\"text\":\"gel\xc3\xbc\",\"yes\":true,\"no\":false,"
              "\"null\":null,"
              "\"object\":{\"int\":3},\"list\":[{\"int\":4},5,{\"int\":6}]}");
    assert_int_equal(s24i_config_int(&integer, &config, "int", S24I_REQUIRED, -7, -7), S24_OK);
    assert_int_equal(integer, -7);
    assert_int_equal(s24i_config_double(&number, &config, "real", S24I_REQUIRED, 0, 1), S24_OK);
    assert_true(number == 1e-12);
    assert_int_equal(s24i_config_double(&number, &config, "int", S24I_REQUIRED, -10, 1), S24_OK);
    assert_true(number == -7);
    assert_int_equal(s24i_config_string(&text, &config, "text", S24I_REQUIRED), S24_OK);
    assert_string_equal(text, "gel\xc3\xbc");
    assert_int_equal(s24i_config_bool(&flag, &config, "no", S24I_REQUIRED), S24_OK);
    assert_int_equal(flag, 0);
    assert_int_equal(s24i_config_bool(&flag, &config, "yes", S24I_OPTIONAL), S24_OK);
    assert_int_equal(flag, 1);
    assert_int_equal(s24i_config_child(&child, &config, "object", S24I_REQUIRED), S24_OK);
    assert_int_equal(s24i_config_int(&integer, &child, "int", S24I_REQUIRED, 0, 9), S24_OK);
    assert_int_equal(integer, 3);
    assert_int_equal(s24i_config_child(&child, &config, "list", S24I_REQUIRED), S24_OK);
    assert_true(s24i_config_item(&item, &child, s24i_json_at(child.json, 2)));
    assert_int_equal(s24i_config_int(&integer, &item, "int", S24I_REQUIRED, 0, 9), S24_OK);
    assert_int_equal(integer, 6);
    assert_false(s24i_config_item(&item, &child, s24i_json_at(child.json, 1)));
    assert_false(s24i_config_item(&item, &child, s24i_json_at(child.json, 3)));
    s24i_config_free(&config);
    s24i_config_free(&config);
    io_end(&env);
}

static void optional_values_keep_their_default(void **state)
{
    io_env env;
    s24i_config config, child;
    int64_t integer = 5;
    double number = 0.5;
    const char *text = "default";
    int flag = 1;
    (void)state;
    io_begin(&env);
    io_remove(io_path("config.json"));
    for (int is_there = 0; is_there < 2; is_there++) {
        if (is_there) io_write_text(io_path("config.json"), "{\"null\":null}");
        assert_int_equal(s24i_config_load(&config, env.ctx, io_root, "config.json", S24I_OPTIONAL),
                         S24_OK);
        assert_int_equal(config.json != NULL, is_there);
        assert_int_equal(s24i_config_int(&integer, &config, "null", S24I_OPTIONAL, 0, 9), S24_OK);
        assert_int_equal(s24i_config_double(&number, &config, "x", S24I_OPTIONAL, 0, 9), S24_OK);
        assert_int_equal(s24i_config_string(&text, &config, "x", S24I_OPTIONAL), S24_OK);
        assert_int_equal(s24i_config_bool(&flag, &config, "x", S24I_OPTIONAL), S24_OK);
        assert_int_equal(s24i_config_child(&child, &config, "x", S24I_OPTIONAL), S24_OK);
        assert_null(child.json);
        assert_int_equal(integer, 5);
        assert_true(number == 0.5);
        assert_string_equal(text, "default");
        assert_int_equal(flag, 1);
        s24i_config_free(&config);
    }
    io_end(&env);
}

static void refuses_wrong_values(void **state)
{
    io_env env;
    s24i_config config, child;
    int64_t integer = 5;
    double number;
    const char *text;
    int flag;
    (void)state;
    io_begin(&env);
    load_text(&env, &config, "{\"int\":7,\"real\":1.5,\"text\":\"7\",\"yes\":true,\"null\":null}");
    assert_int_equal(s24i_config_int(&integer, &config, "int", S24I_REQUIRED, 8, 512),
                     S24_ERROR_FORMAT);
    assert_sentence(env.ctx, "config.json: \"int\" is 7, expected 8 to 512");
    assert_int_equal(s24i_config_int(&integer, &config, "real", S24I_OPTIONAL, 0, 9),
                     S24_ERROR_FORMAT);
    assert_sentence(env.ctx, "\"real\" is not an integer");
    assert_int_equal(s24i_config_int(&integer, &config, "text", S24I_REQUIRED, 0, 9),
                     S24_ERROR_FORMAT);
    assert_int_equal(s24i_config_int(&integer, &config, "none", S24I_REQUIRED, 0, 9),
                     S24_ERROR_FORMAT);
    assert_sentence(env.ctx, "config.json: the key \"none\" is missing");
    assert_int_equal(s24i_config_int(&integer, &config, "null", S24I_REQUIRED, 0, 9),
                     S24_ERROR_FORMAT);
    assert_int_equal(integer, 5);
    assert_int_equal(s24i_config_double(&number, &config, "real", S24I_REQUIRED, 0, 1),
                     S24_ERROR_FORMAT);
    assert_sentence(env.ctx, "\"real\" is 1.5, expected 0 to 1");
    assert_int_equal(s24i_config_double(&number, &config, "yes", S24I_REQUIRED, 0, 1),
                     S24_ERROR_FORMAT);
    assert_int_equal(s24i_config_string(&text, &config, "int", S24I_OPTIONAL), S24_ERROR_FORMAT);
    assert_sentence(env.ctx, "\"int\" is not a string");
    assert_int_equal(s24i_config_bool(&flag, &config, "int", S24I_OPTIONAL), S24_ERROR_FORMAT);
    assert_sentence(env.ctx, "\"int\" is not true or false");
    assert_int_equal(s24i_config_child(&child, &config, "int", S24I_REQUIRED), S24_ERROR_FORMAT);
    assert_sentence(env.ctx, "\"int\" is not an object or an array");
    s24i_config_free(&config);
    io_end(&env);
}

static void refuses_what_is_not_json(void **state)
{
    static const char *const cases[] = {"",
                                        "{",
                                        "7",
                                        "\"x\"",
                                        "null",
                                        "{} {}",
                                        "{\"a\":1,}",
                                        "{'a':1}",
                                        "{\"a\":1,\"a\":1}",
                                        "[1,2",
                                        "{\"a\":NaN}",
                                        "\xef\xbb\xbf\xef\xbb\xbf{}",
                                        "{\"a\":\"\xff\"}",
                                        "{\"a\":1e999}",
                                        "{\"a\":\"\\u0000\"}"};
    io_env env;
    s24i_config config;
    (void)state;
    io_begin(&env);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        io_write_text(io_path("config.json"), cases[i]);
        if (s24i_config_load(&config, env.ctx, io_root, "config.json", S24I_OPTIONAL) !=
            S24_ERROR_FORMAT)
            fail_msg("%s", cases[i]);
        assert_null(config.json);
        assert_sentence(env.ctx, "config.json: JSON is expected, but at line 1");
        s24i_config_free(&config);
    }
    io_remove(io_path("config.json"));
    assert_int_equal(s24i_config_load(&config, env.ctx, io_root, "config.json", S24I_REQUIRED),
                     S24_ERROR_IO);
    assert_sentence(env.ctx, "config.json: No such file");
    io_end(&env);
}

static void every_allocation_may_fail(void **state)
{
    io_env env;
    s24i_config config;
    s24_status status = S24_ERROR_MEMORY;
    (void)state;
    io_write_text(io_path("config.json"), "{}");
    for (int64_t n = 1; status != S24_OK; n++) {
        io_begin(&env);
        env.memory.fail_at = env.memory.calls + n;
        status = s24i_config_load(&config, env.ctx, io_root, "config.json", S24I_REQUIRED);
        assert_true(status == S24_OK || status == S24_ERROR_MEMORY);
        assert_int_equal(config.json != NULL, status == S24_OK);
        s24i_config_free(&config);
        io_end(&env);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_values),
        cmocka_unit_test(optional_values_keep_their_default),
        cmocka_unit_test(refuses_wrong_values),
        cmocka_unit_test(refuses_what_is_not_json),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
