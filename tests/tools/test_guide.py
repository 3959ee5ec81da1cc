# SPDX-License-Identifier: Apache-2.0
"""The pages that users read say what is true: links lead somewhere, code is the examples' code,
commands parse, and what a page shows in a terminal is what the program says, on a small model in
place of the one that the page was written with (so that numbers may differ, and nothing else)."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import textwrap
import unittest

import tiny_bert

SOURCE = pathlib.Path(os.environ["S24_SOURCE"])
BUILD = pathlib.Path(os.environ["S24_BUILD"])
PROGRAM = BUILD / "sparse24"
GUIDE = SOURCE / "docs/guide"
PAGES = sorted([*SOURCE.glob("*.md"), *SOURCE.glob("docs/**/*.md")])
READ_BY_USERS = [SOURCE / "README.md", *sorted(GUIDE.glob("*.md"))]
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.S | re.M)


def name(page):
    return str(page.relative_to(SOURCE))


def blocks(page, *languages):
    return [textwrap.dedent(text) for _, language, text in BLOCK.findall(page.read_text())
            if language in languages]


def anchors(page):
    """The headings of a page as links name them."""
    text = BLOCK.sub("", page.read_text())
    found = set()
    for heading in re.findall(r"^#+ +(.*)$", text, re.M):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        found.add(re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-"))
    return found


def shown(example):
    """The lines of a program between "shown: begin" and "shown: end", pieces an empty line apart."""
    pieces = re.findall(r"// shown: begin\n(.*?)^ *// shown: end", example.read_text(),
                        re.S | re.M)
    return "\n".join(textwrap.dedent(piece) for piece in pieces)


def session(page):
    """What a page shows in a terminal: each command with the lines that follow it."""
    for block in blocks(page, "console"):
        yield from re.findall(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", block, re.M)


def shows_an_error(output):
    return re.search(r'^sparse24( \w+)?: error: |^  "error": ', output, re.M) is not None


# Of the shell, outside of quotes.
OPERATOR = r"""\s*(?:\|\||&&|[|;&])\s*(?=(?:[^'"]*(?:'[^']*'|"[^"]*"))*[^'"]*$)"""
LAUNCHED = r"(?:(?:[A-Z_0-9]+=\S+|taskset|nice|mpirun|srun|torchrun|seq|xargs|time)\s(?:.*\s)?)?"


def command_lines(page):
    """Every call of the program that a page asks for, as operators of the shell part them."""
    commands = "".join(blocks(page, "sh")).replace("\\\n", " ").splitlines()
    commands += [command.replace("\\\n", " ") for command, output in session(page)
                 if not shows_an_error(output)]
    for line in commands:
        line = re.sub(r"(^|\s)#.*", "", line)
        for call in re.split(OPERATOR, line):
            found = re.match(LAUNCHED + r"sparse24 (.+)", call)
            if found:
                yield re.sub(r"\s\d?[<>]+ ?\S+", "", found.group(1)).strip()


# What stands for a value in a page, and a value.
STANDS_FOR = {"$S": "1,4,4", "M,K,N;…": "1,4,4", "DTYPE": "f32", "ISA": "baseline",
              "LEVEL": "baseline", "METHOD": "magnitude", "N": "1"}


def with_values(line):
    return re.sub(r"(?<= )(['\"]?)([^'\" ]+)\1(?= |$)",
                  lambda word: STANDS_FOR.get(word[2], word[0]), line)


def named_calls(page):
    """Commands in running text, with the options that are named there."""
    text = BLOCK.sub("", page.read_text())
    for command, rest in re.findall(r"`sparse24\s+([a-z]+)((?:\s[^`]*)?)`", text):
        yield command, re.findall(r"(?<!\S)--[a-z][a-z0-9-]*", rest)


def plain(line):
    """A line of output without what differs between models, between machines and between runs."""
    line = re.sub(r" \(\S+ \S+ of dense weights, where dense is faster; --sparse\)", "", line)
    line = re.sub(r"-?\d[\d.,]*(e[-+]?\d+)?( ?[kMG]?i?B\b)?", "0", line)
    return " ".join(line.split()).rstrip()


class Pages(unittest.TestCase):
    def test_links_lead_somewhere(self):
        for page in PAGES:
            text = BLOCK.sub("", page.read_text())
            for target in re.findall(r"\]\(([^)\s]+)\)", text):
                if re.match(r"https?:|mailto:", target):
                    continue
                with self.subTest(page=name(page), link=target):
                    path, _, anchor = target.partition("#")
                    found = (page.parent / path).resolve() if path else page
                    self.assertTrue(found.exists())
                    if anchor and found.suffix == ".md":
                        self.assertIn(anchor, anchors(found))

    def test_the_index_names_every_document(self):
        index = (SOURCE / "docs/README.md").read_text()
        named = {(SOURCE / "docs" / t).resolve()
                 for t in re.findall(r"\]\(([^)#\s]+)", index)}
        documents = {p for p in PAGES if p.parent in (SOURCE / "docs", GUIDE)}
        self.assertEqual({name(p) for p in documents - named - {SOURCE / "docs/README.md"}}, set())

    def test_code_is_the_examples_code(self):
        pages = set()
        for page in READ_BY_USERS:
            for example, code in re.findall(r"<!-- (examples/\w+\.c) -->\n```c\n(.*?)^```",
                                            page.read_text(), re.S | re.M):
                pages.add(name(page))
                with self.subTest(page=name(page), example=example):
                    self.assertEqual(shown(SOURCE / example), code)
        self.assertEqual(pages, {"README.md", "docs/guide/c.md"})

    def test_every_example_is_in_the_guide(self):
        text = "".join(page.read_text() for page in GUIDE.glob("*.md"))
        for example in sorted((SOURCE / "examples").glob("*.c")):
            self.assertIn(f"examples/{example.name}", text)


@unittest.skipUnless(PROGRAM.exists(), "built without the command line")
class Commands(unittest.TestCase):
    def test_commands_parse(self):
        """--help next to a command's words reads its options and their values, and runs nothing."""
        count = 0
        for page in PAGES:
            for line in map(with_values, command_lines(page)):
                count += 1
                with self.subTest(page=name(page), line=line):
                    done = subprocess.run(["sh", "-c", f'"{PROGRAM}" {line} --help'],
                                          capture_output=True, text=True, timeout=600)
                    self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(count, 100)

    def test_commands_in_running_text_are_there(self):
        helps = {}
        for page in PAGES:
            for command, options in named_calls(page):
                with self.subTest(page=name(page), command=command, options=options):
                    if command not in helps:
                        helps[command] = subprocess.run(
                            [PROGRAM, command, "--help"], capture_output=True, text=True,
                            timeout=600, check=True).stdout.split()
                    for option in options:
                        self.assertTrue({option, f"{option},"} & set(helps[command]), option)
        self.assertGreater(len(helps), 10)


@unittest.skipUnless(PROGRAM.exists(), "built without the command line")
class Terminal(unittest.TestCase):
    """Blocks of "console" are run in their order, a page in a folder of its own."""

    def prepare(self, folder):
        """The files that the pages start from, as quick-start.md makes them."""
        tiny_bert.write(folder / "minilm")
        (folder / "passages.txt").write_text("\n".join(tiny_bert.sentences(64)) + "\n")

    def check_page(self, page):
        parent = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, parent)
        folder = parent / "work"
        folder.mkdir()
        self.prepare(folder)
        env = dict(os.environ, PATH=f"{BUILD}:{os.environ['PATH']}", HOME=str(parent),
                   XDG_CACHE_HOME=str(parent / "cache"), LC_ALL="C.UTF-8")
        for command, output in session(page):
            with self.subTest(page=name(page), command=command):
                done = subprocess.run(["bash", "-c", command], cwd=folder, env=env, text=True,
                                      capture_output=True, timeout=600)
                said = done.stdout + done.stderr
                lines = {plain(line) for line in said.splitlines()}
                for line in output.splitlines():
                    if line.strip() != "…":
                        self.assertIn(plain(line), lines, said)
                self.assertEqual(done.returncode != 0, shows_an_error(output), said)


def add_page(page):
    def test(self):
        self.check_page(page)
    setattr(Terminal, f"test_{page.stem.replace('-', '_')}", test)


for _page in READ_BY_USERS:
    if blocks(_page, "console"):
        add_page(_page)

if __name__ == "__main__":
    unittest.main()
