// SPDX-License-Identifier: Apache-2.0
/*
 * Declares the measuring part of the command line. One cell is a shape at a dtype and a number of
 * threads: our product and every peer's run in turns, round after round, so that a machine that
 * slows down slows all of them; medians of the rounds are compared. No figure is kept for a cell
 * whose outputs disagree.
 */
#ifndef SPARSE24_CLI_BENCH_BENCH_H
#define SPARSE24_CLI_BENCH_BENCH_H

#include "cli.h"

typedef struct bench_shape {
    int64_t m, k, n;
} bench_shape;

/* ---- turns ----------------------------------------------------------------------------------- */

typedef struct bench_times {
    double median, min, max; /* seconds of one run */
    double joules;           /* of one, by a GPU; negative: unknown, 0: not asked for */
} bench_times;

typedef struct bench_turn {
    int (*run)(void *state); /* 0: done */
    /* Instead of run: a window that is timed elsewhere; the seconds of one run, and a code of
       cli_fail's. */
    int (*window)(cli_app *cli, void *state, double min_seconds, double *seconds);
    void *state;
    bench_times times;
} bench_turn;

typedef struct bench_effort {
    int64_t rounds;              /* at least 7 for a figure that is quoted */
    double min_seconds;          /* of one turn: short runs are repeated within it */
    struct bench_energy *energy; /* asked for; or NULL */
} bench_effort;

enum { BENCH_MAX_ROUNDS = 1000, BENCH_MAX_DTYPES = 16 };

/* Times the turns against each other. */
int bench_interleave(cli_app *cli, bench_turn *turns, int count, const bench_effort *effort);

typedef struct bench_latency {
    double p50, p95; /* seconds of one run */
} bench_latency;

/* Times the turn alone, run after run: for as long as its turns took, and at least once per
   round. */
int bench_latencies(cli_app *cli, bench_turn *turn, const bench_effort *effort,
                    bench_latency *latency);

/* ---- energy ---------------------------------------------------------------------------------- */

typedef struct bench_energy bench_energy;
/* Opens the counter of --device's GPU; where there is none that is a note, and all is unknown. */
int bench_energy_open(cli_app *cli, bench_energy **out);
void bench_energy_close(bench_energy *energy);
/* Gives the joules of one run of the turn, which is repeated for half a second or more; negative:
   unknown. */
double bench_energy_of(const bench_energy *energy, const bench_turn *turn);

/* ---- other work while it measures ------------------------------------------------------------ */

enum { BENCH_MAX_BUSY = 4096 };

typedef struct bench_busy bench_busy;
/* Starts that many processes that take what they get of the cores; *out is to be stopped in any
   case. */
int bench_busy_start(cli_app *cli, bench_busy **out, int64_t count);
void bench_busy_stop(bench_busy *busy);

/* ---- peers: one row of peers.def and one file each ------------------------------------------- */

typedef struct bench_problem {
    s24_ctx *ctx; /* for peers without threads of their own; set to `threads` */
    bench_shape shape;
    /* Of the weights: f32; bf16, and then x and w hold only values it has; i8, and then x holds
       integers 0..127 and w integers times a scale per row; NONE where quantised weights meet x in
       f32. */
    s24_dtype dtype;
    const s24_matrix *quantized; /* these weights, w is scale times integer; else NULL */
    s24_dtype activations;       /* of y; of x too if the peer can take both in one product */
    int threads;
    const float *x; /* [m, k] */
    const float *w; /* [n, k] with its zeros */
} bench_problem;

typedef struct bench_peer {
    const char *name;
    /* Opens the library: its handle and version, NULL when it is not here. */
    void *(*open)(char *version, size_t bytes);
    void (*close)(void *library);
    /* Packs the weight as the peer likes it best. NULL when it has no such product. */
    void *(*prepare)(void *library, const bench_problem *problem);
    int (*run)(void *product, void *y); /* y [m, n]; 0: done */
    void (*release)(void *product);
} bench_peer;

const bench_peer *bench_peer_at(int index);
const char *bench_peer_name(int index);

enum { BENCH_MAX_PEERS = 8 };

typedef struct bench_library {
    const bench_peer *peer;
    void *library;
    char version[48];
} bench_library;

/* Opens the peers of the list ("all", "none", names) that are here. A missing one is a note. */
void bench_peers_open(cli_app *cli, bench_library *libraries, int *count, const char *list);
void bench_peers_close(bench_library *libraries, int count);

/* ---- limits of the machine ------------------------------------------------------------------- */

typedef struct bench_limit {
    int threads;
    s24_dtype dtype;
    const char *scheme; /* of quantised weights with x in f32, or NULL */
    double flops;       /* per second; fused multiply-adds count two */
    double bytes;       /* read from memory, per second */
} bench_limit;

