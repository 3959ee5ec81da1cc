# SPDX-License-Identifier: Apache-2.0
"""The scanner finds what is planted, leaves alone what is allowed, and the tree itself is clean."""
import os
import pathlib
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["S24_SOURCE"])
sys.path.insert(0, str(SOURCE / "tools"))
import check_includes  # noqa: E402

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


class Scanner(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name)
        for name in ("include/sparse24/sparse24.h", "include/sparse24/nn.h", "src/base/base.h",
                     "src/kernel/kernel.h", "src/op/op.h", "src/io/io.h", "src/model/model_in.h"):
            self.write(name, SPDX)

    def write(self, name, text):
        path = self.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def errors(self, name, text):
        self.write(name, SPDX + text)
        return check_includes.check(self.tree, [pathlib.PurePosixPath(name)])[0]

    def test_wrong_direction(self):
        for name, header in (("src/base/a.c", "kernel/kernel.h"), ("src/kernel/a.c", "op/op.h"),
                             ("src/op/a.c", "sparse24/nn.h"), ("src/io/a.c", "base/base.h"),
                             ("src/io/a.c", "model/model_in.h"), ("src/model/a.c", "base/base.h"),
                             ("cli/a.c", "../src/base/base.h"), ("cli/b.c", "io/io.h"),
                             ("include/sparse24/a.h", "base/base.h")):
            with self.subTest(file=name, header=header):
                found = self.errors(name, f'\n#include "{header}"\n')
                self.assertEqual(len(found), 1, found)
                self.assertTrue(found[0].startswith(f"{name}:3: "), found)

    def test_right_direction(self):
        for name, header in (("src/op/a.c", "kernel/kernel.h"), ("src/model/a.c", "io/io.h"),
                             ("src/kernel/ref/a.c", "kernel/kernel.h"),
                             ("src/model/a.c", "sparse24/nn.h"), ("cli/a.c", "sparse24/nn.h"),
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
        errors, _ = check_includes.check(self.tree, [pathlib.PurePosixPath("src/op/a.c")])
        self.assertEqual(len(errors), 1)

    def test_sizes_warn(self):
        self.write("src/op/a.c", SPDX + "void f(void)\n{\n" + "    ;\n" * 61 + "}\n" + "\n" * 450)
        errors, warnings = check_includes.check(self.tree, [pathlib.PurePosixPath("src/op/a.c")])
        self.assertEqual((errors, len(warnings)), ([], 2))

    def test_this_tree(self):
        names = [p.relative_to(SOURCE) for room in ("include", "src", "cli", "examples", "tests")
                 for p in (SOURCE / room).rglob("*.[ch]")]
        errors, _ = check_includes.check(SOURCE, [pathlib.PurePosixPath(n) for n in names])
        self.assertEqual(errors, [])


if __name__ == "__main__":
    unittest.main()
