// SPDX-License-Identifier: Apache-2.0
/*
 * sparse24/nn: checkpoints (checkpoints.h), tokenizers and models around the core library. The
 * rules of sparse24.h hold here too (result first, statuses, ownership, no printing, no globals).
 * An object remembers the context it was made with: destroy the objects before their context.
 *
 *   1  tokenizers    3  pruning a whole model
 *   2  encoders      4  text, evaluation
 */
#ifndef SPARSE24_NN_H
#define SPARSE24_NN_H

#include "sparse24/checkpoints.h"
#include "sparse24/device.h"
#include "sparse24/sparse24.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- 1. tokenizers --------------------------------------------------------------------------- */

/* UTF-8, not ended by a zero. */
typedef struct s24_text {
    const char *data;
    size_t bytes;
} s24_text;

typedef struct s24_tokenizer s24_tokenizer;

typedef struct s24_token {
    int32_t id;
    int32_t type;       /* 0: first text, 1: second */
    int32_t begin, end; /* Unicode code points of the text it came from; 0, 0 for [CLS] and [SEP] */
} s24_token;

/*
 * From a folder or one of its files: tokenizer.json (WordPiece; BPE at byte level as of GPT-2,
 * SmolLM, Llama 3, Qwen 2 and 3, or with SentencePiece's blanks and byte fallback as of Llama 2, or
 * of characters; Unigram as of XLM-RoBERTa), vocab.txt (+ tokenizer_config.json), vocab.json +
 * merges.txt (GPT-2, RoBERTa), tokenizer.model (SentencePiece BPE), sentencepiece.bpe.model
 * (XLM-RoBERTa's Unigram). Errors: IO, FORMAT, UNSUPPORTED (a part of a tokenizer that
 * is not carried out, by its name), MEMORY.
 */
S24_API s24_status s24_tokenizer_load(s24_tokenizer **out, s24_ctx *ctx, const char *path);
S24_API void s24_tokenizer_destroy(s24_tokenizer *tokenizer);
S24_API int32_t s24_tokenizer_vocabulary(const s24_tokenizer *tokenizer);
/*
 * [CLS] text [SEP], or [CLS] text [SEP] pair [SEP] with pair != NULL; cut (the longer part of a
 * pair first) so that no more than max_tokens remain. A tokenizer that puts other tokens around a
 * text or between two, more or none, does so here. Writes up to max_tokens tokens and
 * returns their number in *count. Invalid UTF-8 reads as U+FFFD, but at byte level, where bytes
 * stay what they are. The bytes need no terminator. Errors: ARGUMENT (max_tokens less than what
 * stands around), UNSUPPORTED (a pair of a tokenizer that does not say what stands around one),
 * MEMORY.
 */
S24_API s24_status s24_tokenizer_encode(s24_token *tokens, int64_t *count, int64_t max_tokens,
                                        const s24_tokenizer *tokenizer, s24_ctx *ctx,
                                        const char *text, size_t text_bytes, const char *pair,
                                        size_t pair_bytes);

/*
 * Writes a tokenizer.json to path, where nothing may be yet, whose tokens are the characters of the
 * texts, in the order of their code points: BPE without merges, which other libraries read too.
 * Errors: ARGUMENT (no character), FORMAT (invalid UTF-8 or U+0000, by its text), EXISTS, IO,
 * MEMORY.
 */
S24_API s24_status s24_tokenizer_write_characters(s24_ctx *ctx, const char *path,
                                                  const s24_text *texts, int64_t count);
/*
 * Tokens to text, without special ones ([CLS], <s>). *bytes: in, the room of text; out, the bytes
 * that the whole text has, of which those that fit were written. Tokens at byte level may end
 * within a character. Errors: ARGUMENT (an id that is none).
 */
S24_API s24_status s24_tokenizer_decode(char *text, size_t *bytes, const s24_tokenizer *tokenizer,
                                        s24_ctx *ctx, const int32_t *ids, int64_t count);

/* ---- 2. encoders ----------------------------------------------------------------------------- */

/*
 * A model's weights, planned for this machine. Immutable: any number of threads may use one at a
 * time, each through a context and a session of its own, with the bits that it would get alone.
 * Nothing of the checkpoint object is borrowed, but f32 word embeddings, and weights in the layout
 * of this CPU's plans (of the dtype that the model computes in), stay mapped: as long as the model
 * lives its file may be replaced or removed, not changed in place. The context that made a model, a
 * session or a dense product must outlive it, and a model its sessions.
 */
typedef struct s24_model s24_model;

