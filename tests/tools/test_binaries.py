# SPDX-License-Identifier: Apache-2.0
"""Every program, shared library and module of the build tree and of an installed one: where the
loader looks for what they need, and what compiler and linker made against attacks (S24_HARDEN)."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import elf

BUILD = pathlib.Path(os.environ["S24_BUILD"])
# Not compiled by this tree's rules: an archive of Debian's that is made loadable for bench.
FOREIGN = ("libxsmm.so",)
HARDENED = os.environ["S24_HARDEN"] == "ON"
OPTIMISED = os.environ["S24_BUILD_TYPE"] in ("Release", "RelWithDebInfo", "MinSizeRel")
ENDBR64 = b"\xf3\x0f\x1e\xfa"


def run(*command, **options):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)


class Binaries(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.prefix = cls.folder / "prefix"
        cls.install = run("cmake", "--install", BUILD, "--prefix", cls.prefix)
        cls.built = elf.binaries(BUILD, without=("CMakeFiles", "install-test", "examples-test",
                                                 "package-test"))
        cls.installed = elf.binaries(cls.prefix)

    def programs(self):
        found = [p for p in (BUILD / "sparse24", self.prefix / "bin/sparse24") if p.exists()]
        if not found:
            self.skipTest("built without the command line")
        return found

    def test_there_are_some(self):
        self.assertEqual(self.install.returncode, 0, self.install.stderr)
        self.assertGreater(len(self.built), 5)

    def test_the_loader_looks_in_no_relative_folder(self):
        for path in self.built + self.installed:
            for element in elf.Elf(path).search_paths():
                with self.subTest(binary=path.name, element=element):
                    self.assertRegex(element, r"^(/|\$ORIGIN(/|$))")

    def test_installed_binaries_do_not_know_the_build_tree(self):
        for path in self.installed:
            with self.subTest(path.name):
                self.assertNotIn(str(BUILD), ":".join(elf.Elf(path).search_paths()))

    def planted(self):
        """A folder with a libjansson.so.4 that leaves a file where it is loaded."""
        folder = self.folder / "planted"
        if folder.exists():
            return folder
        folder.mkdir()
        wanted = {name for path in [*self.programs(), *BUILD.glob("libsparse24-nn.so")]
                  for name, _, section, _ in elf.Elf(path).symbols()
                  if section == 0 and name.startswith("json")}
        source = folder / "planted.c"
        source.write_text(
            "#include <stdio.h>\n__attribute__((constructor)) static void leave(void)\n"
            '{\n    FILE *file = fopen("was-here", "w");\n    if (file) fclose(file);\n}\n'
            + "".join(f"void {name}(void) {{}}\n" for name in sorted(wanted)))
        done = run(os.environ["CC"], "-shared", "-fPIC", "-w", "-Wl,-soname,libjansson.so.4",
                   source, "-o", folder / "libjansson.so.4")
        self.assertEqual(done.returncode, 0, done.stderr)
        return folder

    def test_libraries_in_the_current_folder_do_not_run(self):
        folder = self.planted()
        marker = folder / "was-here"
        for program in self.programs():
            with self.subTest(str(program)):
                if not [n for n in elf.Elf(program).dynamic_texts(elf.DT_NEEDED) if "jansson" in n]:
                    self.skipTest("jansson is part of the program")
                run(program, "--version", cwd=folder,
                    env=dict(os.environ, LD_LIBRARY_PATH=str(folder)))
                self.assertTrue(marker.exists(), "the planted library runs where it is asked for")
                marker.unlink()
                done = run(program, "--version", cwd=folder, env={
                    k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"})
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertFalse(marker.exists(), "code of the current folder ran")

    def takes(self, flag):
        """Whether the compiler knows the flag."""
        return run(os.environ["CC"], "-Werror", flag, "-x", "c", "-c", "-o", os.devnull, "-",
                   input="int x;\n").returncode == 0

    def each(self, holds):
        """Calls holds(binary) for everything that this tree's rules made."""
        for path in self.built + self.installed:
            if path.name not in FOREIGN:
                with self.subTest(str(path)):
                    holds(elf.Elf(path))

    @unittest.skipUnless(HARDENED, "built with S24_HARDEN=OFF")
    def test_tables_of_addresses_are_read_only(self):
        def holds(binary):
            self.assertIsNotNone(binary.segment(elf.PT_GNU_RELRO))
            flags, more = sum(binary.dynamic(elf.DT_FLAGS)), sum(binary.dynamic(elf.DT_FLAGS_1))
            self.assertTrue(binary.dynamic(elf.DT_BIND_NOW) or flags & elf.DF_BIND_NOW
                            or more & elf.DF_1_NOW, "symbols are bound as they are called")

        self.each(holds)

    @unittest.skipUnless(HARDENED, "built with S24_HARDEN=OFF")
    def test_no_stack_runs_as_code(self):
        def holds(binary):
            stack = binary.segment(elf.PT_GNU_STACK)
            self.assertIsNotNone(stack)
            self.assertFalse(stack[1] & elf.PF_EXECUTE)

        self.each(holds)

    @unittest.skipUnless(HARDENED, "built with S24_HARDEN=OFF")
    def test_programs_lie_at_any_address(self):
        def holds(binary):
            self.assertEqual(binary.type, elf.SHARED)
            if binary.segment(elf.PT_INTERP):
                self.assertTrue(sum(binary.dynamic(elf.DT_FLAGS_1)) & elf.DF_1_PIE)

        self.each(holds)

    @unittest.skipUnless(HARDENED, "built with S24_HARDEN=OFF")
    def test_branches_land_where_they_may(self):
        if not self.takes("-fcf-protection=full"):
            self.skipTest("the compiler has no -fcf-protection")
        ours = ("libsparse24.so", "libsparse24-nn.so")
        libraries = [p for p in self.built if p.name.startswith(ours)]
        if not libraries:
            self.skipTest("no shared library in this build")
        for path in libraries:
            binary = elf.Elf(path)
            functions = [(name, address) for name, kind, section, address in binary.symbols()
                         if kind == elf.STT_FUNC and section]
            self.assertGreater(len(functions), 50)
            for name, address in functions:
                with self.subTest(library=path.name, function=name):
                    self.assertEqual(binary.at(address, 4), ENDBR64)

    @unittest.skipUnless(HARDENED, "built with S24_HARDEN=OFF")
    def test_stacks_and_strings_are_checked(self):
        checked = {name for path in self.built + self.programs()
                   if path.name.startswith(("libsparse24", "sparse24"))
                   for name, _, section, _ in elf.Elf(path).symbols() if section == 0}
        if self.takes("-fstack-protector-strong"):
            self.assertIn("__stack_chk_fail", checked)
        if OPTIMISED and not os.environ["S24_SANITIZE"]:
            self.assertIn("__snprintf_chk", checked)


if __name__ == "__main__":
    unittest.main()
