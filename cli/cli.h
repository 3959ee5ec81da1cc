// SPDX-License-Identifier: Apache-2.0
/*
 * Declares what the files of the command line share: the shape of a command and of its options,
 * exit codes, talk on stderr, JSON on stdout, selection of tensors.
 *
 * Rules: data goes to stdout, talk to stderr. A function that returns an exit code has said why on
 * stderr before it returns anything but CLI_OK and CLI_NO. The only mutable globals of the program
 * are what signals need, a flag and a stack (progress.c), and the memory that JSON ends with
 * (json.c).
 */
#ifndef SPARSE24_CLI_CLI_H
#define SPARSE24_CLI_CLI_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "sparse24/comm.h"
#include "sparse24/nn.h"
#include "sparse24/sparse24.h"

/* Exit codes, as docs/cli.md promises them to scripts. */
enum {
    CLI_OK = 0,
    CLI_NO = 1, /* the check says no */
    CLI_USAGE = 2,
    CLI_IO = 3,
    CLI_FORMAT = 4,
    CLI_UNSUPPORTED = 5,
    CLI_INTERRUPTED = 130
};

/* ---- options: one table per command drives parsing, help, man page, completion --------------- */

typedef enum cli_type {
    CLI_FLAG,     /* int field, set to 1 */
    CLI_TEXT,     /* const char * field */
    CLI_WORDS,    /* likewise, and may be empty */
    CLI_COUNT,    /* int64_t field, a whole number of at least 1 */
    CLI_REAL,     /* double field, a number of at least 0 */
    CLI_POSITIVE, /* likewise, over 0 */
    CLI_CHOICE,   /* const char * field, one of choice(0), choice(1) … */
    CLI_LIST,     /* const char * field, some of them separated by commas */
    CLI_COUNTS    /* const char * field, whole numbers of at least 1 separated by commas */
} cli_type;

typedef struct cli_option {
    const char *name; /* without dashes; NULL ends a table */
    char letter;      /* of the short form, or 0 */
    cli_type type;
    size_t offset;        /* of its field in the command's options struct */
    const char *argument; /* shown for the value; NULL: none, or the choices */
    const char *fallback; /* the default, read like a value; NULL: zero */
    const char *help;
    const char *(*choice)(int index); /* NULL past the end */
} cli_option;

/* Begins every command's options struct. */
typedef struct cli_common {
    int json, quiet, force, help;
    int all_sparse, all_dense; /* of commands with CLI_SPARSE or CLI_DENSE */
    int verify;                /* of commands with CLI_VERIFY */
    const char *head;          /* of commands with CLI_QUANTIZE_HEAD: a scheme, or NULL */
    const char *cache;         /* of commands with CLI_CACHE_DTYPE: a dtype, or NULL */
    const char *comm;          /* of commands with CLI_COMM: what carries sums, or NULL */
    int64_t threads;           /* 0: every core */
    const char *isa, *device;
} cli_common;

/* Says which options go together; one table per command drives check, help and man page. */
typedef enum cli_rule_kind {
    CLI_NEEDED,    /* each of the options must be given */
    CLI_ONE_OF,    /* at most one of them may be */
    CLI_ONLY_WITH, /* each of them needs one of the others */
    CLI_NOT_WITH   /* none of them goes with any of the others */
} cli_rule_kind;

typedef struct cli_rule {
    cli_rule_kind kind;
    /* Names, separated by blanks; NAME=WORD: with that word as its value, or among them. NULL
       options end a table. */
    const char *options, *others;
    const char *why; /* CLI_NOT_WITH: what is said of the other, "has no chart"; or NULL */
} cli_rule;

typedef struct cli_app cli_app;

typedef struct cli_example {
    const char *line; /* NULL ends a table */
    const char *text;
} cli_example;

/* An entry of a table that a command's help has next to its options. */
typedef struct cli_entry {
    const char *name, *text;
    const char *detail; /* or NULL */
} cli_entry;

