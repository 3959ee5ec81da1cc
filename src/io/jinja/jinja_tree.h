// SPDX-License-Identifier: Apache-2.0
/* A template's tokens and the tree that is made of them: what the files of this room share. */
#ifndef S24_IO_JINJA_JINJA_TREE_H
#define S24_IO_JINJA_JINJA_TREE_H

#include "io/jinja/jinja.h"

enum {
    S24I_JMOST_BYTES = 1 << 20, /* of a template */
    S24I_JMOST_NESTED = 100,    /* of a template's blocks, brackets and expressions */
    S24I_JMOST_CHAIN = 256,     /* operators after one another */
    S24I_JMOST_DEPTH = 800,     /* of what is at work: nodes within nodes, through macros too */
    S24I_JMOST_DATA = 128,      /* of values within values */
    S24I_JMOST_RANGE = 100000
};
#ifndef S24I_JMOST_STEPS /* a build of fuzz targets takes less */
#define S24I_JMOST_STEPS UINT64_C(50000000)
#endif
#define S24I_JLEAST_BYTES ((size_t)128 << 20) /* of a run's memory, and for each byte of input */
enum { S24I_JBYTES_FOR_EACH = 256 };

typedef enum s24i_jtoken_type {
    S24I_JT_END,
    S24I_JT_DATA,
    S24I_JT_BLOCK,     /* {% */
    S24I_JT_BLOCK_END, /* %} */
    S24I_JT_PRINT,     /* {{ */
    S24I_JT_PRINT_END, /* }} */
    S24I_JT_NAME,
    S24I_JT_VALUE, /* a string or a number */
    S24I_JT_OPERATOR
} s24i_jtoken_type;

typedef struct s24i_jtoken {
    uint8_t type;
    char text[3]; /* of an operator */
    int line;
    const char *name;  /* ends with a zero */
    s24i_jvalue value; /* DATA's, too */
} s24i_jtoken;

typedef enum s24i_jnode_type {
    /* What has a value. */
    S24I_JN_CONST,
    S24I_JN_NAME,
    S24I_JN_LIST, /* kid 0: its items, linked by next */
    S24I_JN_TUPLE,
    S24I_JN_DICT, /* kid 0: PAIRs */
    S24I_JN_PAIR,
    S24I_JN_ATTRIBUTE, /* kid 0; name */
    S24I_JN_ITEM,      /* kids 0, 1 */
    S24I_JN_SLICE,     /* kid 0; from, to, step: kids 1 to 3 or NULL */
    S24I_JN_CALL,      /* kid 0; kid 1: arguments, named ones are NAMED */
    S24I_JN_NAMED,     /* name; kid 0 */
    S24I_JN_FILTER,    /* kid 0 (NULL: the held text), row, kid 1: arguments */
    S24I_JN_TEST,
    S24I_JN_NOT,
    S24I_JN_MINUS,
    S24I_JN_PLUS,
    S24I_JN_BINARY, /* text: its operator */
    S24I_JN_AND,
    S24I_JN_OR,
    S24I_JN_COMPARE, /* kid 0; kid 1: OPERANDs */
    S24I_JN_OPERAND, /* text: ==, …, "in", "ni" for not in; kid 0 */
    S24I_JN_CONCAT,  /* kid 0: parts */
    S24I_JN_CHOICE,  /* kid 0 if kid 1 else kid 2 (NULL: undefined) */
    /* Statements, linked by next. */
    S24I_JN_DATA,
    S24I_JN_PRINT,    /* kid 0 */
    S24I_JN_IF,       /* kid 0; kid 1, else kid 2 */
    S24I_JN_FOR,      /* kid 0 in kid 1: kid 2, else kid 3; kid 4: its condition, or NULL */
    S24I_JN_SET,      /* kid 0 = kid 1 */
    S24I_JN_CAPTURE,  /* kid 0 = kid 2 through the filters kid 1 (NULL: none) */
    S24I_JN_MACRO,    /* name; kid 0: parameters as NAMED, with defaults or NULL; kid 2 */
    S24I_JN_CALLER,   /* kid 0: a CALL; kid 1: the MACRO that it gets as caller */
    S24I_JN_FILTERED, /* kid 2 through the filters kid 1 */
    S24I_JN_SCOPE,    /* kid 0: NAMED that are set in it; kid 2 */
    S24I_JN_BREAK,
    S24I_JN_CONTINUE
} s24i_jnode_type;

typedef struct s24i_jnode {
    uint8_t type;
    char text[3];
    int line;
    const char *name; /* of ATTRIBUTE that is set: the namespace's is kid 0 */
    const s24i_jrow *row;
    s24i_jvalue value;
    struct s24i_jnode *kid[5], *next;
} s24i_jnode;

struct s24i_jinja {
    s24i_jarena arena;
    char *file;
    s24_text text; /* with one spelling of line ends */
    s24i_jtoken *tokens;
    size_t token_count;
    s24i_jnode *body;
};

/* A reader of tokens. */
typedef struct s24i_jparser {
    s24i_jinja *jinja;
    const s24i_jtoken *at;
    int nested;
    int loops; /* around it */
    int soft;  /* in a branch: names of functions that are unknown fail when they are called */
    s24_status status;
} s24i_jparser;

/* jinja_lexer.c: fills tokens. FORMAT, MEMORY. */
s24_status s24i_jlex(s24i_jinja *jinja);

