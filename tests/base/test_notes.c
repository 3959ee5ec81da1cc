// SPDX-License-Identifier: Apache-2.0
/* What was measured, kept with a context in words. */
#include "support.h"

#include "sparse24/sparse24.h"

/* Notes of a context: copied, replaced, the newest first, gone with it. */
static void test_ctx_notes(void **state)
{
    (void)state;
    s24_ctx *ctx;
    char key[8] = "a", longest[128];
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    assert_null(s24_ctx_note_key(ctx, 0));
    assert_int_equal(s24_ctx_note(ctx, key, "1"), S24_OK);
    key[0] = 'b';
    assert_int_equal(s24_ctx_note(ctx, key, "2"), S24_OK);
    assert_int_equal(s24_ctx_note(ctx, "a", "3"), S24_OK);
    assert_string_equal(s24_ctx_noted(ctx, "a"), "3");
    assert_string_equal(s24_ctx_note_key(ctx, 0), "b");
    assert_string_equal(s24_ctx_note_key(ctx, 1), "a");
    assert_null(s24_ctx_note_key(ctx, 2));
    assert_null(s24_ctx_note_key(ctx, -1));
    assert_null(s24_ctx_noted(ctx, "c"));
    assert_int_equal(s24_ctx_note(ctx, NULL, "1"), S24_ERROR_ARGUMENT);
    assert_string_equal(s24_ctx_error(ctx), "key is NULL");
    memset(longest, 'k', sizeof longest);
    longest[96] = '\0';
    assert_int_equal(s24_ctx_note(ctx, longest, "1"), S24_ERROR_ARGUMENT);
    assert_string_equal(s24_ctx_error(ctx),
                        "a note of 96 and 1 bytes; expected less than 96 and 32");
    assert_int_equal(s24_ctx_note(NULL, "a", "1"), S24_ERROR_ARGUMENT);
    assert_null(s24_ctx_noted(NULL, "a"));
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ctx_notes)};
    return cmocka_run_group_tests_name("notes", tests, NULL, NULL);
}
