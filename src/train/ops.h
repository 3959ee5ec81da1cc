// SPDX-License-Identifier: Apache-2.0
/*
 * The operations that passes are made of: one table, which a device fills. All pointers lead into
 * the device's memory; what an operation must know of the host comes by value, so that a device may
 * run them one after the other without waiting. The first failure stays in machine->status, and
 * what follows it does nothing.
 *
 * Activations and their gradients are `void *`: f32 on the CPU, f16 or bf16 on a GPU,
 * machine->element bytes each. What is f32 by type is f32 everywhere. Matrices are row-major,
 * without stride but where a layer says otherwise. T is the number of tokens of the batch.
 */
#ifndef S24_TRAIN_OPS_H
#define S24_TRAIN_OPS_H

#include "model/pooling.h"
#include "vec/vec.h"

struct s24_device_train_mask_args; /* device/device_train.h */
struct s24i_shape;                 /* model/model.h */
struct s24i_apart;
struct s24i_distance_rule; /* model/distances.h */
struct s24i_modules;       /* run/modules.h */

typedef struct s24i_machine s24i_machine;
typedef struct s24i_gpu s24i_gpu; /* train/gpu.h */

/* How the patterns of a matrix's groups are drawn: by Gumbel's noise of a seed, whose logits are
   multiplied by scale / temperature; temperature 0: the likeliest stays. The loss has a term of
   −norm times the squares that a draw is expected to keep. */
typedef struct s24i_pattern_draw {
    uint64_t seed, place; /* place: which matrix it is */
    double scale, temperature, norm;
} s24i_pattern_draw;

/* The operands of a layer's products, of gradients as they are and transposed. */
typedef enum s24i_narrow {
    S24I_NARROW_INPUTS,
    S24I_NARROW_WEIGHTS,
    S24I_NARROW_GRADIENTS,
    S24I_NARROW_TURNED,
    S24I_NARROWS
} s24i_narrow;

/* What of a layer's products is 2:4 next to its weights, while a method of sparse training runs. */
typedef struct s24i_layer_rule {
    int inputs;            /* 2:4 along features, */
    int tiles;             /* along tokens too, */
    int outer;             /* or, of the last product, in dW alone */
    int mvue;              /* gradients of outputs in dW: 0 dense, 1 approximate, 2 exact MVUE24 */
    int fp8;               /* inputs and weights are e4m3, gradients of outputs e5m2 */
    double whole_features; /* with outer: the share of features that stay whole in dW */
    uint64_t seed;         /* of the step */
    void *x, *dy;          /* room for both, */
    uint8_t *keep;         /* for a byte an input, */
    int32_t *order;        /* and for tokens and features */
    /* With fp8 room for a layer's operands, on the CPU as f32, and, of a device, for scales, four
       numbers each: of gradients, then of each layer's inputs and weights; and for one of each
       token and, after these, of each output. */
    void *narrow[S24I_NARROWS];
    float *scales, *each;
} s24i_layer_rule;

/* y[m,n] = x[m,k]·wᵀ + bias: a linear layer's place among weights and gradients. */
typedef struct s24i_layer {
    float *w, *bias; /* [n,k], [n] or NULL */
    float *dw, *dbias;
    int64_t n, k;
    int64_t ldx, ldy;            /* elements from one row of x, of y, to the next; of a head on a
                                    device ldy is n in whole S24I_HEAD_ROWS, as its arrays are */
    void *device;                /* what a device keeps of it */
    const s24i_layer_rule *rule; /* NULL: all of them are dense */
    int64_t site;                /* tells the layers apart where chance has a part */
    /* Of a head: logits y are cap · tanh(factor · y / cap); 0: not capped, not multiplied. Not on a
       device. */
    float factor, cap;
} s24i_layer;

typedef struct s24i_norm {
    s24i_norm_row row; /* its gamma and beta */
    float *dgamma, *dbeta;
} s24i_norm;

/* The batch, as the device has it. */
typedef struct s24i_train_batch {
    int64_t tokens, texts, longest;
    int64_t *offsets; /* [texts + 1] */
    int64_t *tiles;   /* [texts + 1]: tiles of queries before each text, for attention */
    int32_t *bounds;  /* [texts + 1]: offsets once more */
    /* [tokens]; ids NULL for images, types NULL: 0, positions of images −1: none */
    int32_t *ids, *types, *positions;
    int32_t *order; /* [tokens] sorted by id, where ops->sorted asks for them */
    float *factors; /* [tokens]: what multiplies words' rows; NULL: nothing */
    uint8_t *mask;  /* [tokens] or NULL */
    float *pixels;
    int32_t *targets, *starts, *ends; /* or NULL */
} s24i_train_batch;

