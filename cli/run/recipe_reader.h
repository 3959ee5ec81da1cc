// SPDX-License-Identifier: Apache-2.0
/* Declares how a recipe's YAML becomes stages: what sparse24's own recipes and llm-compressor's
   have in common. */
#ifndef SPARSE24_CLI_RUN_RECIPE_READER_H
#define SPARSE24_CLI_RUN_RECIPE_READER_H

#include <yaml.h>

#include "run/recipe.h"

typedef struct recipe_reader {
    cli_app *cli;
    recipe *recipe;
    yaml_document_t document;
    int compared;    /* 1: in `measure` */
    int iterate;     /* of the stages at hand; 0: none */
    int64_t round;   /* of that, from 1 */
    double share;    /* that it reaches */
    char where[512]; /* of the error at hand */
} recipe_reader;

/* Fails with a sentence that begins with file and line of the node. Returns exit_code. */
int recipe_fail(recipe_reader *reader, const yaml_node_t *at, int exit_code, const char *format,
                ...) __attribute__((format(printf, 4, 5)));
const yaml_node_t *recipe_node(recipe_reader *reader, int id);
/* Gives a scalar's text; NULL of any other node, and where it has a zero byte. */
const char *recipe_text(const yaml_node_t *node);
/* Gives the value of a mapping's key; NULL where it has none. */
const yaml_node_t *recipe_member(recipe_reader *reader, const yaml_node_t *map, const char *key);
/* Refuses what is no mapping, keys that are no text, and keys that stand there twice. */
int recipe_check_mapping(recipe_reader *reader, const yaml_node_t *map, const char *what);

/* Begin a stage of a command, give it options, and end it: refuse what the command would. */
int recipe_begin(recipe_reader *reader, recipe_stage **stage, const char *command,
                 const yaml_node_t *at);
int recipe_option(recipe_reader *reader, recipe_stage *stage, const char *name, const char *value,
                  const yaml_node_t *at);
int recipe_end(recipe_reader *reader, recipe_stage *stage, const yaml_node_t *at);

/* Reads stages, and what is measured next to the dense model. */
int recipe_read_own(recipe_reader *reader, const yaml_node_t *root);
/* Reads llm-compressor's recipe: stages of modifiers. */
int recipe_read_foreign(recipe_reader *reader, const yaml_node_t *root);

#endif
