# SPDX-License-Identifier: Apache-2.0
"""The scanner finds what is planted, leaves alone what is allowed, and the tree itself is clean."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["S24_SOURCE"])
sys.path.insert(0, str(SOURCE / "tools"))
import check_tree  # noqa: E402

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


class Scanner(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name)
        for name in ("include/sparse24/sparse24.h", "include/sparse24/nn.h", "src/base/base.h",
                     "src/kernel/kernel.h", "src/op/op.h", "src/io/io.h", "src/model/model_in.h",
                     "src/device/device_layers.h", "src/device/device_table.h"):
            self.write(name, SPDX)

    def write(self, name, text):
        path = self.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def errors(self, name, text):
        self.write(name, SPDX + text)
        return check_tree.check(self.tree, [pathlib.PurePosixPath(name)])[0]

    def test_wrong_direction(self):
        for name, header in (("src/base/a.c", "kernel/kernel.h"), ("src/kernel/a.c", "op/op.h"),
                             ("src/op/a.c", "sparse24/nn.h"), ("src/io/a.c", "base/base.h"),
                             ("src/io/a.c", "model/model_in.h"), ("src/model/a.c", "base/base.h"),
                             ("cli/a.c", "../src/base/base.h"), ("cli/b.c", "io/io.h"),
                             ("src/io/a.c", "device/device_layers.h"),
                             ("cli/a.c", "device/device_layers.h"),
                             ("python/src/a.c", "base/base.h"),
                             ("src/run/a.c", "device/device_table.h"),
                             ("include/sparse24/a.h", "base/base.h")):
            with self.subTest(file=name, header=header):
                found = self.errors(name, f'\n#include "{header}"\n')
                self.assertEqual(len(found), 1, found)
                self.assertTrue(found[0].startswith(f"{name}:3: "), found)

    def test_right_direction(self):
        for name, header in (("src/op/a.c", "kernel/kernel.h"), ("src/model/a.c", "io/io.h"),
                             ("src/kernel/ref/a.c", "kernel/kernel.h"),
                             ("src/model/a.c", "sparse24/nn.h"), ("cli/a.c", "sparse24/nn.h"),
                             ("python/src/a.c", "sparse24/nn.h"),
                             ("src/run/gpu/a.c", "device/device_layers.h"),
                             ("cli/bench/gpu/a.c", "device/device_layers.h"),
                             ("tests/test_a.c", "base/base.h")):
            with self.subTest(file=name, header=header):
                self.assertEqual(self.errors(name, f'#include "{header}"\n'), [])

    def test_unknown_room(self):
        self.assertEqual(len(self.errors("src/attic/a.c", '#include "base/base.h"\n')), 1)

    def test_forbidden_calls(self):
        for call in ('printf("x")', 'fprintf(stderr, "x")', "exit(1)", "abort ()", 'getenv("A")',
                     'perror("x")'):
            with self.subTest(call):
                self.assertEqual(len(self.errors("src/op/a.c", f"void f(void) {{ {call}; }}\n")), 1)
                self.assertEqual(self.errors("cli/a.c", f"void f(void) {{ {call}; }}\n"), [])

    def test_harmless_look_alikes(self):
        for text in ("// printf(x) is not called\n", '/* exit(1) */ const char *s = "abort()";\n',
                     'void f(char *s) { snprintf(s, 2, "x"); on_exit_code(1); p->exit(0); }\n'):
            with self.subTest(text):
                self.assertEqual(self.errors("src/op/a.c", text), [])

    def test_licence(self):
        self.write("src/op/a.c", "int x;\n")
        errors, _, _ = check_tree.check(self.tree, [pathlib.PurePosixPath("src/op/a.c")])
        self.assertEqual(len(errors), 1)

    def test_sizes_warn(self):
        self.write("src/op/a.c", SPDX + "void f(void)\n{\n" + "    ;\n" * 61 + "}\n" + "\n" * 450)
        errors, warnings, _ = check_tree.check(self.tree, [pathlib.PurePosixPath("src/op/a.c")])
        self.assertEqual((errors, len(warnings)), ([], 2))

    def test_columns(self):
        for name in ("src/op/a.c", "src/op/a.def", "tools/a.py", "tools/a.sh", "a/CMakeLists.txt"):
            with self.subTest(name):
                self.write(name, f"# {SPDX}{'é' * 100}\n{'x' * 101}\n")
                found = check_tree.check(self.tree, [pathlib.PurePosixPath(name)])[0]
                self.assertEqual(found, [f"{name}:3: 101 columns, more than 100"])
        self.write("docs/a.md", "x" * 300)
        self.assertEqual(check_tree.check(self.tree, [pathlib.PurePosixPath("docs/a.md")])[0], [])

    def test_parameters(self):
        seven = "int a, int b, int c, int (*d)(int, int), int e, int f,\n int g"
        six = "int a, int b, int c, int (*d)(int, int), int e, int f"
        for text, count in ((f"static int f({seven})\n{{\n}}\n", 1), (f"int f({seven});\n", 1),
                            (f'extern "C" {{\nint f({seven});\n}}\n', 1),
                            (f"__attribute__((format(printf, 1, 2))) int f({seven});\n", 1),
                            (f"static int f({six})\n{{\n  g(1, 2, 3, 4, 5, 6, 7);\n}}\n", 0),
                            (f"struct t {{\n  int (*f)({seven});\n}};\n", 0),
                            ("#define M(a, b, c, d, e, f, g) \\\n int f(a, b, c, d, e, f, g);\n", 0),
                            ("static const int a[] = {F(1, 2, 3, 4, 5, 6, 7)};\n", 0),
                            ("ROW(1, 2, 3, 4, 5, 6, 7);\n", 0)):
            with self.subTest(text):
                found = self.errors("src/op/a.c", text)
                self.assertEqual(len(found), count, found)
                self.assertEqual(self.errors("src/kernel/a.c", text), [])
        self.assertIn(":3: f has 7 parameters", self.errors("src/op/a.c", f"\nint f({seven});")[0])
        kernel = f"static __global__ void f({seven})\n{{\n}}\n"
        self.assertEqual(self.errors("src/cuda/a.cu", kernel), [])

    def test_names_are_unique(self):
        files = [pathlib.PurePosixPath(n) for n in ("src/op/a.c", "tests/op/a.c", "src/op/a.h",
                                                    "examples/a.c", "src/CMakeLists.txt",
                                                    "tests/CMakeLists.txt", "tests/op/a.json")]
        self.assertEqual(list(check_tree.names(files)), [(
            files[1], "the name of src/op/a.c too; names of sources are unique in the tree")])

    def test_known_faults_may_only_fall(self):
        long = f"// {'x' * 100}\n"
        self.write("tools/check_tree.allow", "# why\ncolumns src/op/a.c 2\ncolumns src/gone.c 1\n")
        files = [pathlib.PurePosixPath("src/op/a.c")]
        for count, errors, warnings in ((1, 0, 1), (2, 0, 0), (3, 3, 0)):
            with self.subTest(count):
                self.write("src/op/a.c", SPDX + long * count)
                found = check_tree.check(self.tree, files)
                self.assertEqual((len(found[0]), len(found[1])), (errors, warnings), found)
                self.assertEqual(found[2]["columns", "src/op/a.c"], count)
        allow = self.tree / "tools/check_tree.allow"
        check_tree.lower(self.tree, {("columns", "src/op/a.c"): 5, ("columns", "src/gone.c"): 0})
        self.assertEqual(allow.read_text(), "# why\ncolumns src/op/a.c 2\n")
        check_tree.lower(self.tree, {("columns", "src/op/a.c"): 1})
        self.assertEqual(allow.read_text(), "# why\ncolumns src/op/a.c 1\n")

    def test_subjects(self):
        def git(day, *words):
            subprocess.run(["git", "-C", str(self.tree), "-c", "user.name=A", "-c",
                            "user.email=a@b", *words], check=True, capture_output=True,
                           env=dict(os.environ, GIT_COMMITTER_DATE=f"{day}T12:00:00Z"))

        self.assertEqual(list(check_tree.subjects(self.tree)), [])
        if not shutil.which("git"):
            self.skipTest("there is no git here to make commits with")
        before, after = "2026-11-23", "2026-11-24"
        git(before, "init", "-q")
        git(before, "commit", "-q", "--allow-empty", "-m", "Whatever it was called before.")
        self.assertEqual(list(check_tree.subjects(self.tree)), [])
        for subject, faults in (("op: say which row is refused", 0), ("op, run: say it once", 0),
                                ("op: " + "x" * 68, 0), ("op: " + "x" * 69, 1), ("Say it", 1),
                                ("op: say it.", 1), ("Op: say it", 1), ("op: a better way", 1),
                                ("op:say it", 1)):
            with self.subTest(subject):
                git(after, "commit", "-q", "--allow-empty", "-m", subject)
                self.assertEqual(len(list(check_tree.subjects(self.tree))), faults)
                git(after, "reset", "-q", "--soft", "HEAD~")

    def test_this_tree(self):
        names = [p.relative_to(SOURCE) for room in ("include", "src", "cli", "examples", "tests")
                 for p in (SOURCE / room).rglob("*") if p.suffix in check_tree.SOURCES]
        errors, _, _ = check_tree.check(SOURCE, [pathlib.PurePosixPath(n) for n in names])
        self.assertEqual(errors, [])


if __name__ == "__main__":
    unittest.main()
