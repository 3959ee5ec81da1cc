// SPDX-License-Identifier: Apache-2.0
/*
 * A recipe. Whatever it is, it is refused with a sentence that begins with the file's name, or
 * becomes stages of known commands whose options these take. The commands are made up: each has
 * options of the types that there are, and those that llm-compressor's recipes become.
 */
#include "fuzz.h"

#include <string.h>

#include "program_errors.h"
#include "run/recipe.h"

struct fuzz_options {
    cli_common common;
    const char *text;
    int64_t count;
    double real;
    int flag;
};

#define TEXT(name)                                                                                 \
    {                                                                                              \
        name, 0, CLI_TEXT, offsetof(struct fuzz_options, text), "X", NULL, "", NULL                \
    }
static const cli_option options[] = {
    TEXT("method"),
    TEXT("pattern"),
    TEXT("calibration"),
    TEXT("include"),
    TEXT("exclude"),
    {"quantize", 0, CLI_CHOICE, offsetof(struct fuzz_options, text), NULL, NULL, "",
     cli_scheme_name},
    {"packed", 0, CLI_FLAG, offsetof(struct fuzz_options, flag), NULL, NULL, "", NULL},
    {"refine", 0, CLI_LIST, offsetof(struct fuzz_options, text), NULL, NULL, "", cli_scheme_name},
    {"batch", 0, CLI_COUNTS, offsetof(struct fuzz_options, text), "LIST", NULL, "", NULL},
    {"steps", 0, CLI_COUNT, offsetof(struct fuzz_options, count), "N", "1", "", NULL},
    {"share", 0, CLI_REAL, offsetof(struct fuzz_options, real), "X", "0", "", NULL},
    {NULL, 0, CLI_FLAG, 0, NULL, NULL, NULL, NULL}};
static const cli_rule rules[] = {{CLI_NOT_WITH, "steps", "packed", "counts"},
                                 {CLI_ONE_OF, NULL, NULL, NULL}};

#define COMMAND(n, o)                                                                              \
    {                                                                                              \
        .name = n, .operands = o, .options = options, .rules = rules,                              \
        .options_bytes = sizeof(struct fuzz_options)                                               \
    }
static const cli_command list[] = {COMMAND("prune", "IN OUT"),
                                   COMMAND("train", "MODEL OUT"),
                                   COMMAND("pack", "IN OUT"),
                                   COMMAND("unpack", "IN OUT"),
                                   COMMAND("convert", "IN OUT"),
                                   COMMAND("eval", "MODEL"),
                                   COMMAND("bench", ""),
                                   COMMAND("sensitivity", "MODEL"),
                                   COMMAND("run", "RECIPE MODEL OUT")};
enum { COMMANDS = (int)(sizeof list / sizeof *list) };

/* ---- what the program has elsewhere ---------------------------------------------------------- */

const cli_command *cli_command_find(const cli_app *cli, const char *name)
{
    (void)cli;
    for (int i = 0; i < COMMANDS; i++)
        if (!strcmp(list[i].name, name)) return &list[i];
    return NULL;
}

int cli_distance(const char *a, const char *b)
{
    return strcmp(a, b) ? 3 : 0;
}

/* ---- the target ------------------------------------------------------------------------------ */

static void check_stages(const recipe *r)
{
    int models = 0;
    CHECK(r->count > 0 && r->count <= RECIPE_STAGES);
    for (int i = 0; i < r->count; i++) {
        const recipe_stage *stage = &r->stages[i];
        models += stage->kind == RECIPE_MODEL;
        CHECK(stage->command && stage->line > 0 && !stage->options.overflows);
        CHECK(!stage->compared || stage->kind == RECIPE_MEASURE);
        for (int k = 0; k < stage->options.count; k++)
            CHECK(!strncmp(stage->options.list[k], "--", 2));
    }
    CHECK(models > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    cli_common common = {.threads = 0};
    cli_app cli = {.command = &list[COMMANDS - 1], .common = &common};
    static recipe *r; /* a megabyte, of which only the stages that were used are cleared */
    if (!r) r = calloc(1, sizeof *r);
    CHECK(r);
    r->path = fuzz_expected = fuzz_put("recipe.yaml", data, bytes);
    r->model = "model";
    r->out = "out";
    r->calibration = bytes % 2 ? "passages" : NULL;
    fuzz_said = 0;
    const int code = recipe_read(&cli, r);
    CHECK(fuzz_said == (code != CLI_OK));
    if (code == CLI_OK) check_stages(r);
    memset(r->stages, 0, sizeof *r->stages * (size_t)r->count);
    r->count = r->iterates = 0;
    return 0;
}