typedef struct s24i_embed {
    float *words, *positions, *types, *first; /* tables, NULL where the model has none */
    float *dwords, *dpositions, *dtypes, *dfirst;
    float *more, *dmore; /* tokens of an image after its first one, on the CPU alone */
    int64_t width, type_count;
    int64_t lead; /* tokens before an image's patches */
    float factor; /* of words; 0: 1 */
} s24i_embed;

/* Where the rows of a norm stand: end to end, or, of heads, so many side by side in each row of
   another matrix, whose rows are ld apart. */
typedef struct s24i_norm_rows {
    int64_t heads, ld; /* heads 0: end to end */
} s24i_norm_rows;
static inline int64_t s24i_norm_row_at(const s24i_norm_rows *rows, int64_t r, int64_t width)
{
    return rows->heads ? r / rows->heads * rows->ld + r % rows->heads * width : r * width;
}

/* s = dropout(z + bias) + residual, y = norm(s). residual may be s where nothing is dropped.
   Without a norm, which a device has always, there is no y. */
typedef struct s24i_add_norm {
    void *y, *s;              /* [T, width] */
    float *stats;             /* [T, 2] */
    const void *z, *residual; /* z NULL: s is there already */
    const float *bias;
    const s24i_norm *norm;
    const s24i_dropout *drop; /* NULL: none */
    int64_t rows, width;
    s24i_norm_rows at;        /* of y, and of s where z is NULL */
    const s24i_layer *reader; /* that takes y next; or NULL */
} s24i_add_norm;

/* ds = [ds +] the gradient of s that dropout(dy [+ dy2]) is of y; dy is overwritten, and may be ds
   where nothing is added. Without a norm y is s, and dy is added; without dy ds stays. With it
   comes what the layer whose output was added to s needs: dz, its dropout once more, and the
   gradient of its bias. */
typedef struct s24i_norm_back {
    void *ds, *dy;
    const void *dy2; /* or NULL; may be ds where nothing is added */
    const void *s;
    const float *stats;
    const s24i_norm *norm;
    const s24i_dropout *drop; /* NULL: none */
    int add;
    void *dz; /* NULL: nothing was dropped, it is ds */
    const s24i_dropout *drop_z;
    float *dbias; /* += Σ dz; or NULL */
    int64_t rows, width;
    s24i_norm_rows at;       /* of ds, dy and s, without dz and dbias */
    const s24i_layer *added; /* whose output was added to s; or NULL */
} s24i_norm_back;

/* Of [T, (heads + 2·kv_heads)·d]: queries, keys, values. */
typedef struct s24i_heads {
    const s24i_train_batch *step;
    int64_t heads, kv_heads, d;
    float scale; /* of scores */
    float cap;   /* of scores s, which become cap · tanh(s / cap); 0: none */
    int mixed;   /* 1: a head's query, key and value stand side by side, then the next head's */
    int causal;
    int64_t window;      /* then: of how many tokens, itself the last, one attends to; 0: all */
    int64_t near;        /* of how many on each side, itself one of them; 0: all */
    const float *angles; /* [positions, turned]: cos and sin by half; NULL: no rotary positions */
    int64_t turned;      /* elements of a head that they turn */
    int adjacent;        /* 1: neighbours against each other */
    /* What scores grow by, as model/distances.h lays it out, of heads so far apart, 0: one for all,
       as who is near has it on the CPU alone; and the gradients of the model's table that it was
       made of. NULL: none. */
    const float *distances;
    int64_t distances_head, distance_zero;
    const struct s24i_shape *shape; /* whose buckets they are, */
    const int32_t *buckets;         /* which a device has of each distance */
    float *drelative;               /* [buckets, heads] */
    /* What the block makes of a table's rows of distances, [rows, 3·heads·d], and its gradient;
       which row a distance has, from the middle. On the CPU alone; apart NULL: there are none. */
    const struct s24i_apart *apart;
    const float *apart_qkv;
    float *dapart_qkv;
    const int32_t *apart_rows;
    const s24i_dropout *drop;
    const void *context; /* attention's output, for the pass backward, */
    float *lse;          /* what a device leaves for it: [heads, T], */
    void *work;          /* and attention_bytes bytes */
    size_t work_bytes;
} s24i_heads;

