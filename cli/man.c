// SPDX-License-Identifier: Apache-2.0
/*
 * Writes the manual pages, as man(7), from the same tables as --help. Every text goes through
 * roff(), so that no sign of it is taken for a request.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli.h"

static const struct {
    int code;
    const char *text;
} exits[] = {
    {CLI_OK, "Done."},
    {CLI_NO, "The check says no."},
    {CLI_USAGE, "Usage: an unknown command, option or value, or a combination without meaning."},
    {CLI_IO, "Reading, writing, memory or disk; also an output that exists, without --force."},
    {CLI_FORMAT, "Malformed input."},
    {CLI_UNSUPPORTED, "Not supported here."},
    {CLI_INTERRUPTED, "Interrupted; nothing is left half-written."},
};

/* Writes text; a newline in it becomes a paragraph. */
static void roff(const char *text)
{
    int begins = 1;
    for (; *text; text++) {
        if (*text == '\n') {
            printf("\n.PP\n");
            begins = 1;
            continue;
        }
        if (begins && (*text == '.' || *text == '\'')) printf("\\&");
        begins = 0;
        if (*text == '\\')
            printf("\\e");
        else if (*text == '-')
            printf("\\-");
        else
            putchar(*text);
    }
}

static void line(const char *text)
{
    roff(text);
    putchar('\n');
}

/* Writes the page's head, its day SOURCE_DATE_EPOCH's when a build shall be repeatable, else
   today. */
static void head(const char *title)
{
    const char *epoch = getenv("SOURCE_DATE_EPOCH");
    time_t now = epoch && *epoch ? (time_t)strtoll(epoch, NULL, 10) : time(NULL);
    struct tm day;
    char date[32] = "";
    if (gmtime_r(&now, &day)) strftime(date, sizeof date, "%Y-%m-%d", &day);
    printf(".TH %s 1 %s \"sparse24 %s\" \"User Commands\"\n", title, date, S24_VERSION);
}

static void option_entry(const cli_given *all, const cli_option *option)
{
    char choices[256], rules[512];
    const char *value = option->argument;
    if (!value && option->choice) value = cli_choices(choices, sizeof choices, option->choice);
    printf(".TP\n\\fB");
    if (option->letter) printf("\\-%c\\fR, \\fB", option->letter);
    printf("\\-\\-");
    roff(option->name);
    printf("\\fR");
    if (value) {
        printf(" \\fI");
        roff(value);
        printf("\\fR");
    }
    putchar('\n');
    line(option->help);
    if (option->choice && option->argument) {
        printf("Of: ");
        line(cli_choices(choices, sizeof choices, option->choice));
    }
    if (*cli_rules_text(rules, sizeof rules, all, option)) line(rules);
    if (option->fallback) {
        printf("Default: ");
        line(option->fallback);
    }
}

static void exit_section(void)
{
    printf(".SH EXIT STATUS\n");
    for (size_t i = 0; i < sizeof exits / sizeof *exits; i++) {
        printf(".TP\n%d\n", exits[i].code);
        line(exits[i].text);
    }
}

static void entry_section(const cli_command *command)
{
    cli_entry entry;
    printf(".SH ");
    line(command->entries_title);
    for (int i = 0; command->entry(&entry, i); i++) {
        printf(".TP\n\\fB");
        roff(entry.name);
        printf("\\fR\n");
        line(entry.text);
        if (entry.detail) line(entry.detail);
    }
}

static void example(const cli_example *e, int first)
{
    if (!first) /* a paragraph of its own right after the heading would be an empty one */
        printf(".PP\n");
    line(e->text);
    printf(".PP\n.nf\n.RS\n");
    line(e->line);
    printf(".RE\n.fi\n");
}

void cli_man_command(const cli_command *command)
{
    const cli_option *list[CLI_MAX_OPTIONS];
    const int count = cli_option_collect(list, command);
    const cli_given all = {.command = command, .list = list, .count = count};
    char title[64];
    snprintf(title, sizeof title, "SPARSE24-%s", command->name);
    for (char *p = title; *p; p++)
        if (*p >= 'a' && *p <= 'z') *p = (char)(*p - 'a' + 'A');
    head(title);
    printf(".SH NAME\nsparse24\\-%s \\- ", command->name);
    line(command->summary);
    printf(".SH SYNOPSIS\n\\fBsparse24 %s\\fR [\\fIoptions\\fR]", command->name);
    printf(*command->operands ? " \\fI%s\\fR\n" : "%s\n", command->operands);
    printf(".SH DESCRIPTION\n");
    line(command->text);
    printf(".SH OPTIONS\n");
    for (int i = 0; i < count; i++)
        option_entry(&all, list[i]);
    if (command->entry) entry_section(command);
    exit_section();
    printf(".SH EXAMPLES\n");
    for (const cli_example *e = command->examples; e->line; e++)
        example(e, e == command->examples);
    printf(".SH SEE ALSO\n.BR sparse24 (1)\n");
}

void cli_man_program(const cli_command *const *commands)
{
    head("SPARSE24");
    printf(".SH NAME\nsparse24 \\- make the linear layers of a neural network 2:4 and run them "
           "faster\n.SH SYNOPSIS\n\\fBsparse24\\fR \\fIcommand\\fR [\\fIoptions\\fR] "
           "[\\fIoperands\\fR]\n.br\n\\fBsparse24\\fR \\fB\\-\\-version\\fR\n.SH DESCRIPTION\n");
    line(
        "A matrix is 2:4 when of every four consecutive weights of a row at most two are not zero. "
        "Such a matrix takes nearly half the room and half the work. sparse24 makes the linear "
        "layers of a model so, stores them packed in ordinary safetensors files, runs the model "
        "and measures it.\n"
        "IN, OUT and MODEL are a safetensors file or a Hugging Face folder, dense or packed "
        "alike. Data is written to standard output, everything else to standard error. With "
        "--json a command prints exactly one object, with \"version\": 1; when it fails, with "
        "\"exit\" and \"error\".");
    printf(".SH COMMANDS\n");
    for (; *commands; commands++) {
        printf(".TP\n.BR sparse24\\-%s (1)\n", (*commands)->name);
        line((*commands)->summary);
    }
    exit_section();
    printf(".SH ENVIRONMENT\n.TP\nNO_COLOR\nWhen not empty, no colours.\n"
           ".TP\nTMPDIR\nWhere \\fBbench\\fR keeps a pruned copy of a model while it runs.\n");
}