/* jinja_reader.c */
s24i_jnode *s24i_jnode_new(s24i_jparser *p, s24i_jnode_type type);
/* Fails with "FILE: line N: …", status FORMAT or UNSUPPORTED. */
s24i_jnode *s24i_jrefuse(s24i_jparser *p, s24_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int s24i_jis(const s24i_jparser *p, const char *operator);
int s24i_jis_name(const s24i_jparser *p, const char *name);
/* Goes over it if it is there; else 0. */
int s24i_jskip(s24i_jparser *p, const char *operator);
int s24i_jskip_name(s24i_jparser *p, const char *name);
/* Goes over it or fails. */
int s24i_jexpect(s24i_jparser *p, const char *operator);
const char *s24i_jexpect_name(s24i_jparser *p);
/* One more level of what is nested; 0: it has failed. */
int s24i_jenter(s24i_jparser *p);
/* Counts operators after one another; 0: they are too many, or it has failed before. */
int s24i_jchained(s24i_jparser *p, int *count);
/* What stands there, for a sentence. */
s24i_shown s24i_jshown(const s24i_jparser *p);

/* jinja_expression.c: all return NULL once the parser has failed. */
s24i_jnode *s24i_jexpression(s24i_jparser *p);
/* Expressions with commas between them are a tuple; bare: without `if … else`. */
s24i_jnode *s24i_jtuple(s24i_jparser *p, int bare);
/* Names with commas between them, or with `fields` attributes of namespaces. */
s24i_jnode *s24i_jtarget(s24i_jparser *p, int fields);
/* Filters on what is held; the first has no | before it if `inlined`. */
s24i_jnode *s24i_jfilters(s24i_jparser *p, int inlined);
s24i_jnode *s24i_jbare(s24i_jparser *p);

/* jinja_statement.c */
s24_status s24i_jparse(s24i_jinja *jinja);

/* ---- functions ------------------------------------------------------------------------------- */

/* NULL: there is none. */
const s24i_jrow *s24i_jfilter_find(const char *name);
const s24i_jrow *s24i_jtest_find(const char *name);
const s24i_jrow *s24i_jglobal_find(const char *name);
/* A method of any kind; of values of a kind. */
const s24i_jrow *s24i_jmethod_named(const char *name);
const s24i_jrow *s24i_jmethod_find(s24i_jkind kind, const char *name);
/* Calls a row's function with arguments bound by its parameters' names. */
s24i_jvalue s24i_jcall_row(s24i_jrun *run, const s24i_jrow *row, s24i_jvalue self,
                           s24i_jargs *args);

/* ---- a run ----------------------------------------------------------------------------------- */

typedef struct s24i_jvariable {
    const char *name;
    s24i_jvalue value;
    struct s24i_jvariable *next;
} s24i_jvariable;

typedef struct s24i_jscope {
    struct s24i_jscope *parent;
    s24i_jvariable *variables;
    int kept; /* a macro stands in it, which may run when the scope has been left */
} s24i_jscope;

typedef struct s24i_jmacro {
    const s24i_jnode *node;
    s24i_jscope *scope; /* that it stands in */
} s24i_jmacro;

typedef struct s24i_jloop {
    s24i_jvalue items;
    size_t index;
} s24i_jloop;

struct s24i_jrun {
    s24_ctx *ctx;
    const s24i_jinja *jinja;
    s24i_jarena arena;
    s24_status status;
    uint64_t steps;
    int line, depth;
    s24i_jscope inputs, *scope, *spare_scopes; /* linked by parent */
    s24i_jvariable *spare_variables;
    s24i_jbuild *out;
    s24i_jvalue held; /* what filters of a block are for */
    /* Runs a macro: jinja_run.c's, of which expressions know no more. */
    s24i_jvalue (*macro)(s24i_jrun *run, const s24i_jmacro *macro, const s24i_jargs *args);
};

/* jinja_evaluate.c */
s24i_jvalue s24i_jevaluate(s24i_jrun *run, const s24i_jnode *node);
/* NULL: no scope has it. */
s24i_jvalue *s24i_jlookup(const s24i_jscope *scope, const char *name);
void s24i_jassign(s24i_jrun *run, s24i_jscope *scope, const char *name, s24i_jvalue value);
/* Calls what was evaluated, with more arguments than the node's if `caller` is there. */
s24i_jvalue s24i_jcall(s24i_jrun *run, const s24i_jnode *node, const s24i_jvalue *caller);

/* jinja_item.c: an attribute of a value (value.name), or an item of it (value[key]). */
s24i_jvalue s24i_jattribute(s24i_jrun *run, s24i_jvalue value, const char *name);
s24i_jvalue s24i_jitem(s24i_jrun *run, s24i_jvalue value, s24i_jvalue key);
/* Fails: what is undefined was asked for something. */
s24i_jvalue s24i_jrefuse_undefined(s24i_jrun *run, s24i_jvalue value, const char *what);

/* jinja_operators.c: + - * / // % **; and a text with % marks. */
s24i_jvalue s24i_jbinary(s24i_jrun *run, const char *text, s24i_jvalue a, s24i_jvalue b);
s24i_jvalue s24i_jformatted(s24i_jrun *run, s24i_jvalue format, s24i_jvalue values);

#endif
