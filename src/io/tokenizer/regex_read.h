// SPDX-License-Identifier: Apache-2.0
/* What the two parts of the reader of regular expressions share. */
#ifndef S24_IO_TOKENIZER_REGEX_READ_H
#define S24_IO_TOKENIZER_REGEX_READ_H

#include "io/tokenizer/regex.h"

typedef struct s24i_regex_reader {
    s24i_regex *regex;
    const char *at;
    const char *wrong; /* what is not known; NULL: nothing so far */
    int fold, depth;
    int may_be_empty; /* what was read last */
} s24i_regex_reader;

void s24i_regex_refuse(s24i_regex_reader *reader, const char *what);
/* The set of a character, an escape, a dot or a class. */
int s24i_regex_read_set(s24i_regex_reader *reader);

#endif