/* ---- products -------------------------------------------------------------------------------- */

const char *bench_set_name(int index);
/* Lists the shapes of a set, at most max. Returns their number. */
int bench_set_shapes(bench_shape *shapes, int max, const char *name);
/* Reads 'M,K,N;M,K,N'. */
int bench_shapes_parse(cli_app *cli, bench_shape *shapes, int *count, const char *option,
                       const char *text);

/* What of a weight is zero, if it is not 2:4. */
typedef struct bench_format {
    const char *name;    /* as --format has it; NULL: 2:4 */
    s24_sparse_parts as; /* format and block sides alone */
    int64_t zeros;       /* percent */
} bench_format;

enum { BENCH_MAX_SHAPES = 160, BENCH_MAX_LIST = 32, BENCH_MAX_MEBIBYTES = 1 << 20 };

typedef struct bench_peer_result {
    const char *name, *version;
    double seconds, least; /* the median's, the shortest's */
    double ratio;
    double joules; /* as in bench_times */
} bench_peer_result;

typedef struct bench_row {
    bench_shape shape;
    s24_dtype dtype, activations; /* the latter on a GPU: Y's */
    const char *scheme;           /* of quantised weights with x in f32, or NULL */
    const char *format;           /* of weights that are not 2:4, or NULL */
    double kept;                  /* share of the weight's elements that are multiplied */
    int threads;
    char kernel[48];
    bench_times ours;
    double flops;       /* dense-equivalent: 2·m·n·k */
    double bytes;       /* packed weight, x and y */
    double read;        /* bytes per second that memory gave between its turns; 0: not asked */
    double limit_share; /* least time the limits allow / median */
    bench_peer_result peers[BENCH_MAX_PEERS];
    int peer_count;
    json_t *tiles; /* with --tune: [{"tile", "ms"}], the best first */
    double ratio;  /* to the best peer; 0: none */
} bench_row;

typedef struct bench_plan bench_plan;
struct bench_plan {
    bench_shape shapes[BENCH_MAX_SHAPES];
    int shape_count;
    s24_dtype dtypes[BENCH_MAX_DTYPES];
    const char *schemes[BENCH_MAX_DTYPES]; /* with dtype i8: weights only; NULL elsewhere */
    int dtype_count;
    bench_format format;
    s24_dtype activations; /* of x and y with bf16 weights; NONE: f32 */
    s24_dtype output;      /* of y on a GPU; NONE: what suits the weights */
    int tune;              /* times every tile of a GPU first */
    int64_t threads[BENCH_MAX_LIST];
    int thread_count;
    bench_library libraries[BENCH_MAX_PEERS];
    int library_count;
    bench_effort effort;
    void (*row_done)(const bench_plan *plan, const bench_row *row); /* NULL: nobody is told */
};

typedef struct bench_probe bench_probe;
typedef struct bench_table {
    bench_row *rows;
    int count;
    bench_limit *limits; /* one for each dtype and number of threads */
    int limit_count;
    bench_probe *probe; /* of the limits: memory to read; NULL without them */
    char gpu[256];      /* what it computed on, "" on the CPU */
} bench_table;

/* Measures every row of the plan. Rows know their share of a limit where the table has it
   already. */
int bench_products(cli_app *cli, bench_table *table, const bench_plan *plan);
/* Measures one limit for each dtype and number of threads of the plan. */
int bench_limits_measure(cli_app *cli, bench_table *table, const bench_plan *plan);
void bench_limits_free(bench_table *table);
/* Make turns that read the limits' memory next to a product, plainly and with lines asked for
   early, and give the bytes per second of the faster one. */
enum { BENCH_READS = 2 };
void bench_limit_turns(bench_turn turns[BENCH_READS], const bench_table *table);
double bench_limit_read(const bench_turn turns[BENCH_READS], const bench_table *table);
void bench_table_free(bench_table *table);

/* Says how a row's weights are called: a dtype's name or a scheme's. */
const char *bench_dtype_name(s24_dtype dtype, const char *scheme);

/* ---- a layer's step of training -------------------------------------------------------------- */

typedef struct bench_train_plan {
    const char *shapes, *peers;
    s24_dtype dtype; /* on a GPU */
    int64_t threads[BENCH_MAX_LIST];
    int thread_count;
    bench_effort effort;
} bench_train_plan;

int bench_train(cli_app *cli, const bench_train_plan *plan);
/* The same on a GPU (cli/bench/gpu), where the vendor's library is what is dense. */
int bench_train_gpu(cli_app *cli, const bench_train_plan *plan, const bench_shape *shapes,
                    int count);