typedef struct s24_model_opts {
    size_t size; /* sizeof(s24_model_opts) */
    /* The linear layers' weights are used as f32, bf16 or i8; default: f32, or bf16 for a bf16
       checkpoint. i8: 2:4 and dense weights are quantised here with a scale a row unless they are
       stored so, and each token when it is multiplied. The sums that a block adds to are always
       f32; with bf16 and i8, what else stands between layers is bf16 where the CPU multiplies it
       and every layer takes it. Where the dense engine has no product of i8
       (s24_dense_linear_create_as) a dense layer runs as bf16, and as f32 where it has none of
       these either; so do a language model's head, and experts that lie in the file. */
    s24_dtype dtype;
    int dense;  /* 1: multiply packed 2:4 weights as dense ones, and pack none (to compare) */
    int sparse; /* 1: pack dense weights that are 2:4 already; 0: only packed ones run sparse */
    /* The model's weights are put on this GPU, in f16 or bf16 (default: f16, or bf16 for a bf16
       checkpoint), and its sessions run there; what is between layers is of that dtype too. i8 or
       e4m3: in bf16, and the 2:4 weights once more in 8 bits with a scale a row, which a session
       multiplies tokens with that it quantises as they come, where it measured that to be faster.
       Dense layers need cuBLASLt. The device must outlive the model. NULL: the CPU. */
    s24_device *device;
    /* What sparse packs, as s24_tensor_is_selected; both NULL: every layer of the blocks. */
    const char *include, *exclude;
    /* 1: every 2:4 layer runs 2:4, even where dense is faster: the least memory, and nothing is
       measured. 0: the faster of both, as below. Not with dense. */
    int all_sparse;
    /* Schemes of s24_scheme_name, not with i8 or e4m3, and on a device for language models alone:
       the blocks' weights, 2:4 and dense ones, and the head of a language model are rounded to
       integers as they are loaded (a tied table's rows are looked up as floats all the same).
       Tokens stay floats. NULL: they are as the checkpoint has them; what it has in integers of
       another scheme is UNSUPPORTED. */
    const char *quantize, *quantize_head;
    /* "GLOB=NAME,GLOB=NAME": which of the blocks' layers run in 8 bits, NAME i8 or e4m3, one for a
       model, or bf16 for those that a glob before took in too; the last glob that fits a weight's
       name (as s24_tensor_is_selected's) counts, the rest does not run so. What is named runs so
       whatever is faster: 2:4 layers as with dtype, dense ones on a device in e4m3; on the
       CPU they run as with dtype i8, and 2:4 layers that are not named in the dtype that their
       weights have. Not with dtype and quantize. NULL: by dtype. */
    const char *layer_dtypes;
    /* 1: s24_checkpoint_verify, of the whole checkpoint, comes first. */
    int verify;
    /* The ranks of this communicator hold the model together, on the CPU or, where it is one of
       "nccl", each on the device that it was made with: each has its share of the heads, of the
       keys' and values' heads and of the layers between a block's two products, and every pass is
       all ranks' (s24_session_forward). Weights of a 2:4 layer are cut in whole groups of four. All
       ranks load the same checkpoint with the same options; what differs is refused by its name
       before the first pass. It must outlive the model and its sessions, which one thread uses at a
       time then. UNSUPPORTED: heads, layers or scales that do not divide by the number of ranks, a
       device that is not the communicator's, weights that are lifted, in a sparse format or have
       low-rank factors, and blocks that are no sequence of attention and feed-forward layers added
       as they come, by name. NULL, or a world of one: this process holds all of it. */
    struct s24_comm *comm;
    /* 1: of a folder that has a model of texts and one of images (CLIP) the second; one without it
       is UNSUPPORTED. 0: the first. */
    int images;
    /* Of s24_model_preset with sparse = 1: in place of 2:4 the layers are in this format, CSR or
       BSR (format and block sides alone are read), and a share `zeros`, in percent, of their
       numbers or blocks is zero, at random places; with dense = 1 the same weights run dense. Not
       with quantize or comm, and on a device BSR of 16x16 to 128x128. NULL: 2:4. */
    const s24_sparse_parts *format;
    int zeros;
} s24_model_opts;

typedef struct s24_model_info {
    const char *model_type;
    int64_t vocabulary, positions, types, width, layers, heads, intermediate;
    int64_t linear_layers, sparse_layers; /* of the blocks; how many of them are 2:4, or in rows
                                             or blocks */
    int64_t weight_bytes;                 /* of all tensors as stored */
    int has_qa_head;
    s24_dtype dtype;
    int64_t device_bytes; /* that the model holds on its device */
    /* Of a model of images: pixels a side, of a patch too, channels, classes of its head; else
       0. */
    int64_t image, patch, channels, classes;
    /* On the CPU: sparse layers that have dense weights, since dense is faster here for some
       numbers of tokens or for all, or AMX's tiles next to the packed ones, and the bytes of
       these. */
    int64_t dense_copies, dense_bytes;
} s24_model_info;

/*
 * 2:4 or dense on the CPU, and likewise rows or blocks or dense. Dense products can be faster than
 * sparse ones: where the CPU multiplies matrices by itself (AMX), has no kernels of ours, or where
 * few of the weights of rows or blocks are zero. So unless opts say otherwise loading
 * measures, in less than 0.2 s, both ways of the model's own layers for 1, 4, 16, 64 and 256
 * tokens, by one thread and by all of the context's together; layers of the same shape share it,
 * and of rows or blocks those with about the same share of weights. Many such shares take more:
 * 0.05 s at most for each eight, or where the first 32 MB of weights do not have them. Where dense
 * is faster by more than 3 % a layer gets a dense weight, made from the same values
 * and multiplied in f32, or in bf16 if the model is bf16 or i8; where it is so for all numbers of
 * tokens the layer has no other. On AMX 2:4 with its tiles kept (1.6 times a dense weight's bytes)
 * races too, and is taken where it gains more than 5 % over the better of the two in the mean of
 * what was measured. Integers are measured for i8 only: else what they save is memory,
 * and they run as they are. What was measured is noted with the
 * context as "f32 2 384x1536" (dtype, threads, inputs, outputs) with two hexadecimal numbers, for
 * one thread and for all together: bit i says that 2^(i − 1) + 1 … 2^i tokens run dense; "kept"
 * after them says that 2:4 keeps its tiles. A note of rows or blocks is named "f32 2 384x1536
 * bsr:16x16 20" (format, and the share that is stored, to the nearest 5 percent; "csr+int8 10" of
 * integers). A model
 * that finds the notes of its shapes measures nothing. Times that do not come twice, since other
 * work ran then, are not noted, and then only what looked 1.5 times as fast dense runs dense, or,
 * if there was no time for any, bf16 and i8 where the CPU has AMX; the log says so. A context with
 * another number of threads later uses what was measured here. A choice is the model's for good:
 * the same pass gives the same bits; two models that measured for themselves may differ by
 * rounding.
 */

