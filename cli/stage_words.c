// SPDX-License-Identifier: Apache-2.0
/* Gathers the words of a stage's command line. */
#include <stdarg.h>
#include <stdio.h>

#include "stage.h"

void stage_add(stage_words *words, const char *format, ...)
{
    char *place = words->text + words->used;
    const size_t room = sizeof words->text - words->used;
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(place, room, format, arguments);
    va_end(arguments);
    if (words->count == STAGE_WORDS || length < 0 || (size_t)length >= room) {
        words->overflows = 1;
        return;
    }
    words->list[words->count++] = place;
    words->list[words->count] = NULL;
    words->used += (size_t)length + 1;
}