/* What multiplies columns. */
typedef struct s24i_columns {
    void *y;
    const void *x;
    const float *scale; /* [width] */
    float *dscale;
    int64_t rows, width;
} s24i_columns;

/* h = activation(u + bias), of gated layers activation(g)·u with g and u, or on the CPU u and g,
   beside each other in a row of 2·width. u keeps u + bias; bias NULL: u has it already, as always
   where ops->biased. `up` is the layer that gives u, `down` the one that takes h. */
typedef struct s24i_activate {
    const s24i_layer *up, *down;
    void *h, *u;
    const float *bias;
    float *dbias; /* backward: += Σ du; or NULL */
    s24_activation activation;
    int squared, gated, gate_last;
    int64_t rows, width;
} s24i_activate;

/* Rows of logits against labels, a teacher or both: *loss += and the gradient. */
typedef struct s24i_cross_entropy {
    float *logits;         /* [rows, n], rows ld apart; overwritten. NULL: they are activations, */
    void *dlogits;         /* where their gradients go; of f32 the same memory */
    float *teacher;        /* as logits or NULL; overwritten */
    const int32_t *labels; /* [rows], −1: none; or NULL */
    double *loss;
    double label_weight, teacher_weight; /* of a row */
    float temperature;
    int64_t rows, n, ld;
    float factor, cap; /* the head's, whose logits they are */
} s24i_cross_entropy;

/* Of the texts' start and end logits [T, 2], rows ld apart. The weights are a text's. */
typedef struct s24i_answer_loss {
    float *logits; /* overwritten */
    void *dlogits;
    float *teacher; /* or NULL; overwritten */
    double *loss;
    double label_weight, teacher_weight;
    float temperature;
    int64_t ld;
} s24i_answer_loss;

/* Pooled, normalised vectors of the texts and their cosine to a teacher's. On the CPU there are
   several ways of pooling, whose vectors lie side by side, rarer ones, and modules after them. */
typedef struct s24i_pool {
    float *vectors; /* [texts, ways, width] */
    const void *x;  /* [T, width] */
    const s24i_pooled *pooled;
    const struct s24i_modules *modules; /* or NULL, */
    float *made;                        /* [texts, …]: what they make of the vectors */
    int64_t end;   /* the id of the token that pools; 0: that of the highest id */
    int normalise; /* vectors, or what is made of them */
    int64_t width;
} s24i_pool;

/* Neighbours in the arena that are treated alike; offset and count are multiples of 16. */
typedef struct s24i_segment {
    int64_t offset, count;
    int matrix; /* weight decay and masks are for these */
    int halved; /* 1: moments are of what the mask lets be, at most eight of 16, in their order */
    int64_t moments; /* of an optimiser's, where they begin */
    float *learns;   /* NULL, or what learns of it apart, of which the mask leaves the weights */
} s24i_segment;

/* The arena of weights. */
typedef struct s24i_arena {
    float *weights;
    int64_t elems;
    const s24i_segment *segments;
    int64_t segment_count;
    int train;
} s24i_arena;

/* Layers of blocks, S24I_LAYERS_A_BLOCK each, whose zeros will stay, some of them 2:4. */
enum { S24I_LAYERS_A_BLOCK = 4, S24I_NO_PLAN = -1 };
typedef enum s24i_becomes {
    S24I_BECOMES_NOTHING,
    S24I_BECOMES_FORWARD, /* 2:4 along k */
    S24I_BECOMES_BOTH     /* and along n */
} s24i_becomes;
typedef struct s24i_fixed {
    s24i_layer *const *layers;
    int64_t count;
    /* What a batch's products of the first four read and write: free to be overwritten. */
    void *x[S24I_LAYERS_A_BLOCK], *y[S24I_LAYERS_A_BLOCK];
    int64_t tokens;       /* of a batch, about */
    int64_t parts;        /* batches of a step, all with the same weights */
    s24i_becomes becomes; /* what layers that are dense now may be later */
} s24i_fixed;

/* What a step gives: the loss, the sum of the gradients' squares and, of the optimiser's first
   moment after it, that of these. In the machine's memory. */
