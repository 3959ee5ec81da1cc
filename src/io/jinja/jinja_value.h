// SPDX-License-Identifier: Apache-2.0
/*
 * Values of a template that runs, as Python has them. All lie in the arena of their run and go with
 * it; nothing that was made is changed but a namespace, and a generator that is gone through.
 *
 * A byte of a string is the template's own or was given: strings made of both have a mark for each
 * byte. What a special token may be made of is the template's own alone.
 */
#ifndef S24_IO_JINJA_JINJA_VALUE_H
#define S24_IO_JINJA_JINJA_VALUE_H

#include "io/file/io.h"
#include "io/json/json.h"

/* Memory that goes all at once. */
typedef struct s24i_jarena {
    s24_ctx *ctx;
    struct s24i_jblock *blocks;
    char *at;
    size_t left, taken, most; /* bytes: of the block, of all, that may be taken */
} s24i_jarena;

/* Zeroed memory; NULL: there is none, or it would be more than `most`. */
void *s24i_jarena_take(s24i_jarena *arena, size_t bytes);
void s24i_jarena_free(s24i_jarena *arena);

typedef enum s24i_jkind {
    S24I_JUNDEFINED,
    S24I_JNONE,
    S24I_JBOOL,
    S24I_JINT,
    S24I_JREAL,
    S24I_JSTRING,
    S24I_JLIST,
    S24I_JTUPLE,
    S24I_JVIEW,      /* of a dict: its keys, values or items */
    S24I_JGENERATOR, /* is empty once it was gone through */
    S24I_JDICT,
    S24I_JNAMESPACE,
    S24I_JMACRO,
    S24I_JMETHOD, /* of a value */
    S24I_JGLOBAL, /* a function */
    S24I_JLOOP
} s24i_jkind;

typedef struct s24i_jlist s24i_jlist;
typedef struct s24i_jdict s24i_jdict;
typedef struct s24i_jrow s24i_jrow;
typedef struct s24i_jrun s24i_jrun;

typedef struct s24i_jvalue {
    uint8_t kind; /* s24i_jkind */
    uint8_t own;  /* of a string without marks: all bytes are the template's; else 0 */
    uint8_t safe; /* a string that went through the filter safe: what + joins to it is escaped */
    uint32_t bytes;
    union {
        int64_t integer; /* a bool's too */
        double real;
        const char *text; /* of `bytes`; of what is undefined its name, or NULL */
        s24i_jlist *list;
        s24i_jdict *dict; /* a namespace's too */
        const struct s24i_jmacro *macro;
        const struct s24i_jmethod *method;
        const s24i_jrow *global;
        struct s24i_jloop *loop;
    } as;
    const uint8_t *marks; /* [bytes] 1: the template's own; NULL: as `own` says */
} s24i_jvalue;

struct s24i_jlist {
    s24i_jvalue *items;
    size_t count, room;
};

typedef struct s24i_jpair {
    s24i_jvalue key, value;
} s24i_jpair;

struct s24i_jdict {
    s24i_jpair *pairs;
    size_t count, room;
};

/* A function of a value, with what it is bound to. */
typedef struct s24i_jmethod {
    const s24i_jrow *row;
    s24i_jvalue self;
} s24i_jmethod;

enum { S24I_JMOST_NAMED = 16, S24I_JMOST_BOUND = 6 };

typedef struct s24i_jnamed {
    const char *name;
    s24i_jvalue value;
} s24i_jnamed;

/* What a function is called with. */
typedef struct s24i_jargs {
    const s24i_jvalue *list;
    size_t count;
    const s24i_jnamed *named;
    size_t named_count;
    /* Those of its row's parameters, undefined where they are not given; and which are. */
    s24i_jvalue bound[S24I_JMOST_BOUND];
    uint8_t given[S24I_JMOST_BOUND];
} s24i_jargs;

typedef s24i_jvalue (*s24i_jfunction)(s24i_jrun *run, s24i_jvalue self, const s24i_jargs *args);

/* A row of a table of functions. */
struct s24i_jrow {
    const char *name;
    const char *params;  /* names with blanks between them; "*": any, which the function reads */
    s24i_jfunction call; /* NULL: it is known by name, and not carried out */
    int kinds;           /* of a method: bits of s24i_jkind */
};

/* ---- making ---------------------------------------------------------------------------------- */

/* Memory of a run, zeroed. NULL: it has failed, as after any error: what is made then is undefined
   and whoever goes on does no harm. */