/*
 * A model of any row of src/model/models.def from a folder with config.json. On GPUs language
 * models (gpt2, llama and its kin) need compute capability 9.0 and heads of a multiple of 8
 * elements, 128 at most. The blocks' layers may be packed, transposed ones too, and the head of a
 * language model, which runs dense. Layers in a sparse format run in it on the CPU, and on a GPU of
 * compute capability 9.0 in square blocks from 16x16 on (a session measures whether dense is
 * faster); there others are dense. Pooling and normalisation come from modules.json; a folder
 * without it pools by mean and normalises. Errors: ARGUMENT (not a folder), UNSUPPORTED
 * (model_type, activation, kind of positions or of pooling, by its name), FORMAT (a missing or
 * misshapen tensor or config key, a tensor packed otherwise, by its name), NOT_FINITE (a weight, by
 * its place), DTYPE, MEMORY.
 */
S24_API s24_status s24_model_load(s24_model **out, s24_ctx *ctx, const s24_checkpoint *checkpoint,
                                  const s24_model_opts *opts);
/* A model of a named shape with random weights for timing ("minilm", "bert-base", …); sparse = 1:
   its blocks' layers are 2:4. */
S24_API s24_status s24_model_preset(s24_model **out, s24_ctx *ctx, const char *name,
                                    const s24_model_opts *opts);
/* Preset names by index; NULL past the end. */
S24_API const char *s24_model_preset_name(int index);
S24_API void s24_model_destroy(s24_model *model);
/* A note of what was measured, as above: does such a layer run dense in a pass of that many
   tokens on that many threads? 1: yes; 0: no, as it is stored; −1: the text is no such note. */
S24_API int s24_choice_is_dense(const char *note, int threads, int64_t tokens);
S24_API void s24_model_describe(s24_model_info *info, const s24_model *model);
/* Heads of keys and values: as many as heads, or fewer that some of these share. */
S24_API int64_t s24_model_kv_heads(const s24_model *model);
/* 1 where info->classes are those of every token, 0 where they are a text's or an image's. */
S24_API int s24_model_classifies_tokens(const s24_model *model);

/* Texts laid end to end without padding: text b is tokens offsets[b] … offsets[b+1]. */
typedef struct s24_batch {
    int64_t texts;
    const int64_t *offsets; /* [texts + 1], offsets[0] = 0 */
    /* [offsets[texts]]. Of models of RoBERTa's kin positions do not count those of the id
       pad_token_id, which have a row of their own, the padding's. */
    const int32_t *ids;
    const int32_t *types; /* [same] or NULL: 0 */
    /* [same] or NULL: 1. No token attends to one whose mask is 0, and all pooling but CLS leaves it
       out. In a text of zeros only, every token attends to all alike. */
    const uint8_t *mask;
    /* Of a model of images, and then nothing of the above but the number of texts is read: [texts,
       channels, side, side], normalised, in host memory or that of the model's device. */
    const float *pixels;
} s24_batch;

/* Buffers of forward passes; one session a thread at a time. */
typedef struct s24_session s24_session;

/* max_tokens: the most tokens (all texts together) of a batch. Everything is allocated here, for as
   many threads as the context has now; a pass may use fewer. */
S24_API s24_status s24_session_create(s24_session **out, s24_ctx *ctx, const s24_model *model,
                                      int64_t max_tokens);
S24_API void s24_session_destroy(s24_session *session);
/* How many of the blocks' linear layers a pass of that many tokens, on the threads that the
   session was made for, multiplies as 2:4, or in rows or blocks. On the CPU that was chosen at
   load. On a device the first pass of each power of two of tokens measures which way is faster;
   before it these are the model's sparse_layers. */
S24_API int64_t s24_session_sparse_layers(const s24_session *session, int64_t tokens);
/* How many of those in that format, the others being 2:4; and how many layers of the model are. */
S24_API int64_t s24_session_format_layers(const s24_session *session, int64_t tokens,
                                          s24_format format);
S24_API int64_t s24_model_format_layers(const s24_model *model, s24_format format);
/* And how many in 8 bits, tokens too, of a model that was made with i8 or e4m3, sparse and dense
   ones; rows and blocks whose weights are no integers are not. */
S24_API int64_t s24_session_narrow_layers(const s24_session *session, int64_t tokens);

/* What s24_session_forward may give; NULL fields are not computed. All f32, row-major. */
typedef struct s24_outputs {
    float *hidden; /* [tokens, width]: the last block's, of a language model the last norm's */
    /* [layers + 1, tokens, width]: embeddings, then each block's; the last is hidden. */
    float *blocks;
    /* [texts, width]: pooled and normalised as modules.json says; what Dense modules do is the
       encoder's, and their input is not normalised. */
    float *embeddings;
    float *start_logits; /* [tokens], QA head */
    float *end_logits;   /* [tokens] */
    float *logits;       /* [texts, classes], a classifier's of images; or of a language model, */
    /* Of a language model; the fields from here on are read of no other. logits [token_count,
       vocabulary] are of these tokens of the batch, counted from its first; NULL: of all, in
       order. */
    const int64_t *tokens;
    int64_t token_count;
    /* [tokens of the batch]: the token that follows each, -1: none. No more than some rows of
       logits are held for losses at a time. */
    const int32_t *targets;
    double *loss;  /* mean of -ln p(target) over what has a target; NaN if nothing has */
    float *losses; /* [tokens of the batch]; 0 where there is no target */
} s24_outputs;

/* Allocates nothing, but that the dense engine prepares itself when it meets a number of tokens for
   the first time. Of a model that ranks hold together all ranks call it, with the same batch, and
   get the same bits; on devices a pass of one more token of each text, as one before, is not
   compared. Where one refuses its batch, or has another, all return with an error; where one
   fails later, it should call s24_comm_abort, since the others wait for it. Errors: ARGUMENT
   (ids or types out of range, an empty text or one longer than the positions, too many tokens or
   threads, a QA output without a head; a rank that differs), MEMORY, those of s24_comm_sum. */
S24_API s24_status s24_session_forward(s24_session *session, s24_ctx *ctx, const s24_batch *batch,
                                       const s24_outputs *outputs);