typedef struct s24i_sums {
    double loss, squares, moment;
} s24i_sums;

/* A step of AdamW over the whole arena, of whose `count` elements `segments` say what they are.
   The gradients, divided by machine->scale, are clipped to a norm of `clip` (0: any); where loss
   or norm is not finite, nothing is changed but gradients, which become 0. */
typedef struct s24i_update {
    float *p, *g, *m, *v;
    int learns; /* 1: all of p learns, and the mask is for what the machine rounds of it */
    const uint16_t *mask; /* a bit an element of matrices: may it be other than 0? NULL: all may */
    const s24i_segment *segments;
    /* The same for a device, a number for each 16 elements: where their moments begin, in eights,
       and in bit 31 whether they are halved. NULL: none are. */
    const uint32_t *moments_at;
    int64_t segment_count, count;
    const s24i_sums *sums;
    double clip, beta1, beta2, eps;
    double rate, decay; /* of matrices, times the rate */
    double pull;        /* towards 0, of what is masked: a gradient of pull·p */
    int64_t step;       /* 1, 2, … */
    /* What tells STEP and AdamS from AdamW, for ops->update_as. Variance stays where a bit is set,
       its root then times frozen_gain and plus frozen_eps; signs: of what is masked the moment is
       (1 − fade) of itself and fade·pull·sign(p), and the variance is that of the moment. */
    const uint16_t *frozen;
    double frozen_gain, frozen_eps, fade;
    int signs;
    int aside;     /* of an arena that is not the weights': nothing else is made of it */
    int64_t first; /* which weight the arrays begin with, a multiple of 16 */
} s24i_update;

/* Of the elements whose bits are set, of how the next update would change the variance: the sum of
   the magnitudes, the sum of their logarithms where they are not 0, and how many are not. */
typedef struct s24i_variance {
    double sum, logs;
    int64_t count, changed;
} s24i_variance;

/* What lies next to a matrix: its gradients are made from those of what ran, g, which become those
   of the weights w. */
typedef struct s24i_extra_place {
    float *gradients, *g;
    const float *w, *extra;
    int64_t rows, cols;
    int patterns; /* six logits a group, else a scale for each half of a row */
    s24i_pattern_draw draw;
} s24i_extra_place;

/* How the tokens of a batch are permuted: token i of the order is (first + i·step) % tokens. */
typedef struct s24i_token_order {
    int64_t first, step;
} s24i_token_order;

