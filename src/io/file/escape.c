// SPDX-License-Identifier: Apache-2.0
/*
 * Names and texts from files made fit for a terminal: what would act there instead of being seen
 * becomes an escape. One rule for the library's sentences and for everything the program prints.
 */
#include "io/file/io.h"
#include "io/tokenizer/utf8.h"

#include <stdio.h>
#include <string.h>

/* Is the character seen? Controls move the cursor and set colours; marks of direction show a text
   in another order than it has; separators end a line. */
static int is_seen(uint32_t c)
{
    const int controls = c < 0x20 || (c >= 0x7f && c < 0xa0);
    const int marks = c == 0x061c || c == 0x200e || c == 0x200f || (c >= 0x2066 && c <= 0x2069);
    return !controls && !marks && !(c >= 0x2028 && c <= 0x202e);
}

/* The escape of one character, which is no UTF-8 or not seen. Returns its length. */
static size_t escape(char text[16], uint32_t c, unsigned char byte)
{
    const char *const name = c == '\n' ? "\\n" : c == '\t' ? "\\t" : c == '\r' ? "\\r" : NULL;
    if (name) return (size_t)snprintf(text, 16, "%s", name);
    if (c == S24I_UTF8_INVALID || c < 0x80)
        return (size_t)snprintf(text, 16, "\\x%02x", (unsigned)byte);
    return (size_t)snprintf(text, 16, "\\u%04x", (unsigned)c);
}

size_t s24_text_escape(char *out, size_t room, const char *text, size_t bytes)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t used = 0, done = 0;
    while (done < bytes && room > 0) {
        uint32_t c;
        char escaped[16];
        const char *shown = text + done;
        size_t taken = s24i_utf8_next(&c, p + done, bytes - done), length = taken;
        if (c == S24I_UTF8_INVALID) taken = 1;
        if (c == S24I_UTF8_INVALID || !is_seen(c)) {
            length = escape(escaped, c, p[done]);
            shown = escaped;
        }
        if (length >= room - used) break;
        memcpy(out + used, shown, length);
        used += length;
        done += taken;
    }
    if (room > 0) out[used] = '\0';
    return done;
}

s24i_shown s24i_show(const char *name)
{
    s24i_shown shown;
    const size_t bytes = strlen(name), mark = sizeof "…";
    const size_t done = s24_text_escape(shown.text, sizeof shown.text - mark + 1, name, bytes);
    if (done < bytes) strcat(shown.text, "…");
    return shown;
}