/*
 * Of a model on a device: enqueues a pass that begins after all that is in `stream` now, and after
 * whose end begins what is enqueued there later. The batch's offsets are in host memory and may
 * change when the call returns; ids, types, mask, pixels and outputs are in the device's memory.
 * states [tokens, width] (may be NULL) is what outputs->hidden is, in f16 of a model of f16, else
 * in bf16. ids and types are not checked: those out of range read what is not theirs. All
 * of a text's tokens are counted, those that pad too (see s24_batch). The call waits for the pass
 * before where the texts have other lengths than its, and for what it measures and captures in the
 * first two of a shape; else for nothing. Errors: as above, UNSUPPORTED (a model on the CPU, or
 * that ranks hold together; blocks; logits and losses of a language model).
 */
S24_API s24_status s24_session_enqueue(s24_session *session, s24_ctx *ctx, const s24_batch *batch,
                                       const s24_outputs *outputs, void *states, void *stream);

/*
 * Texts to embeddings [count, width]: tokenize, batch like lengths together, forward, pool,
 * normalise. A prompt stands before every text, as if both were one; where the pooling module says
 * include_prompt: false, its tokens and [CLS] before them are left out of the mean or maximum.
 * max_tokens 0: sentence_bert_config.json's max_seq_length, else tokenizer_config.json's
 * model_max_length, and no more than the model's positions. Several ways of pooling lie side by
 * side. An encoder owns its model, tokenizer and session. UNSUPPORTED, too: a model without
 * modules.json that was trained for a head (architectures of config.json names one, or its tensors
 * are there), whose pooled vectors mean nothing; a modules.json that names no Pooling. A folder
 * whose modules.json names SpladePooling gives weights of words (s24_encoder_weigh) and no vectors.
 */
typedef struct s24_encoder s24_encoder;

typedef struct s24_encoder_opts {
    size_t size;          /* sizeof(s24_encoder_opts) */
    s24_model_opts model; /* its size may be 0 here */
    int64_t max_tokens;   /* of a text; default as above */
    int64_t batch_tokens; /* most tokens of one forward pass; default 4096 */
    const char *prompt;   /* of config_sentence_transformers.json, by name; default: its default */
    int ids; /* 1: texts come as ids (s24_encoder_embed_ids): tokenizer and prompts are not read */
    /* 1: for s24_encoder_classify and s24_encoder_tag: the head that the model was trained for is
       read, and how vectors are pooled is not. A language model whose modules.json has LogitScore
       (or a qwen3 without one) has one class, of pairs: the logit of a token that answers. */
    int head;
    /* A name of s24_encoder_pooling_name in place of what the folder says, also of a model that was
       trained for a head. */
    const char *pooling;
    /* So many numbers of each vector, its first, for models made so (Matryoshka); brought to length
       1 where the folder says Normalize. 0: all. */
    int64_t dimensions;
    /* 1: for s24_encoder_embed_pixels: the model reads images (as s24_model_opts.images says of a
       folder with two), and no tokenizer is read. Excludes head and ids. −1: so where the folder's
       model reads nothing else, as s24_model_info.image tells, which is 0 for one of texts. */
    int images;
} s24_encoder_opts;

/* "mean", "cls", "max", "lasttoken", "weightedmean" (token i counts i times), "mean_sqrt_len" (the
   sum divided by the root of their number), and "splade", of a masked language model: weights of
   words, s24_encoder_weigh; NULL past the end. */
S24_API const char *s24_encoder_pooling_name(int index);

S24_API s24_status s24_encoder_open(s24_encoder **out, s24_ctx *ctx, const char *folder,
                                    const s24_encoder_opts *opts);
/* Another encoder for another thread (with a context of its own) on the same model and
   tokenizer, with the same options and the prompt that `from` has now; `from` must outlive it.
   Errors: ARGUMENT, MEMORY. */
S24_API s24_status s24_encoder_share(s24_encoder **out, s24_ctx *ctx, const s24_encoder *from);
S24_API void s24_encoder_close(s24_encoder *encoder);
S24_API const s24_model *s24_encoder_model(const s24_encoder *encoder);
/* 1: vectors have length 1, as the folder says. And 0: a prompt's tokens are left out of them. */
S24_API int s24_encoder_normalises(const s24_encoder *encoder);
S24_API int s24_encoder_pools_prompt(const s24_encoder *encoder);
/* As s24_session_sparse_layers; tokens 0: of the longest pass so far. */
S24_API int64_t s24_encoder_sparse_layers(const s24_encoder *encoder, int64_t tokens);
/* And s24_session_format_layers. */
S24_API int64_t s24_encoder_format_layers(const s24_encoder *encoder, int64_t tokens,
                                          s24_format format);
/* Of a vector: the model's width, or what Dense modules and the option dimensions leave. */
S24_API int64_t s24_encoder_width(const s24_encoder *encoder);
/* The tokenizer of an encoder of texts, which lives as long as the encoder that was opened; NULL:
   texts come as ids. */
S24_API const s24_tokenizer *s24_encoder_tokenizer(const s24_encoder *encoder);
/*
 * Prompts: a folder's config_sentence_transformers.json has some by name ("query", "document"), one
 * of which may be its default. Each encoder has a prompt of its own that stands before the texts of
 * the calls that follow; names and texts live as long as the encoder that was opened.
 */
/* The folder's prompts by index: name, and *text (may be NULL). NULL past the end. */
S24_API const char *s24_encoder_prompt_name(const s24_encoder *encoder, int64_t index,
                                            const char **text);
/* The text of the folder's prompt of that name; NULL: there is none. */
S24_API const char *s24_encoder_prompt_text(const s24_encoder *encoder, const char *name);
/* The folder's prompt of that name from now on; NULL: its default, none where it has none. Errors:
   ARGUMENT (no such name: the sentence lists those that there are; include_prompt is false and the
   prompt fills max_tokens), FORMAT (the default does not exist), MEMORY. */
S24_API s24_status s24_encoder_choose_prompt(s24_encoder *encoder, s24_ctx *ctx, const char *name);
/* A text of the caller's, which is copied; NULL or "": none. Errors: ARGUMENT (as above),
   MEMORY. */
