// SPDX-License-Identifier: Apache-2.0
/* Names of files may be any bytes, JSON's strings may not. */
#include "json_name.h"

#include <stdlib.h>
#include <string.h>

#include "cli.h"

json_t *cli_json_name(const char *name)
{
    enum { LONGEST = 4 }; /* a byte becomes \xff, three of a mark \u202e */
    json_t *string = json_string(name);
    const size_t bytes = strlen(name), room = LONGEST * bytes + 1;
    char *shown = string || !cli_json_is_whole() ? NULL : malloc(room);
    if (!shown) return string;
    s24_text_escape(shown, room, name, bytes);
    string = json_string(shown);
    free(shown);
    return string;
}