void *s24i_jtake(s24i_jrun *run, size_t bytes);
/* Fails with "FILE: line N: …" unless it has failed before. Returns what is undefined. */
s24i_jvalue s24i_jfail(s24i_jrun *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int s24i_jfailed(const s24i_jrun *run);
/* Counts work; 0: the run has failed, or has now for doing too much. */
int s24i_jwork(s24i_jrun *run, size_t steps);

/* Room for one more element of `size` bytes, of which `count` are there; NULL: it has failed. */
void *s24i_jgrow(s24i_jrun *run, void *data, size_t count, size_t *room, size_t size);

s24i_jvalue s24i_jundefined(const char *name);
s24i_jvalue s24i_jnone(void);
s24i_jvalue s24i_jbool(int truth);
s24i_jvalue s24i_jint(int64_t integer);
s24i_jvalue s24i_jreal(double real);
/* Borrowed bytes. */
s24i_jvalue s24i_jstring(const char *text, size_t bytes, int own);
s24i_jvalue s24i_jword(const char *text); /* the template's own */
/* Bytes begin … end − 1 of a string. */
s24i_jvalue s24i_jcut(s24i_jvalue string, size_t begin, size_t end);
/* An empty list, tuple, view or generator; one more of it. */
s24i_jvalue s24i_jlist_new(s24i_jrun *run, s24i_jkind kind);
void s24i_jlist_add(s24i_jrun *run, s24i_jvalue list, s24i_jvalue item);
s24i_jvalue s24i_jdict_new(s24i_jrun *run, s24i_jkind kind);
void s24i_jdict_set(s24i_jrun *run, s24i_jvalue dict, s24i_jvalue key, s24i_jvalue value);
/* NULL: there is none. */
const s24i_jvalue *s24i_jdict_get(s24i_jrun *run, s24i_jvalue dict, s24i_jvalue key);
s24i_jvalue s24i_jfrom_json(s24i_jrun *run, const s24i_json *json);

/* A string that grows. */
typedef struct s24i_jbuild {
    s24i_jrun *run;
    char *data;
    uint8_t *marks;
    size_t bytes, room;
} s24i_jbuild;

void s24i_jput(s24i_jbuild *build, const char *text, size_t bytes, int own);
void s24i_jput_string(s24i_jbuild *build, s24i_jvalue string);
void s24i_jput_character(s24i_jbuild *build, uint32_t character, int own);
/* As str() has it; a string as repr() has it. */
void s24i_jput_value(s24i_jbuild *build, s24i_jvalue value);
void s24i_jput_repr(s24i_jbuild *build, s24i_jvalue value);
s24i_jvalue s24i_jbuilt(s24i_jbuild *build);
s24i_jvalue s24i_jstr(s24i_jrun *run, s24i_jvalue value);
/* With <, >, &, and both quotes as HTML has them, unless it is safe. */
s24i_jvalue s24i_jescaped(s24i_jrun *run, s24i_jvalue string);
/* JSON of a value. */
typedef struct s24i_jjson {
    int indent; /* −1: all in a line */
    int ascii, sorted;
    s24i_jvalue comma, colon; /* what stands between */
} s24i_jjson;
s24i_jvalue s24i_jto_json(s24i_jrun *run, s24i_jvalue value, const s24i_jjson *how);

/* ---- asking ---------------------------------------------------------------------------------- */

int s24i_jtrue(s24i_jvalue value);
int s24i_jequal(s24i_jrun *run, s24i_jvalue a, s24i_jvalue b);
/* Below, at or over 0; what has no order fails. */
int s24i_jorder(s24i_jrun *run, s24i_jvalue a, s24i_jvalue b);
int s24i_jcontains(s24i_jrun *run, s24i_jvalue holder, s24i_jvalue item);
/* The byte at which a text that is looked for from a byte on begins; SIZE_MAX: nowhere. */
size_t s24i_jfind(s24i_jrun *run, s24i_jvalue holder, s24i_jvalue item, size_t from);
/* "str", "dict" …, as Python calls a value's type. */
const char *s24i_jtype(s24i_jvalue value);
int s24i_jis_number(s24i_jvalue value); /* a bool, too */
int s24i_jis_list(s24i_jvalue value);   /* a tuple, view or generator, too */
double s24i_jnumber(s24i_jvalue value);
/* Characters of a string; −1: it has a length of no kind. */
int64_t s24i_jlength(s24i_jvalue value);
int64_t s24i_jcharacters(s24i_jvalue string);
/* The byte at which character `index` begins, all of them where there are fewer. */
size_t s24i_jcharacter_at(s24i_jvalue string, int64_t index);
/* Items of what can be gone through: of a string its characters, of a dict its keys. Fails. */
s24i_jvalue s24i_jitems(s24i_jrun *run, s24i_jvalue value);
int s24i_jis_text(s24i_jvalue value, const char *text);
/* White space as Python strips it: bytes of that at the begin of a text, 0: there is none. */
size_t s24i_jspace(const char *text, size_t bytes);
/* Which ends of a text are stripped of it. */
enum { S24I_JLEFT = 1, S24I_JRIGHT = 2 };
s24i_jvalue s24i_jstripped(s24i_jvalue string, int ends);

#endif