S24_API s24_status s24_encoder_set_prompt(s24_encoder *encoder, s24_ctx *ctx, const char *text);
/* The prompt that stands before texts now, "" for none, until the next change; *name (may be NULL)
   is NULL for a text of the caller's, and for none. */
S24_API const char *s24_encoder_prompt(const s24_encoder *encoder, const char **name);
/* *tokens (may be NULL) is the number of tokens run. Order of the result is that of the texts; an
   empty text is [CLS] [SEP]. */
S24_API s24_status s24_encoder_embed(float *embeddings, int64_t *tokens, s24_encoder *encoder,
                                     s24_ctx *ctx, const s24_text *texts, int64_t count);
/* The same for the `ids` of `texts` at `offsets`, for which an encoder need not have a tokenizer
   (s24_encoder_opts.ids). Nothing is put before or after a text; of a longer one than max_tokens
   the first are taken. An encoder of texts takes ids as its tokenizer makes them of prompt and
   text: what pooling leaves out of these it leaves out here. Errors: ARGUMENT (an id out of range,
   a text without one, or with none after a prompt that is left out), those of a pass. */
S24_API s24_status s24_encoder_embed_ids(float *embeddings, int64_t *tokens, s24_encoder *encoder,
                                         s24_ctx *ctx, const s24_batch *ids);
/*
 * The same of one batch in two halves, for servers: begin copies the ids and sends the batch on its
 * way, end waits for the batch that was begun first and writes its vectors [texts, width]. On a
 * device s24_encoder_most_begun, two, may be on their way, so that one runs while the next is made
 * up; on the CPU one, which begin runs. One thread may begin batches while another, with a context
 * of its own, ends them; who hands them over sees to the order. Until all are ended the encoder
 * does nothing else. Errors: as above; ARGUMENT (as many are begun as may be; none is; more tokens
 * or texts than most_begun says; no texts). What begin refuses is not begun; what end reports has
 * ended.
 */
/* How many batches, and the most texts and tokens of each (either may be NULL). */
S24_API int s24_encoder_most_begun(const s24_encoder *encoder, int64_t *texts, int64_t *tokens);
S24_API s24_status s24_encoder_begin_ids(s24_encoder *encoder, s24_ctx *ctx, const s24_batch *ids);
S24_API s24_status s24_encoder_end(float *embeddings, s24_encoder *encoder, s24_ctx *ctx);

/* What weights of words are written to. */
typedef struct s24_word_weights {
    int32_t *ids;    /* [texts, most] token ids of a text's words, the largest weight first */
    float *weights;  /* [texts, most] theirs, above 0 */
    int64_t *counts; /* [texts] how many these are */
    int64_t most;    /* the most of a text; s24_encoder_width has room for all */
} s24_word_weights;
/*
 * SPLADE: the words of the vocabulary that a text stands for, and how much. The masked language
 * model's head gives each token a logit x for every word; a word's weight is the largest of the
 * text's tokens, those around it too, of log(1 + max(x, 0)), or as the SpladePooling module says
 * their sum, or log(1 + …) of that number. Of equal weights the lower id comes first; the score of
 * a query and a document is the sum of products of the weights of words that both have. The head is
 * multiplied in f32, some tokens at a time; memory does not grow by tokens times words. *tokens as
 * s24_encoder_embed has it. Errors: ARGUMENT (an encoder of vectors), those of a pass.
 */
S24_API s24_status s24_encoder_weigh(const s24_word_weights *out, int64_t *tokens,
                                     s24_encoder *encoder, s24_ctx *ctx, const s24_text *texts,
                                     int64_t count);
/* The same for token ids, as s24_encoder_embed_ids takes them. */
S24_API s24_status s24_encoder_weigh_ids(const s24_word_weights *out, int64_t *tokens,
                                         s24_encoder *encoder, s24_ctx *ctx, const s24_batch *ids);
/* 1: the encoder gives weights of words; of s24_encoder_width words, its vocabulary. */
S24_API int s24_encoder_weighs(const s24_encoder *encoder);

/* Embeddings [count, width] of images [count, channels, side, side], normalised, as
   s24_session_forward reads them (s24_encoder_image_form of task.h says how to make them), of an
   encoder that was opened with the option `images`: in one space with the texts' where the model's
   folder has both (CLIP). Errors: ARGUMENT (an encoder of texts), those of a pass. */
S24_API s24_status s24_encoder_embed_pixels(float *embeddings, s24_encoder *encoder, s24_ctx *ctx,
                                            const float *pixels, int64_t count);

/*
 * Heads that classify, of an encoder that was opened with the option `head`: of texts and pairs of
 * texts (rerankers have one class, the score of a pair), or of tokens. They run on the CPU.
 */
/* The most tokens of a text, what stands around it too. */
S24_API int64_t s24_encoder_max_tokens(const s24_encoder *encoder);
/* Classes of the head; 0: the encoder was opened without it. */
S24_API int64_t s24_encoder_classes(const s24_encoder *encoder);
/* 1: the classes are those of tokens, not of texts. */
S24_API int s24_encoder_classifies_tokens(const s24_encoder *encoder);
/* 1: a text may have several of its classes, or none, as config.json's problem_type says. */
S24_API int s24_encoder_multi_label(const s24_encoder *encoder);
/* 1: a reranker whose score is its logit, not the logit's sigmoid: activation_fn of
   config_sentence_transformers.json or config.json is torch's Identity. */
S24_API int s24_encoder_scores_plainly(const s24_encoder *encoder);
/* A class's name from id2label of config.json, "LABEL_3" where it has none; NULL past the end. It
   lives as long as the encoder. */
S24_API const char *s24_encoder_label(const s24_encoder *encoder, int64_t index);

