# SPDX-License-Identifier: Apache-2.0
"""Help, manual pages and completion say the same; usage errors name what was wrong."""
import pathlib
import re
import shutil
import subprocess
import unittest

from cli_case import BUILD, COMMANDS, SOURCE, Scratch, one_object, run

COMMON = {"threads", "isa", "device", "json", "quiet", "help"}
WRITERS = {"tutorial", "prune", "train", "convert", "pack", "unpack", "embed", "eval", "bench",
           "run", "sensitivity", "join"}


def options_of(command):
    """Long options as --help lists them."""
    return set(re.findall(r"^  (?:-\w, )?--([a-z-]+)", run("help", command).stdout, re.M))


class Help(unittest.TestCase):
    def test_every_command_has_help_that_begins_with_examples(self):
        for command in COMMANDS:
            with self.subTest(command):
                text = run("help", command).stdout
                self.assertEqual(run(command, "--help").stdout, text)
                self.assertEqual(run(command, "-h").stdout, text)
                self.assertLess(text.index("Examples:"), text.index("Usage:"))
                self.assertIn(f"  sparse24 {command}", text)
                self.assertGreaterEqual(options_of(command), COMMON)
                self.assertEqual("force" in options_of(command), command in WRITERS)
                self.assertLessEqual(max(map(len, text.splitlines())), 100)

    def test_rules_name_options_of_their_command_and_help_tells_them(self):
        rule = re.compile(r'\{CLI_(NEEDED|ONE_OF|ONLY_WITH|NOT_WITH),\s*"([^"]*)",\s*'
                          r'(?:"([^"]*)"|NULL)')
        found = 0
        for path in sorted((SOURCE / "cli").rglob("cmd_*.c")):
            command = path.stem.removeprefix("cmd_")
            for kind, options, others in rule.findall(path.read_text()):
                text = run("help", command).stdout
                named = {word.split("=")[0] for word in f"{options} {others}".split()}
                self.assertLessEqual(named, options_of(command), path)
                said = {"NEEDED": "Needed.", "ONLY_WITH": "nly with --"}.get(kind, "ot with --")
                for option in options.split():
                    entry = re.search(rf"^  (?:-\w, )?--{option.split('=')[0]}( .*)?\n"
                                      r"((?:      .*\n)+)", text, re.M)
                    self.assertIn(said, " ".join(entry.group(2).split()), option)
                    found += 1
        self.assertGreater(found, 10)

    def test_the_program_lists_every_command(self):
        text = run("help").stdout
        self.assertEqual(run("--help").stdout, text)
        for command in COMMANDS:
            self.assertRegex(text, rf"(?m)^  {command} ")

    def test_a_page_for_every_command_with_every_option_and_no_other(self):
        for command in COMMANDS:
            with self.subTest(command):
                page = (BUILD / f"man/man1/sparse24-{command}.1").read_text()
                listed = re.findall(r"^\.TP\n\\fB(?:\\-\w\\fR, \\fB)?\\-\\-([a-z\\-]+)\\fR", page,
                                    re.M)
                self.assertEqual({o.replace("\\-", "-") for o in listed}, options_of(command))
        page = (BUILD / "man/man1/sparse24.1").read_text()
        for command in COMMANDS:
            self.assertIn(f"sparse24\\-{command} (1)", page)
        for code in (0, 1, 2, 3, 4, 5, 130):
            self.assertIn(f".TP\n{code}\n", page)

    @unittest.skipUnless(shutil.which("mandoc"), "mandoc is not here")
    def test_pages_pass_the_lint(self):
        pages = sorted((BUILD / "man/man1").glob("*.1"))
        self.assertEqual(len(pages), len(COMMANDS) + 1)
        for page in pages:
            with self.subTest(page.name):
                done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", page],
                                      capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_a_page_of_a_given_day_is_the_same_every_time(self):
        page = run("help", "--man", "prune", environment={"SOURCE_DATE_EPOCH": "86400"}).stdout
        self.assertTrue(page.startswith(".TH SPARSE24-PRUNE 1 1970-01-02 "), page[:60])

    @unittest.skipUnless(shutil.which("bash"), "bash is not here")
    def test_completion_offers_every_command_option_and_choice(self):
        def complete(*words):
            script = (f". '{BUILD}/completions/sparse24'\n"
                      f"COMP_WORDS=({' '.join(map(repr, words))})\n"
                      f"COMP_CWORD={len(words) - 1}\n_sparse24\necho \"${{COMPREPLY[@]}}\"")
            done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
            self.assertEqual(done.stderr, "")
            return set(done.stdout.split())

        self.assertEqual(complete("sparse24", ""), set(COMMANDS) | {"--help", "--version"})
        for command in COMMANDS:
            self.assertEqual(complete("sparse24", command, "--"),
                             {"--" + o for o in options_of(command)})
        self.assertEqual(complete("sparse24", "prune", "--method", ""),
                         {"magnitude", "wanda", "sparsegpt", "alps", "ria", "nowag",
                          "low-rank-residual", "activation-norm", "block-norm", "movement",
                          "snip", "taylor-first", "taylor-second", "random", "tile-best",
                          "tile-greedy", "tile-signed", "tile-causal1122"})
        self.assertEqual(complete("sparse24", "prune", "--method", "sp"), {"sparsegpt"})
        self.assertEqual(complete("sparse24", "bench", "--set", "b"), {"bert-base"})
        self.assertEqual(complete("sparse24", "help", "unp"), {"unpack"})
        self.assertEqual(complete("sparse24", "check", "f"), set(), "then files complete")

    def test_zsh_is_offered_every_command_option_and_choice(self):
        script = (BUILD / "completions/_sparse24").read_text()
        self.assertTrue(script.startswith("#compdef sparse24\n"))
        self.assertEqual(re.findall(r"^        '([a-z]+):", script, re.M), list(COMMANDS))
        cases = dict(re.findall(r"^    ([a-z]+)\)\n(.*?) ;;$", script, re.M | re.S))
        for command in COMMANDS:
            with self.subTest(command):
                offered = re.findall(r"^ +(?:'\(-\w --[a-z-]+\)'\{-\w\+?,|')--([a-z-]+)",
                                     cases[command], re.M)
                self.assertEqual(sorted(offered), sorted(options_of(command)))
        self.assertIn("'--method=[How to prune]:METHOD:(magnitude wanda sparsegpt ",
                      cases["tutorial"])
        self.assertIn("'(-f --force)'{-f,--force}'[", cases["prune"])
        self.assertIn(":_sequence compadd - f32 bf16 ", cases["bench"])
        self.assertIn("'1:command:", cases["help"])

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not here")
    def test_zsh_reads_its_script(self):
        done = subprocess.run(["zsh", "-n", BUILD / "completions/_sparse24"], capture_output=True,
                              text=True)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_fish_is_offered_every_command_option_and_choice(self):
        script = (BUILD / "completions/sparse24.fish").read_text()
        self.assertEqual(re.findall(r"-n __sparse24_bare -f -a ([a-z]+)", script), list(COMMANDS))
        for command in COMMANDS:
            with self.subTest(command):
                offered = re.findall(rf"-n '__sparse24_is {command}' -l ([a-z-]+)", script)
                self.assertEqual(sorted(offered), sorted(options_of(command)))
        self.assertIn("-n '__sparse24_is prune' -l method -x -a 'magnitude wanda ", script)

    @unittest.skipUnless(shutil.which("fish"), "fish is not here")
    def test_fish_completes(self):
        def complete(line):
            script = f"source '{BUILD}/completions/sparse24.fish'; complete -C '{line}'"
            done = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True,
                                  text=True,
                                  cwd=BUILD / "completions")
            self.assertEqual(done.stderr, "")
            return {entry.split("\t")[0] for entry in done.stdout.splitlines()}

        self.assertEqual(complete("sparse24 "), set(COMMANDS))
        self.assertEqual(complete("sparse24 unp"), {"unpack"})
        self.assertGreaterEqual(complete("sparse24 prune --"),
                                {"--" + o for o in options_of("prune")})
        self.assertEqual(complete("sparse24 prune --method sp"), {"sparsegpt"})
        self.assertEqual(complete("sparse24 prune --dtype=b"), {"--dtype=bf16"})
        self.assertIn("f32,bf16", complete("sparse24 bench --dtype f32,"))
        self.assertEqual(complete("sparse24 help unp"), {"unpack"})
        self.assertIn("sparse24.fish", complete("sparse24 check "), "then files complete")

    def test_version(self):
        header = (SOURCE / "include/sparse24/sparse24.h").read_text()
        version = re.search(r'#define S24_VERSION +"(.*)"', header).group(1)
        done = run("--version")
        self.assertEqual((done.returncode, done.stdout.splitlines()[0]), (0, f"sparse24 {version}"))
        try:
            flags = pathlib.Path("/proc/cpuinfo").read_text().split()
        except OSError:
            flags = []
        self.assertEqual("amx" in done.stdout.lower(), "amx_tile" in flags, done.stdout)