/* ---- reports --------------------------------------------------------------------------------- */

/* Puts machine, CPU, versions and date into an object. */
void bench_json_machine(cli_app *cli, json_t *object);
/* Sets millijoules of a run where they were asked for, null where they are unknown. */
void bench_json_energy(json_t *object, const char *key, double joules);
int bench_json_products(cli_app *cli, const bench_table *table);
void bench_print_head(const bench_plan *plan);
void bench_print_row(const bench_plan *plan, const bench_row *row);
void bench_print_summary(const bench_table *table);

typedef struct svg_bar {
    char label[64];
    char note[32]; /* at the bar's end */
    double value;
} svg_bar;

typedef struct svg_chart {
    const char *title, *subtitle, *axis;
    const svg_bar *bars;
    int count;
    double mark; /* a line across, 0: none */
} svg_chart;

/* Draws a bar chart; refuses to replace a file unless forced. */
int svg_write(cli_app *cli, const char *path, const svg_chart *chart);
int bench_svg_products(cli_app *cli, const char *path, const bench_table *table);

/* ---- whole models ---------------------------------------------------------------------------- */

/* Says where the weights come from. */
typedef struct bench_source {
    const char *model;             /* a folder, or a preset's name */
    const char *include, *exclude; /* of a preset's layers; NULL: all */
    int64_t threads;               /* the most that run it: what is chosen is chosen for them */
    const char *layer_dtypes;      /* of the 2:4 side, as of s24_model_opts; NULL: one for all */
    int alone;                     /* there is no dense side */
    bench_format format;           /* of a preset's layers */
} bench_source;

/* Names the sparse side in tables: "2:4", or "sparse" with --format. */
const char *bench_sparse_name(const bench_source *source);
/* Adds what --format and --zeros say to an object, if anything. */
void bench_json_format(json_t *object, const bench_format *format);

typedef struct bench_model_plan {
    bench_source source;
    int64_t batches[BENCH_MAX_LIST], lengths[BENCH_MAX_LIST], threads[BENCH_MAX_LIST];
    int batch_count, length_count, thread_count; /* length_count 0: the model's own */
    int64_t shortest;                            /* 0: texts of one length */
    s24_dtype dtypes[BENCH_MAX_DTYPES];
    int dtype_count;
    bench_effort effort;
    const char *svg;
    const char *python;        /* interpreter whose PyTorch takes turns with ours; or NULL */
    const char *ways;          /* of PyTorch that do, a list */
    struct bench_torch *torch; /* it, when it has been started */
} bench_model_plan;

int bench_models(cli_app *cli, const bench_model_plan *plan);

/* ---- texts that go on ------------------------------------------------------------------------ */

typedef struct bench_generate_plan {
    bench_source source;
    int64_t prompt_tokens, new_tokens; /* of each text; 2 new ones at least */
    int64_t batches[BENCH_MAX_LIST], threads[BENCH_MAX_LIST];
    int batch_count, thread_count;
    s24_dtype dtypes[BENCH_MAX_DTYPES];
    const char *schemes[BENCH_MAX_DTYPES]; /* of weights in integers; NULL: of that dtype */
    int dtype_count;
    bench_effort effort;
    const char *svg;
    const char *python;         /* interpreter of an engine that takes turns with ours; or NULL */
    struct bench_decoder *peer; /* it, when it has been started */
} bench_generate_plan;

int bench_generate(cli_app *cli, const bench_generate_plan *plan);

/* Makes a random batch for the model, of texts whose lengths are from the first to the second in
   even steps, or of images; freed in any case. */
int bench_batch_make(cli_app *cli, s24_batch *batch, int64_t texts, const int64_t lengths[2],
                     const s24_model_info *info);
void bench_batch_free(cli_app *cli, const s24_batch *batch);

/* ---- prune and pack -------------------------------------------------------------------------- */

typedef struct bench_prune_plan {
    int64_t mebibytes; /* of the dense matrix */
    s24_dtype dtypes[BENCH_MAX_DTYPES];
    int64_t threads[BENCH_MAX_LIST];
    int dtype_count, thread_count;
    bench_effort effort;
} bench_prune_plan;

int bench_prune(cli_app *cli, const bench_prune_plan *plan);

/* ---- attention for training on a GPU --------------------------------------------------------- */

typedef struct bench_attention_plan {
    const char *shapes; /* 'TEXTS,TOKENS,HEADS,D;...' */
    s24_dtype dtype;
    int causal;
    double dropout; /* of its weights */
    bench_effort effort;
} bench_attention_plan;

int bench_attention(cli_app *cli, const bench_attention_plan *plan);

#endif
