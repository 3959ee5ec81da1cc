// SPDX-License-Identifier: Apache-2.0
/* What fuzz targets of the program have in place of its errors: each is counted and judged. */
#ifndef S24_FUZZ_PROGRAM_ERRORS_H
#define S24_FUZZ_PROGRAM_ERRORS_H

/* Sentences since the target set this to 0. */
extern int fuzz_said;
/* With what every sentence begins, its place counted in; NULL: with anything. */
extern const char *fuzz_expected;

#endif
