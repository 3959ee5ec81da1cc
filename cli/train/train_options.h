// SPDX-License-Identifier: Apache-2.0
/* What the files of sparse24 train share: its options, the examples they name, the losses. */
#ifndef SPARSE24_CLI_TRAIN_TRAIN_OPTIONS_H
#define SPARSE24_CLI_TRAIN_TRAIN_OPTIONS_H

#include "image_files.h"
#include "sparse24/task.h"
#include "sparse24/train.h"

struct train_options {
    cli_common common;
    const char *teacher, *text, *qa, *stream, *images, *loss, *schedule, *metrics, *report,
        *dropout, *dtype, *method, *numbers, *include, *exclude, *comm;
    double epochs, minutes, rate, warmup, decay, clip, temperature, refresh_until;
    int64_t steps, refresh, batch, tokens, max_tokens, seed, held_out, checkpoint_steps;
    int resume, dense, recompute, from_scratch, choose_masked_decay, shard_optimizer;
};

typedef struct train_data train_data;
/* Writes an example of those that were read. */
typedef void train_write(const train_data *data, const s24_example *example, int64_t index);
/* The examples from one on: those of the run, or those that are held out of it. */
typedef struct train_part {
    const train_data *data;
    int64_t first;
    train_write *write;
} train_part;

struct train_data {
    s24_text_source *texts, *held_texts;
    s24_qa *qa;
    s24_qa_features *features;
    int typed; /* the model tells question and context apart by their types */
    s24_stream *stream;
    int64_t window;   /* tokens of the stream's pieces */
    int32_t *lengths; /* of each */
    s24_images *images;
    s24_normalisation normalisation;
    int64_t *order; /* of the images, which come sorted by class */
    int unlabelled; /* the model has none of these */
    train_part parts[2];
    s24_train_source source, held_out;
    int64_t most; /* tokens of the longest */
};

/* Reads what --text, --qa, --stream or --images names, for the model of that description. Released
   by train_data_free, also after an error. */
int train_data_read(cli_app *cli, train_data *data, const struct train_options *o,
                    const s24_transformer_info *info);
void train_data_free(train_data *data);

/* Makes the sources of count examples, --held-out ones at the end; lengths NULL: of images. */
void train_split(train_data *data, const struct train_options *o, int64_t count,
                 const int32_t *lengths, train_write *write);
/* Refuses a file of no examples, or of none beside those held out. */
int train_held_out_check(cli_app *cli, const struct train_options *o, const char *path,
                         int64_t count);

/* --max-tokens, which the model's positions bound; else `most` or these, if fewer. */
int train_max_tokens(cli_app *cli, int64_t *tokens, const struct train_options *o, int64_t most,
                     int64_t positions);

/* Which of how many processes this is, as its launcher's environment says. */
typedef struct train_place {
    const char *launcher; /* NULL: there is none */
    int rank, world, local;
    const char *address; /* where rank 0 waits; NULL: not said */
    int port;
    char who[24], gpu[24]; /* what errors begin with; the device, where --device is cuda */
    cli_common common;     /* with that device */
} train_place;
/* The same, of a world of one where --comm is none; refuses several processes without --comm. Of
   several, rank 0 talks for all from here on; the others say errors, and which of them they are. */
int train_comm_check(cli_app *cli, const char *kind, train_place *place);
/* Opens what --comm names; *comm stays NULL where that is none. */
int train_comm_open(cli_app *cli, s24_comm **comm, const char *kind, const train_place *place);

/* --stream and --images (train_sets.c). */
int train_stream_read(cli_app *cli, train_data *data, const struct train_options *o,
                      int64_t positions);
int train_images_read(cli_app *cli, train_data *data, const struct train_options *o);

/* Fills the weights of the objective from --loss, or with the defaults of the task. */
int train_loss_read(cli_app *cli, s24_objective *objective, const struct train_options *o,
                    s24_head head);

/* Methods and their numbers, as --help has them. */
int train_method_entry(cli_entry *entry, int index);
/* Loss terms of a method that has its own, where --loss is not given. */
void train_method_loss(s24_objective *objective, const struct train_options *o);
/* --choose-masked-decay: makes the run's first steps with a decay after another, until masks change
   less often than those of dense training do, and puts --numbers with that one into `numbers`.
   `again` loads the model anew. */
typedef struct train_again {
    s24_transformer *(*load)(void *user, int *code);
    void *user;
} train_again;
int train_masked_decay_choose(cli_app *cli, char numbers[256], const struct train_options *o,
                              const s24_train_opts *opts, const s24_train_source *source,
                              const train_again *again);

#endif
