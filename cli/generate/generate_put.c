// SPDX-License-Identifier: Apache-2.0
/* The bytes that a text grows by. */
#include <stdlib.h>
#include <string.h>

#include "generate/generate.h"

int generate_text_put(cli_app *cli, generate_text *text, const char *bytes, size_t count)
{
    generate_text *t = text;
    if (t->bytes + count > t->text_room) {
        const size_t room = 2 * (t->bytes + count) + 256;
        char *grown = realloc(t->text, room);
        if (!grown) return cli_fail(cli, CLI_IO, "out of memory for a text");
        t->text = grown;
        t->text_room = room;
    }
    if (count) memcpy(t->text + t->bytes, bytes, count);
    t->bytes += count;
    return CLI_OK;
}