/* What a head reads: texts, each alone or with another one after it. */
typedef struct s24_text_pairs {
    int64_t count;
    const s24_text *texts; /* [count], or [1] where it is the same one in all pairs */
    const s24_text *pairs; /* [count], what is read after it; NULL: texts stand alone */
    int same_text;         /* 1: texts has one alone, as the query of a reranker is */
} s24_text_pairs;

/* logits [count, classes] as the head gives them, without sigmoid or softmax, in the order of the
   texts. What is too long is cut, the longer one of a pair first. *tokens (may be NULL) is the
   number of tokens run. Prompts play no part. Errors: ARGUMENT (a NULL text; an encoder without
   `head`), UNSUPPORTED (a head of tokens; pairs with a tokenizer that puts no token between them),
   MEMORY. */
S24_API s24_status s24_encoder_classify(float *logits, int64_t *tokens, s24_encoder *encoder,
                                        s24_ctx *ctx, const s24_text_pairs *pairs);
/* A text's tokens [up to s24_encoder_max_tokens], with the logits [same, classes] of each, those
   around the text too. Errors: as above, UNSUPPORTED (a head of texts). */
S24_API s24_status s24_encoder_tag(s24_token *tokens, float *logits, int64_t *count,
                                   s24_encoder *encoder, s24_ctx *ctx, const s24_text *text);

/* ---- 3. pruning a whole model ---------------------------------------------------------------- */

typedef struct s24_layer_report {
    const char *name;   /* with ".weight" */
    int64_t rows, cols; /* as stored */
    double kept_l1;
    double output_error; /* −1: not measured */
    double seconds;
    const char *pattern; /* that it was pruned to, or was tried with */
    /* Layers with the same number read the same input, and run as one product where they are of one
       kind: query, key and value of a block, or its gate and intermediate layer. −1: not known. */
    int64_t input;
    /* Of s24_model_sensitivity by the model's price: how far what the model gives moves with this
       layer alone in the form. −1: not measured. */
    double model_error;
} s24_layer_report;

struct s24_model_gradients; /* train.h */

typedef struct s24_model_prune_opts {
    size_t size;           /* sizeof(s24_model_prune_opts) */
    s24_prune_opts prune;  /* criterion and its parameters; its size may be 0 here */
    const s24_text *texts; /* calibration passages, NULL: none */
    int64_t text_count;
    int64_t max_tokens;            /* of a passage; 0: the model's own limit */
    const char *include, *exclude; /* as s24_tensor_is_selected */
    s24_dtype dtype;               /* of the selected tensors written; NONE: as they are */
    int packed;                    /* 1: write the pruned tensors packed */
    int force;                     /* 1: replace an existing output */
    /* Called for each layer as it is done; may be NULL. */
    void (*report)(void *user, const s24_layer_report *layer);
    void *user;
    /* Passages as `texts`, `offsets`, `ids` and `types` (NULL: 0) in place of texts, which need no
       tokenizer. */
    const s24_batch *ids;
    /* A scheme of s24_scheme_name: packed tensors are rounded to its integers, with calibration by
       s24_matrix_round, whose target is the weight before pruning. NULL: they stay floats. */
    const char *quantize;
    /* Steps of training for each half of a block (attention; the feed-forward layers) after its
       layers are pruned: the weights that stay learn to give the dense model's states from the
       pruned one's, over the calibration passages, without labels. 0: none. All of the model and
       its gradients are in memory, here or on `device`. Excludes quantize. */
    int64_t reconstruct;
    /* A file of masks (s24_masks_open): for each layer a tensor of its name and stored shape, u8
       or bool, not zero where a weight stays, or one of its name and ".mask" as MaskLLM's are. It
       takes the place of a criterion; with prune.pattern it must be N:M exactly, and without it
       is of any form: with packed, tensors whose mask keeps at most two of every four are packed
       and the others are dense with zeros. NULL: none. */
    const s24_checkpoint *masks;
    /* 1: out_path is a .safetensors file of such masks, u8, of the pruned tensors and nothing else.
       Excludes packed, dtype, quantize and reconstruct. */
    int masks_only;
    /* What examples say of the same model's weights, for criteria that need gradients and for a
       score of the caller's. NULL: none. */
    const struct s24_model_gradients *gradients;
    /* 1: the share of weights, rows, columns or blocks is of all selected tensors together: the
       least of all scores, of blocks their means, go, exactly the share of their number. Scores are
       those of the dense model. Costs another walk and an f32 for each weight or block. */
    int global;
    /* With global, 1: each tensor's scores are divided by the mean of their magnitudes. */
    int normalize;
    /* Factors next to each pruned tensor (s24_low_rank), in its dtype: their rank as text, "16", or
       how many bytes they may have of the dense tensor's, "bytes=0.05". With calibration they make
       up for most of the error on its inputs, and the layers after it are pruned on the corrected
       one's outputs. Needs packed; excludes reconstruct. NULL: none. */
    const char *low_rank;
    /* Images to calibrate a model of images with, in place of texts: so many as `texts` says at
       `pixels`, in host memory, as s24_session_forward reads them. Excludes max_tokens. With a
       model that embeds both they are its tower's, and may stand next to texts or ids; then there
       is no keep, and for images neither device nor reconstruct. NULL: none. */
    const s24_batch *images;
    /* Where the passages run, in bf16 with weights in f32, as training does: Gram matrices are of
       those inputs, with sums in f32. Reconstruction runs there too, and so do, in f64, the
       products of what prunes and refines, SparseGPT and ALPS of N:M, swaps of 2:4 and least
       squares; other choices, and rounding to integers, stay on the CPU. All of the model is in its
       memory. Needs passages. NULL: the CPU. */
    s24_device *device;
    /* A folder in which each block is kept as it is done, made if it is not there: a run with the
       same options, model and passages goes on after those that it finds, to the same bits, and
       removes it once the output is there. Needs passages; excludes masks, masks_only, gradients,
       low_rank and prune.score. A block of another run: EXISTS. NULL: nothing is kept. */
    const char *keep;
    /* What layers aim at before they are pruned: "weights", the weights that they have; "outputs":
       on the pruned model's inputs, what the dense model's layer gives on its own (s24_prune_aim);
       "states": and the layers that end a half of a block (attention; the feed-forward layers) make
       up for what the pruned model's states lack there of the dense one's. Both run the passes of
       training, here or on `device`, with all of the model in memory, so they are of models that
       train. The last eighth of the passages is held back, and says how far each layer goes.
       output_error is next to the outputs aimed at. Needs two passages. NULL: "weights". */
    const char *aim;
    /* Of s24_model_sensitivity alone. "model": reports have a model_error. Where modules.json
       says how texts' vectors are made, it is the mean squared change of the cosines of each text
       to the five that are nearest to it, of the first passages up to 4,096 tokens; else, and of
       one passage, the squared distance, relative, of the vector or of the states that the model
       ends with, of up to 2,048 tokens or one passage. It is measured for the first form that
       changes a layer, and of its other forms follows by their output_error; a mixture of experts
       has none. Takes a pass from the layer's block on for each layer, and the weights of all
       blocks in memory in f32. NULL or "layer": output_error alone. "model-or-layer": "model", or
       with a log line "layer" where `memory` does not hold these weights. */
    const char *price;
    /* Of price "model": bytes that these weights may take; if they take more, nothing is measured:
       MEMORY. 0: nine tenths of s24_memory_free. */
    int64_t memory;
    /* Its ranks prune the model together: each runs its share of the passages, on the CPU or its
       own `device`, Gram matrices are summed, and of layers that read the same each is one rank's,
       whose choice all take. All call with the same model, passages and options: what differs is
       refused by name. Rank 0 writes, has `keep`, for runs of as many ranks, and alone takes what
       is outside the blocks. In worlds of one size the same bits, next to one process the same but
       for the order of sums; an error is all ranks'. Needs a passage for each rank; excludes
       reconstruct, aim, global, s24_model_sensitivity. NULL, or a world of one: this one alone. */
    struct s24_comm *comm;
} s24_model_prune_opts;