typedef struct s24i_ops {
    const char *name;
    int sorted; /* 1: embed_back reads the step's order */
    int biased; /* 1: products add a bias at no cost, so that activations need not */
    void *(*alloc)(s24i_machine *m, size_t bytes);
    void (*free)(s24i_machine *m, void *memory);
    /* The host's memory that goes up fast; NULL where all of it does. */
    s24_status (*host_alloc)(s24i_machine *m, void **out, size_t bytes);
    void (*host_free)(const s24i_machine *m, void *memory);
    /* From the host, to the host, within the machine. Only download waits. */
    void (*upload)(s24i_machine *m, void *to, const void *from, size_t bytes);
    void (*download)(s24i_machine *m, void *to, const void *from, size_t bytes);
    void (*copy)(s24i_machine *m, void *to, const void *from, size_t bytes);
    void (*clear)(s24i_machine *m, void *memory, size_t bytes);
    /* Activations to the host, as f32, and from there. Only read waits. */
    void (*read)(s24i_machine *m, float *to, const void *from, int64_t count);
    void (*write)(s24i_machine *m, void *to, const float *from, int64_t count);
    /* Rows of f32 to the host, ld apart there in the machine, side by side in `to`. */
    void (*read_rows)(s24i_machine *m, float *to, const float *from, int64_t rows, int64_t n,
                      int64_t ld);
    /* Room for what the machine makes of the weights; then, and whenever they were changed from
       outside, that is made anew. */
    s24_status (*prepare)(s24i_machine *m, const s24i_arena *arena);
    void (*refresh)(s24i_machine *m);
    /* From now on 2:4 layers are multiplied as such where that is faster: *plan is what was
       found, or, if it is not S24I_NO_PLAN, what is done. unfix ends that. */
    s24_status (*fix)(s24i_machine *m, const s24i_fixed *fixed, int64_t *plan);
    void (*unfix)(s24i_machine *m);
    void (*close)(s24i_machine *m);

    /* y = x·wᵀ (+ bias where with_bias); dx = dy·w; dw += dyᵀ·x (and dbias += Σ dy). `logits` is
       linear with bias into f32. */
    void (*linear)(s24i_machine *m, void *y, const void *x, const s24i_layer *layer, int64_t rows,
                   int with_bias);
    void (*logits)(s24i_machine *m, float *y, const void *x, const s24i_layer *layer, int64_t rows);
    void (*linear_dx)(s24i_machine *m, void *dx, const void *dy, const s24i_layer *layer,
                      int64_t rows);
    void (*linear_dw)(s24i_machine *m, const void *dy, const void *x, const s24i_layer *layer,
                      int64_t rows, int with_bias);

    /* Images: pixels to rows of patches, zeros for the tokens before them. */
    void (*unfold)(s24i_machine *m, void *rows, const s24i_train_batch *step, int64_t image,
                   int64_t patch, int64_t channels);
    /* s[T, width] from ids; of images s already holds the patches' vectors. */
    void (*embed)(s24i_machine *m, void *s, const s24i_embed *embed, const s24i_train_batch *step);
    /* Adds ds to the tables' gradients; of images the rows of tokens before patches become 0. */
    void (*embed_back)(s24i_machine *m, void *ds, const s24i_embed *embed,
                       const s24i_train_batch *step);

    void (*add_norm)(s24i_machine *m, const s24i_add_norm *job);
    void (*norm_back)(s24i_machine *m, const s24i_norm_back *job);
    /* y[rows, width] = dropout(x); y may be x. */
    void (*dropout)(s24i_machine *m, void *y, const void *x, const s24i_dropout *drop, int64_t rows,
                    int64_t width);
    /* y[count] = factor·x; y may be x. NULL where a device has none of it. */
    void (*scale)(s24i_machine *m, void *y, const void *x, float factor, int64_t count);
    /* y[rows, width] = x·scale, a number for each column; back: y is its gradient and becomes that
       of x, and dscale is added to. NULL where a device has none of it. */
    void (*scale_columns)(s24i_machine *m, const s24i_columns *job);
    void (*scale_columns_back)(s24i_machine *m, const s24i_columns *job);

    /* to += from. NULL where a device has none of it. */
    void (*add)(s24i_machine *m, float *to, const float *from, int64_t count);

    /* What these heads' scores grow by; where tokens are near is what a device's attention knows by
       itself, and slopes it has not. */
    void (*distances)(s24i_machine *m, float *to, const s24i_heads *heads,
                      const struct s24i_distance_rule *rule);
    /* Turns queries and keys by their positions; back: the other way. */
    void (*rotate)(s24i_machine *m, void *qkv, const s24i_heads *heads, int back);
    /* What a pass backward over batches of up to heads->step needs besides its operands. */
    size_t (*attention_bytes)(s24i_machine *m, const s24i_heads *heads);
    void (*attention)(s24i_machine *m, void *context, const void *qkv, const s24i_heads *heads);
    void (*attention_back)(s24i_machine *m, void *dqkv, const void *dcontext, const void *qkv,
                           const s24i_heads *heads);

    void (*activate)(s24i_machine *m, const s24i_activate *job);
    /* du from dh: [rows, width], of gated layers [rows, 2·width]. du may be dh where not gated. */
    void (*activate_back)(s24i_machine *m, void *du, const void *dh, const s24i_activate *job);

    void (*cross_entropy)(s24i_machine *m, const s24i_cross_entropy *job);
    void (*answer_loss)(s24i_machine *m, const s24i_answer_loss *job, const s24i_train_batch *step);
    /* *loss += weight·Σ (x − y)², dx += 2·weight·(x − y), of tokens that the mask lets be. */
    void (*squared_error)(s24i_machine *m, double *loss, void *dx, const void *x, const void *y,
                          double weight, const s24i_train_batch *step, int64_t width);
    void (*pool)(s24i_machine *m, const s24i_pool *job, const s24i_train_batch *step);
    /* *loss += weight·Σ (1 − cos), dx += its gradient. */
    void (*cosine_loss)(s24i_machine *m, double *loss, void *dx, const s24i_pool *job,
                        const float *teacher, double weight, const s24i_train_batch *step);

    /* *sum = Σ g² of what the mask lets be. */
    void (*squares)(s24i_machine *m, double *sum, const float *g, const uint16_t *mask, int64_t n);
    void (*update)(s24i_machine *m, const s24i_update *job);

    /* For methods of sparse training; NULL where the device has none of it. What a layer of a rule
       multiplies with instead of its inputs, forward or in dW; 0 where forward did in dx; linear_dw
       from 2:4 gradients of outputs. */
    const void *(*sparse_inputs)(s24i_machine *m, const void *x, const s24i_layer *layer,
                                 int64_t rows, int back);
    void (*sparse_dx)(s24i_machine *m, void *dx, const void *x, const s24i_layer *layer,
                      int64_t rows);
    void (*sparse_dw)(s24i_machine *m, const void *dy, const void *x, const s24i_layer *layer,
                      int64_t rows, int with_bias);
    void (*update_as)(s24i_machine *m, const s24i_update *job);
    void (*variance)(s24i_machine *m, s24i_variance *out, const s24i_update *job,
                     const uint16_t *bits);
    void (*extra_back)(s24i_machine *m, const s24i_extra_place *job);
    /* Masks of matrices of weights and, if asked for, what runs of them, where the host does not
       reach them; else NULL. The machine says its dtype and where narrow is. */
    void (*mask)(s24i_machine *m, struct s24_device_train_mask_args *jobs, int64_t count, int runs);

    /* What zeros cost is timed in laps, which do not lie in one another: `begins` 1, then 0. laps:
       the seconds of all since it was asked last. */
    void (*lap)(s24i_machine *m, int begins);
    double (*laps)(s24i_machine *m);
} s24i_ops;