typedef struct cli_command {
    const char *name;
    const char *summary;  /* a phrase, no full stop */
    const char *operands; /* words: "IN OUT"; one in brackets may be left out */
    const char *text;     /* for --help and the man page; a newline starts a paragraph */
    const cli_example *examples;
    const cli_option *options; /* NULL: only the common ones */
    const cli_rule *rules;     /* of those; NULL: every option goes with every other */
    size_t options_bytes;      /* of the struct that begins with cli_common; zeroed by the caller */
    const char *spare;         /* the option that an operand too many may be meant for; or NULL */
    int writes;                /* 1: takes --force */
    int gpu;                   /* 1: takes --device cuda */
    int (*run)(cli_app *cli, const void *options);
    const char *entries_title; /* of a table after the options; NULL: there is none */
    int (*entry)(cli_entry *entry, int index); /* its entries; 0 past the end */
} cli_command;

/* Holds the commands in the order of commands.def, ended by NULL. Only main.c reads it here; all
   others get it from cli_app. */
extern const cli_command *const cli_commands[];
/* Finds a command by name; NULL: none has it. */
const cli_command *cli_command_find(const cli_app *cli, const char *name);
/* Says that no command has that name, and names the nearest one. */
int cli_command_unknown(cli_app *cli, const char *name);

/* Lists every option that the command takes, its own before the common ones. Returns their
   number. */
enum { CLI_MAX_OPTIONS = 48, CLI_MAX_THREADS = 1024 /* of a context */ };
int cli_option_collect(const cli_option **list, const cli_command *command);
/* Fills options (zeroed) from the words after the command; operands are left in cli. */
int cli_options_parse(cli_app *cli, void *options, int argc, char **argv);
/* Refuses the same words of another command, which does not run. whole 0: they are some of its
   options, and nothing is asked of what is not there. */
int cli_options_try(cli_app *cli, const cli_command *command, int argc, char **argv, int whole);
/* Says what was given to a command: of all its options, which were typed, and their values. */
typedef struct cli_given {
    const cli_command *command;
    const cli_option *const *list;
    int count;
    const unsigned char *typed;
    const char *values; /* the command's options struct; NULL, as `typed`, where none is given */
} cli_given;
/* Refuses options that do not go together, by the rules of the command and those of all. */
int cli_rules_check(cli_app *cli, const cli_given *given);
/* Writes what the rules say of the option, "Only with --model.", "" for nothing. Returns text. */
const char *cli_rules_text(char *text, size_t bytes, const cli_given *all,
                           const cli_option *option);
/* Writes "a|b|c" of a choice. Returns text. */
const char *cli_choices(char *text, size_t bytes, const char *(*choice)(int index));
/* Takes the next item of a list separated by commas; 0 at its end or if it is too long. */
int cli_list_next(char *item, size_t bytes, const char **list);
/* Reads the counts of a CLI_COUNTS value, at most max. Returns their number. */
int cli_counts(int64_t *counts, int max, const char *list);
/* Counts the edits between two words, for "did you mean". */
int cli_distance(const char *a, const char *b);

/* Gives the rows of options that several commands share. */
/* Names the dtype by index in a list that S24_DTYPE_NONE ends; NULL past the end. */
const char *cli_dtype_at(const s24_dtype *list, int index);
const char *cli_compute_dtype(int index); /* f32 bf16 */
const char *cli_model_dtype(int index);   /* f32 f16 bf16 i8 e4m3 */
const char *cli_weight_dtype(int index);  /* those and the schemes of integers */
/* Names those of such a list, and then the schemes of integers. */
const char *cli_dtype_or_scheme(const s24_dtype *list, int index);
const char *cli_scheme_name(int index);
const char *cli_cache_dtype_name(int index);
#define CLI_INCLUDE(type, fallback_text)                                                           \
    {                                                                                              \
        "include", 0, CLI_TEXT, offsetof(type, include), "GLOB", fallback_text,                    \
            "Tensors to take, by name: globs separated by commas, * matches dots too. By default " \
            "every "                                                                               \
            "linear layer of the blocks; embeddings, heads and norms never.",                      \
            NULL                                                                                   \
    }
#define CLI_EXCLUDE(type)                                                                          \
    {                                                                                              \
        "exclude", 0, CLI_TEXT, offsetof(type, exclude), "GLOB", NULL,                             \
            "Tensors to leave out of those, by name.", NULL                                        \
    }