/*
 * Prunes a checkpoint into a new one at out_path, along k, also where a weight is transposed. With
 * calibration texts or images the statistics of each block are taken with every earlier block
 * already pruned, and only one block's are in memory. A selected tensor whose k is no multiple of 4
 * is passed through with a log line. Errors: all of the above.
 */
S24_API s24_status s24_model_prune(s24_ctx *ctx, const s24_checkpoint *in, const char *out_path,
                                   const s24_model_prune_opts *opts);

typedef struct s24_model_inputs_opts {
    size_t size; /* sizeof(s24_model_inputs_opts) */
    const s24_text *texts;
    int64_t text_count;
    int64_t max_tokens; /* of a text; 0: all of the model's positions */
} s24_model_inputs_opts;
/* The key of a checkpoint's metadata that *out of s24_model_inputs is for. */
#define S24_INPUTS_KEY "sparse24.inputs"
/*
 * Runs texts through a folder's model on the CPU, in f32, and notes the largest magnitude of each
 * linear layer's inputs: *out is the text that docs/format.md describes, to be freed with
 * s24_ctx_free. A model that is loaded with it on a GPU in i8 or e4m3 has scales for whole layers,
 * so that tokens are made in 8 bits. Errors: ARGUMENT (no texts, a single file, max_tokens),
 * UNSUPPORTED (a model of images), NOT_FINITE, those of loading the model and its tokenizer.
 */
S24_API s24_status s24_model_inputs(char **out, s24_ctx *ctx, const s24_checkpoint *in,
                                    const s24_model_inputs_opts *opts);

typedef struct s24_model_permute_opts {
    size_t size; /* sizeof(s24_model_permute_opts) */
    /* Passages as in s24_model_prune_opts: |w| counts times the norm of its input. None: |w|. */
    const s24_text *texts;
    int64_t text_count, max_tokens;
    const s24_batch *ids;
    const char *include, *exclude; /* of which layers the columns move, as s24_tensor_is_selected */
    int force;                     /* 1: replace an existing output */
    const s24_batch *images;       /* as in s24_model_prune_opts; NULL: none */
} s24_model_permute_opts;

/*
 * Writes the model with channels in another order, one in which 2:4 keeps more: the columns of the
 * feed-forward output and, head by head, of the attention output, with the rows and biases of the
 * layers before them. The model gives the same, but for the order of sums: nothing is left of it at
 * run time. By assignments of one channel of each group after another (Zhang et al., ICLR 2024).
 * Blocks whose layers are packed stay as they are. Errors: those of loading a model and of a
 * writer, MEMORY, INTERRUPTED.
 */
S24_API s24_status s24_model_permute(s24_ctx *ctx, const s24_checkpoint *in, const char *out_path,
                                     const s24_model_permute_opts *opts);

/*
 * What each form would cost each layer by itself: opts->report hears of every layer of the model's
 * blocks in each of `count` forms, on the inputs that the dense model gives. A form is a pattern
 * ("2:4"), a scheme of s24_scheme_name ("int8": all weights, rounded to nearest), or both
 * ("2:4+int8", of 2:4 and of 6:8 and its kin), whose integers are those of opts->quantize. Nothing
 * is written. A form whose groups do not divide a layer's columns is left out there. Of opts, what
 * is said of the output is not read. Errors: ARGUMENT (no forms, one that is none, no such price,
 * no calibration texts), MEMORY (opts->memory), those of s24_prune and of loading the model.
 */
S24_API s24_status s24_model_sensitivity(s24_ctx *ctx, const s24_checkpoint *in,
                                         const s24_model_prune_opts *opts,
                                         const char *const *patterns, int64_t count);

/* ---- 4. text, evaluation --------------------------------------------------------------------- */