/* Rows of a head's weight come in so many, the last ones of zeros in the arenas: a device whose
   products read 16 bytes at a time is slow where a vocabulary ends amid them. */
enum { S24I_HEAD_ROWS = 8 };

/* The most that a context has, by s24_ctx_opts. */
enum { S24I_TRAIN_THREADS = 1024 };

/* What the context's progress hears in the midst of a step. */
typedef struct s24i_pulse {
    const char *stage;
    int64_t done, total;
} s24i_pulse;

struct s24i_machine {
    const s24i_ops *ops;
    s24_ctx *ctx; /* of the call that runs */
    s24_status status;
    size_t element;      /* bytes of an activation */
    int64_t row_align;   /* elements that rows of logits are a multiple of */
    size_t memory_align; /* bytes, of a part of an arena */
    float scale;         /* of all gradients: f16 has no small numbers */
    int64_t two_four;    /* layers whose forward products run 2:4 */
    s24i_gpu *gpu;
    const s24i_pulse *pulse; /* NULL: a pass cannot be stopped */
    /* The CPU's. */
    const s24i_vec *vec;
    struct s24i_dense_runner *runner; /* of all products */
    float *scratch;                   /* [threads, scratch_elems] */
    int64_t scratch_elems;
    int threads;
    double laps; /* seconds */
};

/* The CPU's operations. `longest` is the most tokens of a text, width the most columns of a
   norm. */
extern const s24i_ops s24i_ops_cpu;
s24_status s24i_machine_cpu(s24i_machine *machine, s24_ctx *ctx, int64_t longest, int64_t d,
                            int64_t width);
/* Floats of scratch that attention by content and distance needs, likewise. */
int64_t s24i_cpu_apart_scratch(const struct s24i_apart *apart, int64_t longest, int64_t d);
/* Floats that pooling and its losses work in, as a width for s24i_machine_cpu. */
int64_t s24i_cpu_pool_room(const s24i_pooled *pooled, const struct s24i_modules *modules,
                           int64_t width);
/* A device's, in f16 or bf16. */
s24_status s24i_machine_gpu(s24i_machine *machine, s24_ctx *ctx, s24_device *device,
                            s24_dtype dtype);

/* s24_ctx_parallel_for, if nothing has failed before. */
void s24i_cpu_run(s24i_machine *m, int64_t count, void (*fn)(void *, int64_t, int64_t, int),
                  const void *arg);

/* INTERRUPTED where the pulse's listener asks to stop. */
s24_status s24i_machine_pulse(const s24i_machine *m);

/* The seed of a layer's MVUE24. */
uint64_t s24i_mvue_seed(const s24i_layer *l);
/* The seeded order in which a layer's tokens are grouped. */
s24i_token_order s24i_tokens_permuted(const s24i_layer *l, int64_t rows);

#endif
