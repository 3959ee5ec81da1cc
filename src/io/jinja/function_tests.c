// SPDX-License-Identifier: Apache-2.0
/* The tests of jinja_tests.def. */
#include "io/jinja/function.h"

#include <string.h>

#define TEST(name, condition)                                                                      \
    s24i_jvalue s24i_jt_##name(s24i_jrun *run, s24i_jvalue self, const s24i_jargs *args)           \
    {                                                                                              \
        (void)run, (void)args;                                                                     \
        return s24i_jbool(condition);                                                              \
    }

TEST(boolean, self.kind == S24I_JBOOL)
TEST(callable,
     self.kind == S24I_JUNDEFINED || (self.kind >= S24I_JMACRO && self.kind <= S24I_JGLOBAL))
TEST(defined, self.kind != S24I_JUNDEFINED)
TEST(undefined, self.kind == S24I_JUNDEFINED)
TEST(none, self.kind == S24I_JNONE)
TEST(true, self.kind == S24I_JBOOL && self.as.integer)
TEST(false, self.kind == S24I_JBOOL && !self.as.integer)
TEST(string, self.kind == S24I_JSTRING)
TEST(mapping, self.kind == S24I_JDICT)
TEST(number, s24i_jis_number(self))
TEST(integer, self.kind == S24I_JINT)
TEST(float, self.kind == S24I_JREAL)
TEST(iterable, self.kind == S24I_JUNDEFINED || self.kind == S24I_JSTRING || s24i_jis_list(self) ||
                   self.kind == S24I_JDICT || self.kind == S24I_JLOOP)
TEST(sequence, self.kind == S24I_JUNDEFINED || self.kind == S24I_JSTRING ||
                   self.kind == S24I_JLIST || self.kind == S24I_JTUPLE || self.kind == S24I_JDICT)
TEST(eq, s24i_jequal(run, self, args->bound[0]))
TEST(ne, !s24i_jequal(run, self, args->bound[0]))
TEST(lt, s24i_jorder(run, self, args->bound[0]) < 0)
TEST(le, s24i_jorder(run, self, args->bound[0]) <= 0)
TEST(gt, s24i_jorder(run, self, args->bound[0]) > 0)
TEST(ge, s24i_jorder(run, self, args->bound[0]) >= 0)
TEST(in, s24i_jcontains(run, args->bound[0], self))
TEST(lower, s24i_jhas_case(s24i_jstr(run, self), 0))
TEST(upper, s24i_jhas_case(s24i_jstr(run, self), 1))

/* The same object: of what has no identity here, an equal value of the same type. */
TEST(sameas, self.kind == args->bound[0].kind && s24i_jequal(run, self, args->bound[0]))

/* The rest of a whole number by another. */
static int64_t rest(s24i_jrun *run, s24i_jvalue value, s24i_jvalue by)
{
    const s24i_jvalue out = s24i_jbinary(run, "%", value, by);
    if (out.kind == S24I_JREAL) return out.as.real != 0;
    return out.kind == S24I_JINT ? out.as.integer : -1;
}

TEST(odd, rest(run, self, s24i_jint(2)) == 1)
TEST(even, rest(run, self, s24i_jint(2)) == 0)
TEST(divisibleby, rest(run, self, args->bound[0]) == 0)

static int is_function(s24i_jvalue name, const s24i_jrow *(*find)(const char *))
{
    char text[64];
    return s24i_jname(text, sizeof text, name) && find(text) != NULL;
}

TEST(filter, is_function(self, s24i_jfilter_find))
TEST(test, is_function(self, s24i_jtest_find))
