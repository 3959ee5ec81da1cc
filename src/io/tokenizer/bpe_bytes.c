// SPDX-License-Identifier: Apache-2.0
/* Spells tokens of byte pair encoding in bytes, where they are written in letters of their own. */
#include <string.h>

#include "io/tokenizer/tokenizer.h"
#include "io/tokenizer/utf8.h"

/* Asks whether a byte stands for itself: at byte level the printable ones of Latin-1 do, the others
   are the code points from U+0100 on, in their order. */
static int is_printable(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

static int byte_of(uint32_t letter)
{
    if (letter < 0x100) return is_printable(letter) ? (int)letter : -1;
    uint32_t number = 0x100;
    for (unsigned byte = 0; byte < 0x100; byte++)
        if (!is_printable(byte) && number++ == letter) return (int)byte;
    return -1;
}

uint32_t s24i_bpe_letter(unsigned char byte)
{
    uint32_t number = 0x100;
    if (is_printable(byte)) return byte;
    for (unsigned before = 0; before < byte; before++)
        number += !is_printable(before);
    return number;
}

size_t s24i_bpe_bytes(char *out, const char *token)
{
    const size_t bytes = strlen(token);
    size_t count = 0;
    for (size_t i = 0; i < bytes;) {
        uint32_t letter;
        i += s24i_utf8_next(&letter, (const unsigned char *)token + i, bytes - i);
        const int byte = byte_of(letter);
        if (byte < 0) return SIZE_MAX;
        out[count++] = (char)byte;
    }
    return count;
}
