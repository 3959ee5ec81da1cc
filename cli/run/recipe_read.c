// SPDX-License-Identifier: Apache-2.0
/* Reads a recipe's file, of our own kind or llm-compressor's. */
#include <errno.h>
#include <string.h>

#include "run/recipe_reader.h"

static int read_root(recipe_reader *rd, const yaml_node_t *root)
{
    int code = recipe_check_mapping(rd, root, "a recipe");
    if (code != CLI_OK) return code;
    code = recipe_member(rd, root, "stages") ? recipe_read_own(rd, root)
                                             : recipe_read_foreign(rd, root);
    if (code != CLI_OK) return code;
    for (int i = 0; i < rd->recipe->count; i++)
        if (rd->recipe->stages[i].kind == RECIPE_MODEL) return CLI_OK;
    return recipe_fail(rd, root, CLI_FORMAT, "no stage makes a model");
}

static int fail_load(recipe_reader *rd, const yaml_parser_t *parser, FILE *file)
{
    const char *path = rd->recipe->path;
    if (ferror(file)) return cli_fail(rd->cli, CLI_IO, "cannot read %s: %s", path, strerror(errno));
    if (parser->error == YAML_MEMORY_ERROR)
        return cli_fail(rd->cli, CLI_IO, "out of memory for %s", path);
    return cli_fail(rd->cli, CLI_FORMAT, "%s:%zu: %s", path, parser->problem_mark.line + 1,
                    parser->problem ? parser->problem : "it cannot be read");
}

static int read_document(recipe_reader *rd, yaml_parser_t *parser, FILE *file)
{
    const char *path = rd->recipe->path;
    errno = 0;
    if (!yaml_parser_load(parser, &rd->document)) return fail_load(rd, parser, file);
    const yaml_node_t *root = yaml_document_get_root_node(&rd->document);
    const int code = root ? read_root(rd, root)
                          : cli_fail(rd->cli, CLI_FORMAT, "%s: there is nothing in it", path);
    yaml_document_delete(&rd->document);
    return code;
}

int recipe_read(cli_app *cli, recipe *r)
{
    recipe_reader rd = {.cli = cli, .recipe = r};
    yaml_parser_t parser;
    FILE *file = fopen(r->path, "rb");
    if (!file) return cli_fail(cli, CLI_IO, "%s: %s", r->path, strerror(errno));
    if (!yaml_parser_initialize(&parser)) {
        fclose(file);
        return cli_fail(cli, CLI_IO, "out of memory for %s", r->path);
    }
    yaml_parser_set_input_file(&parser, file);
    const int code = read_document(&rd, &parser, file);
    yaml_parser_delete(&parser);
    fclose(file);
    return code;
}