/* Says how the 2:4 layers of a whole model run. */
#define CLI_SPARSE                                                                                 \
    {                                                                                              \
        "sparse", 0, CLI_FLAG, offsetof(cli_common, all_sparse), NULL, NULL,                       \
            "Run every 2:4 layer 2:4, even where dense is faster here: the least memory, and "     \
            "nothing is measured.",                                                                \
            NULL                                                                                   \
    }
#define CLI_DENSE                                                                                  \
    {                                                                                              \
        "dense", 0, CLI_FLAG, offsetof(cli_common, all_dense), NULL, NULL,                         \
            "Run every layer dense. By default 2:4 layers run 2:4 or dense, whichever is faster "  \
            "here for their shape and the number of tokens.",                                      \
            NULL                                                                                   \
    }

/* Says whether a model must be what was written. */
#define CLI_VERIFY                                                                                 \
    {                                                                                              \
        "verify", 0, CLI_FLAG, offsetof(cli_common, verify), NULL, NULL,                           \
            "First read all of the model, and refuse it unless every tensor, header and other "    \
            "file has the hash that was written with it.",                                         \
            NULL                                                                                   \
    }

/* Says how the head of a language model runs. */
#define CLI_QUANTIZE_HEAD                                                                          \
    {                                                                                              \
        "quantize-head", 0, CLI_CHOICE, offsetof(cli_common, head), NULL, NULL,                    \
            "Multiply a language model's head as integers of this scheme. By default as it is "    \
            "stored.",                                                                             \
            cli_scheme_name                                                                        \
    }

/* Says what carries the sums of processes that run one model together. */
#define CLI_COMM                                                                                   \
    {                                                                                              \
        "comm", 0, CLI_CHOICE, offsetof(cli_common, comm), NULL, NULL,                             \
            "Run one model by all processes that mpirun, torchrun or srun started: each holds a "  \
            "share of every layer, on the CPU with mpi, on its GPU with nccl. Rank 0 prints and "  \
            "writes.",                                                                             \
            s24_comm_kind_name                                                                     \
    }

/* Says what keys and values become. */
#define CLI_CACHE_DTYPE                                                                            \
    {                                                                                              \
        "cache-dtype", 0, CLI_CHOICE, offsetof(cli_common, cache), NULL, NULL,                     \
            "On the CPU keep keys and values in bytes, with a scale for each head of each "        \
            "token. By default they are as attention computes them.",                              \
            cli_cache_dtype_name                                                                   \
    }
/* Reads it. */
s24_dtype cli_cache_dtype(const cli_app *cli);

/* ---- the program ----------------------------------------------------------------------------- */

typedef struct cli_progress {
    int animated; /* stderr is a terminal that can rewrite its line */
    int open;     /* a line without its end stands there */
    const char *stage;
    int64_t done, first; /* the latter when the stage began */
    double started, printed;
    char detail[64]; /* said after the rest; "" for none */
} cli_progress;

struct cli_app {
    const cli_command *const *commands; /* of the program, ended by NULL */
    const cli_command *command;         /* that runs; NULL: none yet */
    const cli_common *common;
    s24_ctx *ctx;
    s24_device *device;  /* cli_device's */
    s24_comm *comm;      /* of --comm; NULL: this process is alone */
    void *place;         /* what a launcher said of it */
    const char *backend; /* of its products; NULL: our own */
    int64_t busy;        /* processes that bench keeps the cores busy with */
    char **operands;
    int operand_count;
    int json, quiet;   /* known before the options are read, so that usage errors obey them */
    int coloured;      /* stderr takes colours */
    const char *where; /* said before errors: "recipe.yaml:3"; or NULL */
    cli_progress progress;
};

/* Makes the context of the common options, with this program's log and progress. */
int cli_context(cli_app *cli);
/* Makes another one, the caller's, whose work no signal ends and which tells no progress; threads
   0: as the options say. */
int cli_context_whole(cli_app *cli, s24_ctx **out, int threads);
/* Gives the device of --device, which the first call opens; NULL for the CPU. The program closes
   it. */
