// SPDX-License-Identifier: Apache-2.0
/*
 * JSON: what is legal and what is refused, held against jansson's reader on texts that are damaged
 * at random; how large a tree may be; texts that are written; memory that ends.
 */
#include "nn_failing.h"
#include "nn_io.h"

#include <jansson.h>
#include <locale.h>

#include "io/json/json.h"

/* A value in jansson's own compact spelling, which must come out as jansson spells its own. */
static void spell(s24i_json_text *text, const s24i_json *value)
{
    const char *key, *end = "]";
    int count = 0;
    s24i_json_walk walk = s24i_json_begin(value);
    switch (s24i_json_typeof(value)) {
    case S24I_JSON_STRING:
        s24i_json_put_string(text, s24i_json_string(value), strlen(s24i_json_string(value)));
        return;
    case S24I_JSON_INTEGER:
        s24i_json_put_integer(text, s24i_json_integer(value));
        return;
    case S24I_JSON_REAL: {
        json_t *real = json_real(s24i_json_number(value));
        char *spelled = json_dumps(real, JSON_ENCODE_ANY);
        s24i_json_put(text, spelled);
        free(spelled);
        json_decref(real);
        return;
    }
    case S24I_JSON_BOOL:
        s24i_json_put(text, s24i_json_is_true(value) ? "true" : "false");
        return;
    case S24I_JSON_OBJECT:
        end = "}";
        /* fall through */
    case S24I_JSON_ARRAY:
        s24i_json_put(text, *end == '}' ? "{" : "[");
        for (const s24i_json *inner; (inner = s24i_json_next(&walk, &key)) != NULL; count++) {
            if (count) s24i_json_put(text, ",");
            if (key) s24i_json_put_string(text, key, strlen(key));
            if (key) s24i_json_put(text, ":");
            spell(text, inner);
        }
        s24i_json_put(text, end);
        assert_int_equal(count, s24i_json_count(value));
        return;
    default:
        s24i_json_put(text, "null");
    }
}

static void spell_any(s24i_json_text *text, const void *value)
{
    spell(text, value);
}

/* Both readers must take the text, or neither, and to the same value; but an integer over 64 bits,
   at which jansson ends, is a real number. Returns 1 if they take it. */
static int agree(io_env *env, const char *text, size_t bytes)
{
    s24i_json *ours;
    json_error_t error;
    char *copy = malloc(bytes ? bytes : 1), *spelled;
    assert_non_null(copy);
    memcpy(copy, text, bytes); /* of its own size: a sanitizer sees over-reads */
    json_t *theirs = json_loadb(copy, bytes, JSON_REJECT_DUPLICATES, &error);
    const s24_status status = s24i_json_parse(&ours, env->ctx, "text", copy, bytes);
    free(copy);
    if (!theirs && json_error_code(&error) == json_error_numeric_overflow && status == S24_OK) {
        s24_ctx_free(env->ctx, ours);
        return 1;
    }
    if ((status == S24_OK) != (theirs != NULL))
        fail_msg("\"%.*s\": %s", (int)bytes, text, status ? s24_ctx_error(env->ctx) : "is taken");
    if (!theirs) {
        assert_int_equal(status, S24_ERROR_FORMAT);
        assert_sentence(env->ctx, "text: JSON is expected");
        return 0;
    }
    char *expected = json_dumps(theirs, JSON_COMPACT);
    assert_ok(env, s24i_json_make(&spelled, env->ctx, spell_any, ours, 0));
    assert_string_equal(spelled, expected);
    free(expected);
    json_decref(theirs);
    s24_ctx_free(env->ctx, spelled);
    s24_ctx_free(env->ctx, ours);
    return 1;
}

static const char *const legal[] = {
    "{}",
    " [ ] \r\n\t",
    "[0,-0,1,-1,9223372036854775807,-9223372036854775808]",
    "[0.5,-1e3,1E+2,1e-400,123456789.125,0e0,0.1]",
    "[true,false,null,\"\"]",
    "{\"a\":{\"b\":[{\"c\":[]},[[]]]},\"\":\"\"}",
    "[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0001\\u00e9\\u20AC\\ud83d\\ude00\"]",
    "[\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\x7f\"]",
    "{\"a\":1,\"aa\":2,\"A\":3,\"b\":{\"a\":4}}",
    ("{\"k0\":0,\"k1\":0,\"k2\":0,\"k3\":0,\"k4\":0,\"k5\":0,\"k6\":0,\"k7\":0,\"k8\":0,\"k9\":0,"
     "\"ka\":0,\"kb\":0,\"kc\":0,\"kd\":0,\"ke\":0,\"kf\":0,\"kg\":0,\"kh\":[{},{\"x\":[1.5]}]}"),
};
enum { LEGAL = sizeof legal / sizeof *legal };

static void legal_texts(void **state)
{
    io_env env;
    (void)state;
    io_begin(&env);
    for (int i = 0; i < LEGAL; i++)
        if (!agree(&env, legal[i], strlen(legal[i]))) fail_msg("%s is refused", legal[i]);
    io_end(&env);
}