class Usage(Scratch):
    def test_run_bare_it_says_how_in_few_lines(self):
        done = run()
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertLessEqual(len(done.stderr.splitlines()), 4)
        for command in COMMANDS:
            self.assertIn(f" {command}", done.stderr)
        done = run("prune")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("usage: sparse24 prune [options] IN OUT", done.stderr)

    def test_wrong_words(self):
        self.refusals([
            ("typo", ["chekc", "x"], 2, r"no command 'chekc'; did you mean 'check'\?"),
            ("unknown command", ["frobnicate"], 2, r"no command 'frobnicate'; 'sparse24 help'"),
            ("option first", ["--quiet", "check"], 2, r"first word is a command, not .*'--quiet'"),
            ("option typo", ["check", "--incldue", "y", "f"], 2,
             r"no option '--incldue'; did you mean '--include'\?"),
            ("unknown option", ["check", "--frobnicate", "f"], 2,
             r"no option '--frobnicate'; 'sparse24 check --help'"),
            ("unknown letter", ["check", "-z", "f"], 2, r"no option '-z'"),
            ("a flag with a value", ["check", "--json=5", "f"], 2, r"option --json takes no value"),
            ("half a name of two options", ["prune", "--d", "f32", "f", "g"], 2,
             r"option '--d' is short for more than one: --dtype, --device"),
            ("the beginning of a name", ["prune", "--samp=x", "f", "g"], 2,
             r"option --samp: 'x' is not a whole number of at least 1"),
            ("a letter with its value", ["search", "f", "-k0"], 2,
             r"option -k: '0' is not a whole number of at least 1"),
            ("a letter and its value", ["search", "f", "-k", "many"], 2,
             r"option -k: 'many' is not"),
            ("the letter's long name", ["search", "f", "--count", "many"], 2,
             r"option --count: 'many' is not"),
            ("an empty name", ["embed", "f", "-o", ""], 2,
             r"option -o: expected FILE\S*, not an empty word"),
            ("fewer than no threads", ["check", "f", "--threads", "-1"], 2,
             r"--threads: '-1' is not a whole number of at least 1"),
            ("empty value", ["check", "f", "--include", ""], 2, r"--include: expected GLOB"),
            ("unknown isa", ["check", "f", "--isa", "sse9"], 2,
             r"--isa: 'sse9' is not one of baseline\|avx2\|avxvnni\|avx512"),
            ("unknown dtype", ["embed", "f", "--dtype", "f64"], 2,
             r"--dtype: 'f64' is not one of f32\|f16\|bf16\|i8"),
            ("unknown method", ["prune", "f", "g", "--method", "luck"], 2,
             r"--method: 'luck' is not one of magnitude\|wanda\|sparsegpt"),
            ("unknown dtype of a list", ["bench", "--dtype", "f32,f64"], 2,
             r"--dtype: 'f32,f64' is not a list, separated by commas, of f32\|bf16"),
            ("half a list", ["bench", "--threads", "1,"], 2, r"--threads: '1,' is not a list"),
            ("zero threads", ["check", "f", "--threads", "0"], 2,
             r"--threads: '0' is not a whole number of at least 1"),
            ("threads in words", ["check", "f", "--threads", "two"], 2, r"--threads: 'two' is not"),
            ("too many threads", ["check", "f", "--threads", "1025"], 2, r"1025 is more than"),
            ("overflowing count", ["check", "f", "--threads", "99999999999999999999"], 2,
             r"--threads: '99999999999999999999' is not"),
            ("needed options", ["search", "f", "--query", "x"], 2,
             r"search needs --documents FILE or --images FOLDER"),
            ("a needed option", ["search", "f", "--documents", "d"], 2,
             r"search needs --query TEXT"),
            ("lines and images",
             ["search", "f", "--query", "x", "--documents", "d", "--images", "i"], 2,
             r"--documents and --images exclude each other"),
            ("images in a stream", ["embed", "f", "--images", "i", "--stream"], 2,
             r"--images.*--stream"),
            ("both ways",
             ["search", "f", "--query", "x", "--documents", "d", "--sparse", "--dense"], 2,
             r"--sparse and --dense exclude each other"),
            ("cuda", ["info", "f", "--device", "cuda"], 5, r"--device cuda: .*CPU only"),
            ("second cuda", ["info", "f", "--device", "cuda:1"], 5, r"--device cuda:1: "),
            ("f32 on cuda", ["bench", "--dtype", "f32", "--device", "cuda"], 5,
             r"--dtype f32: .*--device cuda"),
            ("f16 on the CPU", ["bench", "--dtype", "f16"], 5, r"--dtype f16: .*--device cpu"),
            ("16 bits on the CPU", ["train", "f", "g", "--text", "t", "--dtype", "bf16"], 5,
             r"--dtype bf16: on the CPU training runs in f32"),
            ("prune on cuda", ["bench", "--device", "cuda", "--prune", "1"], 5,
             r"--device cuda: --prune runs on the CPU only"),
            ("unknown device", ["check", "f", "--device", "tpu"], 2,
             r"--device: 'tpu' is not one of cpu\|cuda\[:i\]"),
            ("force where nothing is written", ["check", "f", "--force"], 2,
             r"no option '--force'"),
            ("too few operands", ["pack", "f"], 2, r"pack needs IN OUT, got only 'f'"),
            ("too many operands", ["info", "f", "g"], 2,
             r"info takes IN and no more; 'g' is one too many"),
            ("no operand", ["bench", "f"], 2,
             r"bench takes no operand; did you mean --model 'f'\?"),
            ("texts as an operand", ["embed", "f", "texts.txt"], 2,
             r"embed takes MODEL and no more; did you mean --input 'texts.txt'\?"),
            ("documents as an operand", ["search", "f", "notes.txt", "--query", "q"], 2,
             r"did you mean --documents 'notes.txt'\?"),
            ("passages as an operand", ["prune", "f", "g", "passages.txt"], 2,
             r"prune takes IN OUT and no more; did you mean --calibration 'passages.txt'\?"),
            ("help of nothing", ["help", "frobnicate"], 2, r"no command 'frobnicate'"),
            ("help of a slip", ["help", "prun"], 2, r"no command 'prun'; did you mean 'prune'\?"),
        ])

    def test_an_option_at_the_end_without_its_value(self):
        for words in (["check", "f", "--include"], ["search", "f", "-k"]):
            done = run(*words)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(f"option {words[-1]} needs a value", done.stderr)

    def test_three_ways_to_ask_for_the_version(self):
        done = run("--version")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"(?m)^sparse24 \d+\.\d+\.\d+$")
        for word in ("-V", "version"):
            other = run(word)
            self.assertEqual((other.returncode, other.stdout), (0, done.stdout), other.stderr)

    def test_options_end_where_they_are_said_to(self):
        done = run("info", "--", "--json", cwd=self.folder)
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertIn("--json", done.stderr)

    def test_no_colour_where_nobody_looks(self):
        self.assertNotIn("\033", run("nothing").stderr)

    def test_errors_are_said_even_when_quiet(self):
        done = run("info", "--quiet", "--json", "missing", cwd=self.folder)
        self.assertEqual(done.returncode, 3)
        self.assertIn("missing", done.stderr)
        self.assertEqual(one_object(done.stdout)["exit"], 3)


if __name__ == "__main__":
    unittest.main()