/*
 * Makes a text from elsewhere (a tensor's or file's name, a line, a sentence that quotes one) fit
 * for a terminal or log. What would act there instead of being seen becomes an escape: control
 * characters, C1's too, as \x1b and \u009b, LF, CR and TAB as \n, \r and \t, marks and overrides of
 * the direction of writing and separators of lines and paragraphs as \u202e, bytes that are no
 * UTF-8 as \xff. All else, a backslash too, stays: this is for readers, not for programs. Writes
 * the characters that fit whole into `room` bytes, and a NUL. Returns how many bytes of the text
 * these are; begin there to go on.
 */
S24_API size_t s24_text_escape(char *out, size_t room, const char *text, size_t bytes);

/* The lines of a UTF-8 file (LF or CR LF; a last line without end counts; empty lines count). */
typedef struct s24_lines s24_lines;
/* path "-" reads standard input. Errors: IO, FORMAT (invalid UTF-8: line named), MEMORY. */
S24_API s24_status s24_lines_read(s24_lines **out, s24_ctx *ctx, const char *path);
S24_API void s24_lines_destroy(s24_lines *lines);
S24_API int64_t s24_lines_count(const s24_lines *lines);
S24_API const s24_text *s24_lines_texts(const s24_lines *lines);

/* The same lines as they come, for a pipe that stays open. */
typedef struct s24_line_reader s24_line_reader;
/* path "-" reads standard input, which is left open. Errors: IO, MEMORY. */
S24_API s24_status s24_line_reader_open(s24_line_reader **out, s24_ctx *ctx, const char *path);
S24_API void s24_line_reader_close(s24_line_reader *reader);
/* Waits for a line, then gives it and those that are there already, at most `most` of them; *count
   0 is the end. The texts live until the next call. The lines before a bad one are given first.
   Errors: IO, FORMAT (invalid UTF-8: line named), MEMORY, INTERRUPTED. */
S24_API s24_status s24_line_reader_next(const s24_text **texts, int64_t *count,
                                        s24_line_reader *reader, int64_t most);

/* The k documents, f32 or f16, with the largest dot product for each query, f32, best first; ties:
   the lower index. Sums are f32. indices [queries, k], scores [queries, k]. */
S24_API s24_status s24_nearest(int64_t *indices, float *scores, s24_ctx *ctx,
                               const s24_dense *queries, const s24_dense *documents, int64_t k);

/* Documents, f32 or f16, and the same rounded to i8 [documents, cols], each row with its scale. */
typedef struct s24_rounded {
    s24_dense exact, integers;
    const float *scales; /* [documents] */
} s24_rounded;

/* Rounds rows of f32 to nearest integers of −127 … 127: a row's scale [rows] is its largest
   magnitude / 127, and 0 where all of it is. integers [rows, cols] without gaps. Errors: ARGUMENT,
   DTYPE, SHAPE, NOT_FINITE (a row with NaN or Inf, by its number). */
S24_API s24_status s24_round_rows(int8_t *integers, float *scales, s24_ctx *ctx,
                                  const s24_dense *rows);

/* s24_nearest in `exact`, to the bit, in less time: all documents are scored by their integers, and
   those exactly that may be among the best by how far integers can be off, half a scale each. */
S24_API s24_status s24_nearest_rounded(int64_t *indices, float *scores, s24_ctx *ctx,
                                       const s24_dense *queries, const s24_rounded *documents,
                                       int64_t k);

/* Share (0 … 1) of queries whose gold document is among the best k: its score is beaten by fewer
   than k documents. k is at least 1; where there are k documents or fewer, the share is 1. */
S24_API s24_status s24_retrieval_accuracy(double *share, s24_ctx *ctx, const s24_dense *queries,
                                          const s24_dense *documents, const int64_t *gold,
                                          int64_t k);

/* A dense product y[m,n] = activation(x·wᵀ + bias) + residual through the dense engine of this
   build, with its weight pre-packed: what the 2:4 layers are compared with. w [n, k] f32, or bf16
   to be multiplied as bf16 where the engine can (oneDNN), as f32 elsewhere; x and y are f32. */
typedef struct s24_dense_linear s24_dense_linear;
S24_API const char *s24_dense_engine(void); /* "oneDNN 2.6.3", "OpenBLAS …" or "none" */
/* What the engine uses of the CPU, here and in a model's dense layers, as S24_CPU_ bits; 0 where it
   cannot be loaded. oneDNN is bounded once in a process, to the bits of the context that first
   multiplies dense or asks here; it keeps that bound with every later context, and the log says so
   where that is more than such a context's cpu_mask allows. A CBLAS uses the best that the CPU has.
   A mask of the baseline leaves oneDNN SSE4.1, below which it has no level. */
S24_API uint32_t s24_dense_engine_cpu(s24_ctx *ctx);
S24_API s24_status s24_dense_linear_create(s24_dense_linear **out, s24_ctx *ctx, const s24_dense *w,
                                           const float *bias, s24_activation activation);
/* The same as the dense layers of a model in `dtype` run, f32, bf16 or i8, whatever w is: in i8 w
   is rounded to 8 bits with a scale for each row, and each row of x as it comes, where the engine
   multiplies so (oneDNN from AVX-512 VNNI on, K a multiple of 4 and at most 65536), else as in
   bf16. Errors: as above, NOT_FINITE. */
S24_API s24_status s24_dense_linear_create_as(s24_dense_linear **out, s24_ctx *ctx,
                                              const s24_dense *w, s24_dtype dtype,
                                              const float *bias, s24_activation activation);
/* i8 of one that multiplies so, else the dtype that it was asked for: f32 or bf16. */
S24_API s24_dtype s24_dense_linear_dtype(const s24_dense_linear *linear);
S24_API void s24_dense_linear_destroy(s24_dense_linear *linear);
/* residual may be NULL or y itself. A dense product is used by one thread at a time. */
S24_API s24_status s24_dense_linear_run(s24_dense_linear *linear, s24_ctx *ctx, const s24_dense *y,
                                        const s24_dense *x, const s24_dense *residual);

#ifdef __cplusplus
}
#endif

#endif
