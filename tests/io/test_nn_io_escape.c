// SPDX-License-Identifier: Apache-2.0
/* Texts from files made fit for a terminal: what becomes an escape, what stays, and where it is
   cut. */
#include "nn_io.h"

static void assert_shown(const char *text, size_t bytes, const char *expected)
{
    char shown[128];
    assert_int_equal(s24_text_escape(shown, sizeof shown, text, bytes), bytes);
    assert_string_equal(shown, expected);
}
#define ASSERT_SHOWN(text, expected) assert_shown(text, sizeof text - 1, expected)

static void escapes_what_acts_on_a_terminal(void **state)
{
    (void)state;
    ASSERT_SHOWN("\033[31mred\007", "\\x1b[31mred\\x07");
    ASSERT_SHOWN("a\nb\tc\rd\0e\177", "a\\nb\\tc\\rd\\x00e\\x7f");
    ASSERT_SHOWN("\xc2\x9b"
                 "2J\xc2\x85\xc2\x80",
                 "\\u009b2J\\u0085\\u0080");
    ASSERT_SHOWN("\u202a\u202b\u202c\u202d\u202e", "\\u202a\\u202b\\u202c\\u202d\\u202e");
    ASSERT_SHOWN("\u2066\u2067\u2068\u2069", "\\u2066\\u2067\\u2068\\u2069");
    ASSERT_SHOWN("\u200e\u200f\u061c\u2028\u2029", "\\u200e\\u200f\\u061c\\u2028\\u2029");
}

static void leaves_what_is_seen(void **state)
{
    static const char seen[] =
        "layer.0 ~\\x1b \u00a0\u00fc\u2027\u202f\u2065\u206a\u4f60\U0001f600";
    (void)state;
    ASSERT_SHOWN(seen, seen);
    ASSERT_SHOWN("", "");
}

static void escapes_bytes_that_are_no_utf8(void **state)
{
    (void)state;
    ASSERT_SHOWN("a\x9b"
                 "31m\xff",
                 "a\\x9b31m\\xff");
    ASSERT_SHOWN("\xe2\x80", "\\xe2\\x80");
    ASSERT_SHOWN("\xed\xa0\x80", "\\xed\\xa0\\x80");
    ASSERT_SHOWN("\xc0\x9b", "\\xc0\\x9b");
}

static void cuts_between_characters_and_goes_on(void **state)
{
    static const char text[] = "ab\u00fc\033c\u202e\xff";
    const size_t bytes = sizeof text - 1;
    (void)state;
    for (size_t room = 8; room < 40; room++) {
        char all[64] = "", piece[40];
        for (size_t at = 0; at < bytes;) {
            const size_t done = s24_text_escape(piece, room, text + at, bytes - at);
            assert_true(done > 0 && strlen(piece) < room);
            strcat(all, piece);
            at += done;
        }
        assert_string_equal(all, "ab\u00fc\\x1bc\\u202e\\xff");
    }
    char one[1] = {'x'};
    assert_int_equal(s24_text_escape(one, 1, text, bytes), 0);
    assert_int_equal(one[0], 0);
    assert_int_equal(s24_text_escape(one, 0, text, bytes), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(escapes_what_acts_on_a_terminal),
        cmocka_unit_test(leaves_what_is_seen),
        cmocka_unit_test(escapes_bytes_that_are_no_utf8),
        cmocka_unit_test(cuts_between_characters_and_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
