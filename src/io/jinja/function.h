// SPDX-License-Identifier: Apache-2.0
/* What the files of a template's functions share; they are the rows of jinja_functions.c. */
#ifndef S24_IO_JINJA_FUNCTION_H
#define S24_IO_JINJA_FUNCTION_H

#include "io/jinja/jinja_tree.h"

#define JFILTER(called, function, parameters)                                                      \
    s24i_jvalue s24i_jf_##function(s24i_jrun *run, s24i_jvalue self, const s24i_jargs *args);
#define JKNOWN(called)
#include "io/jinja/jinja_filters.def"
#undef JFILTER
#define JTEST(called, function, parameters)                                                        \
    s24i_jvalue s24i_jt_##function(s24i_jrun *run, s24i_jvalue self, const s24i_jargs *args);
#include "io/jinja/jinja_tests.def"
#undef JTEST
#define JMETHOD(of, called, function, parameters)                                                  \
    s24i_jvalue s24i_jm_##function(s24i_jrun *run, s24i_jvalue self, const s24i_jargs *args);
#include "io/jinja/jinja_methods.def"
#undef JMETHOD
#define JGLOBAL(called, function, parameters)                                                      \
    s24i_jvalue s24i_jg_##function(s24i_jrun *run, s24i_jvalue self, const s24i_jargs *args);
#include "io/jinja/jinja_globals.def"
#undef JGLOBAL
#undef JKNOWN

#define FILTER(name)                                                                               \
    s24i_jvalue s24i_jf_##name(s24i_jrun *run, s24i_jvalue self, const s24i_jargs *args)
#define METHOD(name)                                                                               \
    s24i_jvalue s24i_jm_##name(s24i_jrun *run, s24i_jvalue self, const s24i_jargs *args)

/* function_text.c */

/* A string's bytes with a zero after them; 0: it is no string, or there is no room. */
int s24i_jname(char *out, size_t room, s24i_jvalue string);
/* As Python's isupper and islower. */
int s24i_jhas_case(s24i_jvalue string, int upper);
enum { S24I_JLOWER, S24I_JUPPER, S24I_JCAPITALIZE, S24I_JTITLE, S24I_JWORDS /* the filter's */ };
s24i_jvalue s24i_jcased(s24i_jrun *run, s24i_jvalue string, int how);
/* Stripped of white space, or of the characters of `of` if it is a string. */
s24i_jvalue s24i_jstrip(s24i_jrun *run, s24i_jvalue string, s24i_jvalue of, int ends);
/* The first `most` (below 0: all) are replaced. */
s24i_jvalue s24i_jreplaced(s24i_jrun *run, s24i_jvalue string, const s24i_jvalue both[2],
                           int64_t most);
/* Lines, with their ends or without. */
s24i_jvalue s24i_jlines(s24i_jrun *run, s24i_jvalue string, int with_ends);
s24i_jvalue s24i_jjoin(s24i_jrun *run, s24i_jvalue between, s24i_jvalue list, int strict);

#endif