static void refused_texts(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "line 1, column 1: '{' or '[' is expected"},
        {"1", "'{' or '[' is expected"},
        {"\xef\xbb\xbf{}", "'{' or '[' is expected"},
        {"{} x", "line 1, column 4: the end of the text is expected"},
        {"[1,\n\n 2,]", "line 3, column 4: a value is expected"},
        {"[1 2]", "',' or ']' is expected"},
        {"{\"a\":1]", "',' or '}' is expected"},
        {"[1}", "',' or ']' is expected"},
        {"{\"a\" 1}", "':' is expected"},
        {"{a:1}", "a key in quotation marks"},
        {"{\"a\":1,}", "a key in quotation marks"},
        {"{\"a\":1,\"b\":{\"c\":1,\"d\":2,\"c\":3}}", "duplicate object key \"c\""},
        {"[\"a", "a string without its end"},
        {"[\"a\\", "a string without its end"},
        {"[\"\n\"]", "a control character in a string"},
        {"[\"\\x\"]", "an escape that JSON does not have"},
        {"[\"\\u12g4\"]", "four hexadecimal digits"},
        {"[\"\\u123", "four hexadecimal digits"},
        {"[\"\\u0000\"]", "\\u0000"},
        {"[\"\\ud800\"]", "half of a surrogate pair"},
        {"[\"\\ud800\\u0041\"]", "half of a surrogate pair"},
        {"[\"\\udc00\"]", "half of a surrogate pair"},
        {"[\"\xed\xa0\x80\"]", "not UTF-8"},
        {"[\"\xc0\xaf\"]", "not UTF-8"},
        {"[\"\xf4\x90\x80\x80\"]", "not UTF-8"},
        {"[\"\xe2\x82\"]", "not UTF-8"},
        {"[01]", "',' or ']' is expected"},
        {"[+1]", "a value is expected"},
        {"[.5]", "a value is expected"},
        {"[1.]", "a digit is expected"},
        {"[1e]", "a digit is expected"},
        {"[-]", "a value is expected"},
        {"[NaN]", "a value is expected"},
        {"[True]", "a value is expected"},
        {"[nul]", "a value is expected"},
        {"[1e400]", "a number over the largest double"},
    };
    io_env env;
    (void)state;
    io_begin(&env);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (agree(&env, cases[i].text, strlen(cases[i].text)))
            fail_msg("%s is taken", cases[i].text);
        assert_sentence(env.ctx, cases[i].says);
    }
    assert_false(agree(&env, "[\"a\0b\"]", 7));
    assert_sentence(env.ctx, "a control character");
    io_end(&env);
}

/* An integer over 64 bits is a real number, as tokenizer_config.json's of no limit. */
static void large_integers(void **state)
{
    static const struct {
        const char *text;
        double value;
    } cases[] = {{"[9223372036854775808]", 9223372036854775808.0},
                 {"[-9223372036854775809]", -9223372036854775809.0},
                 {"[1000000000000000019884624838656]", 1e30}};
    char text[403] = "[";
    io_env env;
    s24i_json *root;
    (void)state;
    io_begin(&env);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_ok(&env,
                  s24i_json_parse(&root, env.ctx, "text", cases[i].text, strlen(cases[i].text)));
        const s24i_json *value = s24i_json_at(root, 0);
        assert_int_equal(s24i_json_typeof(value), S24I_JSON_REAL);
        assert_true(s24i_json_number(value) == cases[i].value);
        assert_int_equal(s24i_json_integer(value), 0);
        s24_ctx_free(env.ctx, root);
    }
    memset(text + 1, '9', 400);
    text[401] = ']';
    assert_int_equal(s24i_json_parse(&root, env.ctx, "text", text, 402), S24_ERROR_FORMAT);
    assert_sentence(env.ctx, "a number over the largest double");
    io_end(&env);
}

/* Levels as deep as is allowed, and one more. */
static void depths(void **state)
{
    io_env env;
    char text[2 * (S24I_JSON_DEPTH + 1) + 1];
    (void)state;
    io_begin(&env);
    for (size_t depth = S24I_JSON_DEPTH; depth <= S24I_JSON_DEPTH + 1; depth++) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        assert_int_equal(agree(&env, text, 2 * depth), depth == S24I_JSON_DEPTH);
    }
    assert_sentence(env.ctx, "too many levels");
    io_end(&env);
}