int cli_device(cli_app *cli, s24_device **device);
int cli_on_cpu(const cli_app *cli);
/* Sets options of a whole model as --sparse, --dense and --device say, with what is known of this
   machine. dtype: one, or a scheme of integers; NULL: the weights'. */
int cli_model_opts(cli_app *cli, s24_model_opts *opts, const char *dtype);

/* Meets the other processes of --comm, where that is given, and holds the command's words against
   theirs; s24_comm_rank(cli->comm) is this one's number. */
int cli_ranks_open(cli_app *cli, int argc, char **argv);
/* Leaves them; after a failure it ends them. */
void cli_ranks_close(cli_app *cli, int code);
/* Refuses standard input where there are others, who have none. */
int cli_ranks_input(cli_app *cli, const char *path);
/* Gives rank 0's answer, since each has a clock of its own. */
int cli_ranks_go_on(cli_app *cli, int goes);

/* Says an error: a sentence on stderr, and with --json the object {"version", "exit", "error"}.
   Returns exit_code. */
int cli_fail(cli_app *cli, int exit_code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Says the same of a failed call, by its status and the context's sentence; 130 when a signal asked
   to stop. */
int cli_status(cli_app *cli, s24_status status);
/* Says a line of talk; silent with --quiet. */
void cli_note(cli_app *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Warns of what was left undone or may surprise, with --quiet too. */
void cli_warn(cli_app *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints a line on stdout for people. This, talk and errors show texts from files escaped, as
   s24_text_escape does, and erase an open line of progress first. */
void cli_print(cli_app *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Write the text alone, escaped; the second for HTML and SVG, by their rules too. */
void cli_escaped(FILE *to, const char *text, size_t bytes);
void cli_markup(FILE *to, const char *text);
/* Gives "layer" or "layers". */
const char *cli_plural(int64_t count, const char *one, const char *many);
/* Writes the short usage to stderr: of the command that runs, or of the program where none does
   yet. */
void cli_usage(const cli_app *cli);

/* Says that standard output could not be written, for that reason (errno's; 0: not known), but to
   nobody where it is a pipe whose reader went away. Returns CLI_IO. */
int cli_output_failed(cli_app *cli, int error);
/* ---- JSON, which ends well or with a sentence when memory ends ------------------------------- */

/* Comes once, before any JSON. */
void cli_json_begin(void);
/* Returns 0 where memory for JSON ended on this thread, and what it built may lack something. */
int cli_json_is_whole(void);
/* Begins what has no part in what this thread built before, as another request has none. */
void cli_json_anew(void);
/* Frees a text of json_dumps. */
void cli_json_free(void *text);
/* Reads JSON; NULL: it cannot be read, is none, or memory ended. */
json_t *cli_json_read(const char *text);
/* Reads JSON that may hold any text, U+0000 too; why, of JSON_ERROR_TEXT_LENGTH bytes, says what
   was wrong. */
json_t *cli_json_read_bytes(const char *text, size_t bytes, char *why);
json_t *cli_json_read_stream(FILE *file);
json_t *cli_json_read_file(const char *path);
/* Reads a file that must be there and be JSON; says what is wrong. */
int cli_json_need(cli_app *cli, json_t **value, const char *path);
/* Begins an object, {"version": 1}, to be filled; what cannot be is seen when it is printed. */
json_t *cli_json(void);
/* Makes a number, or null of what is none (NaN, Inf). */
json_t *cli_real(double value);
/* Prints the one object of --json and releases it. */
int cli_json_print(cli_app *cli, json_t *object);
/* Makes a list's elements one by one, since all of them could take more than the model. */
typedef struct cli_list {
    int64_t count;
    json_t *(*element)(const void *user, int64_t index); /* a new reference */
    const void *user;
} cli_list;
/* Prints the same with that list as its last member. */
int cli_json_print_list(cli_app *cli, json_t *object, const char *name, const cli_list *list);

/* Lets signals ask running work to stop; cli_interrupted() tells. */
void cli_signals(void);
int cli_interrupted(void);
int cli_progress_step(void *user, const char *stage, int64_t done, int64_t total);
/* Ends an open line of progress before something else is written. */
void cli_progress_clear(cli_app *cli);
double cli_seconds(void);

/* Writes "12.3 MB" of a count of bytes. Returns text. */
const char *cli_bytes(char *text, size_t size, double bytes);

/* Refuses a path that exists, unless it is a file and forced, or whose folder cannot be written. */
int cli_may_write(cli_app *cli, const char *path);
/* Refuses a path whose folder is not there or cannot be written. */
int cli_may_create(cli_app *cli, const char *path);
/* Refuses the same of a path that is not there yet; of others the writer says whether they may be
   replaced. */
int cli_may_make(cli_app *cli, const char *path);
/* Holds a text file on its way: written under a temporary name next to its place, renamed when
   whole. */
typedef struct cli_output {
    FILE *file;
    const char *path;
    s24_temporary *folder; /* the file is in it */
    char temporary[4096];
} cli_output;
/* Makes a temporary folder next to a path, and the name of a file in it. s24_ctx_error says why
   not. */
s24_status cli_output_name(cli_app *cli, cli_output *output, const char *path);
/* Refuses what cli_may_write refuses. */
int cli_output_open(cli_app *cli, cli_output *output, const char *path);
/* Replaces what is there. */
int cli_output_replace(cli_app *cli, cli_output *output, const char *path);
/* Puts the file in its place, or says what failed and leaves nothing. */
int cli_output_commit(cli_app *cli, cli_output *output);
/* Makes a new folder under $TMPDIR. */
int cli_temporary_create(cli_app *cli, s24_temporary **folder);

/* ---- help ------------------------------------------------------------------------------------ */

void cli_help_program(const cli_command *const *commands);
void cli_help_command(const cli_command *command);
void cli_man_program(const cli_command *const *commands);
void cli_man_command(const cli_command *command);
/* Measures a text's first sentence, without its full stop. */
size_t cli_sentence(const char *text);
/* Prints a shell's completion script; a function for each row of completions.def. */
#define COMPLETION(shell, file) void cli_completion_##shell(const cli_command *const *commands);
#include "completions.def"
#undef COMPLETION

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* Tells whether a packed tensor's shape is that of the transpose of the tensor that it stands
   for. */
int cli_tensor_is_turned(const s24_tensor *tensor);
/* Views a rank-2 tensor's data as dense, as the model stores it; of quantised ones it is f32. */
s24_dense cli_tensor_view(const s24_tensor *tensor);
/* Makes a packed tensor's dense elements as the model stores it, the caller's to free. */
s24_status cli_tensor_unpack(void **dense, s24_ctx *ctx, const s24_tensor *tensor);
/* Opens the checkpoint that the first operand names. */
int cli_open(cli_app *cli, s24_checkpoint **checkpoint);
/* Refuses include and exclude where they select no tensor, naming them. along_k: also where it is
   not known which side of one is k, and where one would be selected but for being f64, which is
   carried through files and never computed on. */
int cli_selected(cli_app *cli, const s24_checkpoint *checkpoint, const char *include,
                 const char *exclude, int along_k);
int cli_no_pattern(cli_app *cli, const char *option, const char *text); /* refuses its value */
/* Makes a writer of the same kind (folder or file) as the checkpoint, every tensor of it declared
   as change(user, &tensor) leaves it. */
int cli_writer(cli_app *cli, s24_writer **out, const s24_checkpoint *checkpoint, const char *path,
               void (*change)(void *user, s24_tensor *tensor), void *user);
/* Adds `transposed` to what is said of a transposed tensor, and `matrix`, [n, k], of a packed
   one. */
void cli_transposed_json(json_t *object, const s24_tensor *tensor);
/* Asks whether each group of a contiguous matrix has at most the pattern N:M's N non-zeros
   (check_pattern.c); bad: the first that has more. */
s24_status cli_check_pattern(int *fits, s24_bad_group *bad, s24_ctx *ctx, const s24_dense *w,
                             const char *pattern);
/* Names a quantised tensor's scheme; NULL for any other. */
const char *cli_scheme(const s24_tensor *tensor);
/* Reads a sparse format's name, of bsr with its block: format and block sides alone. 0: it is
   none. */
#define CLI_FORMATS                                                                                \
    "coo, csr, csc, or bsr with a block: bsr:1x4, bsr:4x1, or a square of 8, 16, 32, 64 or 128 "   \
    "as bsr:64x64"
int cli_format_parse(cli_app *cli, s24_sparse_parts *as, const char *text);
/* Gives the columns of a packed tensor's 2:4 matrix: k, or what k is lifted into. */
int64_t cli_stored_cols(const s24_tensor *tensor);
/* Is it stored as a 2:4 matrix of its own columns, with factors or without? */
int cli_is_two_four(const s24_tensor *tensor);
/* Writes the sparse format of a tensor, "bsr:64x64", or "6:8" of a lifted one; returns text, NULL:
   it is in none. */
enum { CLI_FORMAT_BYTES = 32 };
const char *cli_format(char text[CLI_FORMAT_BYTES], const s24_tensor *tensor);
/* Gives the share of such a tensor that is stored, blocks with all that is in them. */
double cli_stored_share(const s24_tensor *tensor);

/* ---- choice_cache.c: which layers of whole models run dense here ----------------------------- */

/* Hand what earlier calls measured to the context, and from it to where that is kept. */
void cli_choices_load(cli_app *cli);
void cli_choices_keep(cli_app *cli);
typedef struct cli_choice {
    s24_dtype dtype;
    int64_t threads, k, n;
    char form[32];    /* "bsr:16x16", "csr+int8"; "": 2:4 */
    int kept;         /* of a form: the percent that are stored, about */
    const char *note; /* as s24_choice_is_dense reads it */
} cli_choice;
/* Gives the next that is known, from *index 0 on; 0: there is none. */
int cli_choice_at(cli_app *cli, cli_choice *choice, int64_t *index);
/* Tells whether a 2:4 layer runs dense in a pass of that many tokens; −1: not known. */
int cli_choice_dense(cli_app *cli, s24_dtype dtype, int64_t threads, int64_t k, int64_t n,
                     int64_t tokens);
/* Gives the next numbers of tokens, from *at 1 on, that run dense; *to 0: and all more. 0: there
   are none. */
int cli_choice_range(const cli_choice *choice, int64_t *at, int64_t *from, int64_t *to);

/* ---- machine.c: what this machine is called -------------------------------------------------- */

/* Writes the CPU's name as the system gives it, "" where it does not. */
void cli_cpu_model(char *text, size_t bytes);
/* What dense engines also multiply with: "" where they are bounded to less than all of the CPU. */
const char *cli_cpu_units(uint32_t cpu);
/* Writes "avx512bf16, AMX bf16 int8": the level, and what dense engines also multiply with. Returns
   text. */
const char *cli_cpu_text(char *text, size_t bytes, uint32_t cpu);
/* Makes {"cpu", "isa", "sparse24", "dense_engine"}: what a time on this machine depends on whatever
   is timed. */
json_t *cli_machine_key(cli_app *cli);

/* ---- cache.c, tile_cache.c: what is measured once and kept ----------------------------------- */

/* Reads what is kept of a kind and depends on the key: {"key", …}, a new reference; NULL: there is
   none, or it cannot be read. path is where that is, "" for nowhere. The key is released. */
enum { CLI_CACHE_PATH = 4096 };
json_t *cli_cache_read(char *path, const char *kind, json_t *key);
/* Writes a file of that key and content, and releases both; 0: it could not be kept, and a note has
   said so. */
int cli_cache_write(cli_app *cli, const char *path, json_t *key, json_t *content);

struct s24_device;
struct s24_device_choice;
/* Hands tiles that bench --tune found best on this GPU, if there are any, to the library. */
void cli_tiles_load(cli_app *cli, struct s24_device *device);
/* Keeps one more of them, and hands it to the library. */
void cli_tiles_keep(cli_app *cli, struct s24_device *device,
                    const struct s24_device_choice *choice);
/* Hand what models' sessions noted in earlier calls to the device, and from it to where that is
   kept. */
void cli_notes_load(cli_app *cli, struct s24_device *device);
void cli_notes_keep(cli_app *cli, const struct s24_device *device);

/* Stores the address of a library's function in *function, a function pointer; 0: there is none. */
int cli_symbol(void *function, void *handle, const char *name);

#endif
