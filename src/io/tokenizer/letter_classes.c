// SPDX-License-Identifier: Apache-2.0
/* Classes of characters that normalisers, words and regular expressions share. */
#include "io/tokenizer/tokenizer.h"
#include "io/tokenizer/utf8.h"

int s24i_is_space(uint32_t c)
{
    if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
    if (c == 0x85 || c == 0x2028 || c == 0x2029) return 1;
    return utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_ZS;
}

/* Is the character one of \w: a letter, a mark, a digit, or what joins them? */
int s24i_is_word(uint32_t c)
{
    if (c < 0x80)
        return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_';
    if ((c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
        (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189))
        return 1;
    const utf8proc_category_t kind = utf8proc_category((utf8proc_int32_t)c);
    return (kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_NL) ||
           kind == UTF8PROC_CATEGORY_PC;
}

int s24i_is_number(uint32_t c)
{
    if (c < 0x80) return c >= '0' && c <= '9';
    const utf8proc_category_t kind = utf8proc_category((utf8proc_int32_t)c);
    return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
}