static void damaged_texts(void **state)
{
    static const char bytes[] = "{}[],:\"\\0123456789eE+-.tfnu \n\x80\xc3\xed\xf0\x01";
    io_env env;
    int64_t taken = 0, tried = 0;
    (void)state;
    io_begin(&env);
    for (uint64_t round = 0; round < 60000; round++) {
        uint32_t chance[4];
        char text[512];
        s24_random(chance, 17, round);
        const char *from = legal[chance[0] % LEGAL];
        size_t length = strlen(from);
        memcpy(text, from, length);
        for (uint32_t hits = 0; hits <= chance[3] % 3; hits++) {
            const size_t at = (chance[1] >> 8 * hits) % length;
            const char with = bytes[(chance[2] >> 8 * hits) % (sizeof bytes - 1)];
            if (chance[3] >> (8 + hits) & 1) {
                text[at] = with;
            } else {
                memmove(text + at + 1, text + at, length - at);
                text[at] = with;
                length++;
            }
        }
        taken += agree(&env, text, length);
        tried++;
    }
    assert_true(taken > tried / 50 && taken < tried / 2);
    io_end(&env);
}

/* No text makes a tree over five halves of it. */
static void trees_are_small(void **state)
{
    static const char *const worst[] = {"[],", "0,", "{},", "\"\",", "{\"\":[]},", "null,"};
    enum { TIMES = 100000 };
    (void)state;
    for (size_t i = 0; i < sizeof worst / sizeof *worst; i++) {
        const size_t length = strlen(worst[i]);
        size_t bytes = 0;
        char *text = malloc(TIMES * length + 2);
        io_env env;
        io_begin(&env);
        assert_non_null(text);
        text[bytes++] = '[';
        for (int t = 0; t < TIMES; t++, bytes += length)
            memcpy(text + bytes, worst[i], length);
        text[bytes - 1] = ']';
        s24i_json_reader reader = {env.ctx, "text", text, text, text + bytes, NULL, 0};
        assert_ok(&env, s24i_json_read_value(&reader));
        assert_ptr_equal(reader.at, reader.end);
        if (2 * reader.used > 5 * bytes) fail_msg("%s: %zu bytes", worst[i], reader.used);
        free(text);
        io_end(&env);
    }
}

/* A member's key and what it gives, of an object of many. */
static void finds_members(void **state)
{
    io_env env;
    s24i_json *root;
    char text[] = "{\"a\":-7,\"b\":[1,2.5,\"x\"],\"c\":null,\"d\":true}";
    (void)state;
    io_begin(&env);
    assert_ok(&env, s24i_json_parse(&root, env.ctx, "text", text, strlen(text)));
    assert_int_equal(s24i_json_integer(s24i_json_get(root, "a")), -7);
    assert_true(s24i_json_number(s24i_json_get(root, "a")) == -7);
    const s24i_json *list = s24i_json_get(root, "b");
    assert_int_equal(s24i_json_count(list), 3);
    assert_true(s24i_json_number(s24i_json_at(list, 1)) == 2.5);
    assert_int_equal(s24i_json_integer(s24i_json_at(list, 1)), 0);
    assert_string_equal(s24i_json_string(s24i_json_at(list, 2)), "x");
    assert_null(s24i_json_at(list, 3));
    assert_null(s24i_json_at(root, 0));
    assert_null(s24i_json_get(list, "a"));
    assert_null(s24i_json_get(root, "e"));
    assert_null(s24i_json_get(NULL, "e"));
    assert_null(s24i_json_string(list));
    assert_int_equal(s24i_json_typeof(s24i_json_get(root, "c")), S24I_JSON_NULL);
    assert_true(s24i_json_is_true(s24i_json_get(root, "d")));
    assert_int_equal(s24i_json_typeof(NULL), S24I_JSON_NONE);
    s24_ctx_free(env.ctx, root);
    io_end(&env);
}

/* A real number is read with a point where the program's own language writes a comma. */
static void reads_numbers_in_every_locale(void **state)
{
    static const char *const locales[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE.utf8"};
    double number = 0;
    (void)state;
    const char *found = NULL;
    for (size_t i = 0; !found && i < sizeof locales / sizeof *locales; i++)
        found = setlocale(LC_NUMERIC, locales[i]);
    if (!found) {
        print_message("skipped: no locale with a decimal comma is installed\n");
        skip();
    }
    const int is_finite = s24i_json_real(&number, "0.625");
    setlocale(LC_NUMERIC, "C");
    assert_true(is_finite && number == 0.625);
}

static s24_status parse_all(s24_ctx *ctx)
{
    for (int i = 0; i < LEGAL; i++) {
        s24i_json *root;
        const s24_status status = s24i_json_parse(&root, ctx, "text", legal[i], strlen(legal[i]));
        s24_ctx_free(ctx, root);
        if (status != S24_OK) return status;
    }
    return S24_OK;
}

static void memory_may_end(void **state)
{
    (void)state;
    assert_true(count_failures(parse_all) > LEGAL); /* a tree each, and keys of one */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(legal_texts),    cmocka_unit_test(refused_texts),
        cmocka_unit_test(large_integers), cmocka_unit_test(depths),
        cmocka_unit_test(damaged_texts),  cmocka_unit_test(trees_are_small),
        cmocka_unit_test(finds_members),  cmocka_unit_test(reads_numbers_in_every_locale),
        cmocka_unit_test(memory_may_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
