# SPDX-License-Identifier: Apache-2.0
"""Runs CPack on the build: which packages it makes for Debian, what is in each, what each needs; and
a tarball whose program runs wherever it is unpacked."""
import filecmp
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import unittest

import elf

SOURCE = pathlib.Path(os.environ["S24_SOURCE"])
BUILD = pathlib.Path(os.environ["S24_BUILD"])
TOOLS = ("cpack", "dpkg-deb", "dpkg-shlibdeps", "file", "gzip")
MISSING = [tool for tool in TOOLS if not shutil.which(tool)]
SHARED = (BUILD / "libsparse24.so").exists()
NN = (BUILD / "sparse24").exists()
VERSION = re.search(r'S24_VERSION +"(.*)"',
                    (SOURCE / "include/sparse24/sparse24.h").read_text()).group(1)
LIBRARIES = ["libsparse24-0"] * SHARED + ["libsparse24-nn0"] * (SHARED and NN)
PACKAGES = LIBRARIES + ["libsparse24-cuda0"] * (BUILD / "libsparse24-cuda.so.0").exists() + \
    ["libsparse24-mpi0"] * (BUILD / "libsparse24-mpi.so.0").exists() + [
    "libsparse24-dev"] + ["sparse24"] * NN


def run(*command, **options):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)


@unittest.skipIf(MISSING, "not here: " + ", ".join(MISSING))
class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.cpack = cls.pack(cls.folder)
        cls.debs = {path.name.split("_")[0]: path for path in cls.folder.glob("*.deb")}
        cls.roots = {}
        (cls.folder / "roots").mkdir()
        for name, path in cls.debs.items():
            cls.roots[name] = cls.folder / "roots" / name
            run("dpkg-deb", "-R", path, cls.roots[name])

    @staticmethod
    def pack(folder):
        return run("cpack", "-B", folder, cwd=BUILD,
                   env=dict(os.environ, SOURCE_DATE_EPOCH="1700000000"))

    def test_the_same_bytes_twice(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(self.pack(folder).returncode, 0)
            for path in [*self.debs.values(), *self.folder.glob("*.tar.gz")]:
                with self.subTest(path.name):
                    self.assertTrue(filecmp.cmp(path, pathlib.Path(folder) / path.name, False))

    def setUp(self):
        self.assertEqual(self.cpack.returncode, 0, self.cpack.stdout + self.cpack.stderr)

    def field(self, package, name):
        return run("dpkg-deb", "-f", self.debs[package], name).stdout.strip()

    def needs(self, package):
        """The names of the packages that package depends on."""
        return {word.split()[0] for word in self.field(package, "Depends").split(", ") if word}

    def names(self, package, pattern):
        return sorted(path.name for path in self.roots[package].glob(pattern))

    def test_a_package_for_each_component(self):
        self.assertEqual(sorted(self.debs), sorted(PACKAGES))
        for name in PACKAGES:
            self.assertEqual(self.field(name, "Source").split()[0], "sparse24")
            self.assertRegex(self.field(name, "Version"), "^" + re.escape(VERSION) + "-")

    def test_each_says_where_it_is_from(self):
        for name in PACKAGES:
            with self.subTest(name):
                self.assertGreaterEqual(
                    set(self.names(name, f"usr/share/doc/{name}/*")),
                    {"changelog.gz", "changelog.Debian.gz", "copyright"})
                self.assertGreaterEqual(len(self.field(name, "Description").splitlines()), 3)

    def test_each_names_what_it_needs(self):
        version = self.field("libsparse24-dev", "Version")
        for name in ("libsparse24-dev", "sparse24"):
            for library in LIBRARIES if name in PACKAGES else []:
                self.assertIn(f"{library} (= {version})", self.field(name, "Depends"))
        if SHARED:
            self.assertEqual({n for n in self.needs("libsparse24-0") if "json" in n or "utf8" in n},
                             set())
        if SHARED and NN:
            self.assertIn(f"libsparse24-0 (= {version})", self.field("libsparse24-nn0", "Depends"))
            self.assertIn("libutf8proc2", self.needs("libsparse24-nn0"))
            self.assertIn("libxxhash0", self.needs("libsparse24-nn0"))
            self.assertIn("libjansson4", self.needs("sparse24"))
        self.assertFalse([n for n in self.needs("libsparse24-dev") if n.endswith("-dev")])

    @unittest.skipUnless(SHARED, "no shared library in this build")
    def test_libraries(self):
        self.assertEqual(self.names("libsparse24-0", "usr/lib/**/*.so*"),
                         ["libsparse24.so.0", f"libsparse24.so.{VERSION}"])
        links = self.names("libsparse24-dev", "usr/lib/**/*.so*")
        self.assertEqual(links, ["libsparse24-nn.so"] * NN + ["libsparse24.so"])
        for library in LIBRARIES:
            self.assertEqual((self.roots[library] / "DEBIAN/triggers").read_text(),
                             "activate-noawait ldconfig\n")

    def test_headers_and_files_for_builds(self):
        headers = {path.name for path in (SOURCE / "include/sparse24").glob("*.h")}
        nn_headers = {"nn.h", "checkpoints.h", "language.h", "task.h", "comm.h", "train.h"}
        self.assertEqual(set(self.names("libsparse24-dev", "usr/include/sparse24/*")),
                         headers if NN else headers - nn_headers)
        self.assertIn("sparse24.pc", self.names("libsparse24-dev", "usr/lib/**/pkgconfig/*"))
        self.assertIn("sparse24Config.cmake",
                      self.names("libsparse24-dev", "usr/lib/**/cmake/sparse24/*"))

    @unittest.skipUnless(NN, "built without the command line")
    def test_the_program_with_pages_and_completions(self):
        root = self.roots["sparse24"]
        pages = {path.name for path in (BUILD / "man/man1").glob("*.1")}
        self.assertEqual(set(self.names("sparse24", "usr/share/man/man1/*")),
                         {page + ".gz" for page in pages})
        for place in ("bash-completion/completions/sparse24", "zsh/*/_sparse24",
                      "fish/vendor_completions.d/sparse24.fish"):
            self.assertEqual(len(list((root / "usr/share").glob(place))), 1, place)
        folders = {str(path.parent) for name in LIBRARIES
                   for path in self.roots[name].glob("usr/lib/**/*.so.0")}
        done = run(root / "usr/bin/sparse24", "--version",
                   env=dict(os.environ, LD_LIBRARY_PATH=":".join(sorted(folders))))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(VERSION, done.stdout)

    def test_packaged_binaries_are_stripped_and_look_where_the_system_does(self):
        for path in elf.binaries(self.folder / "roots"):
            with self.subTest(path.name):
                binary = elf.Elf(path)
                self.assertEqual(binary.search_paths(), [])
                self.assertEqual(binary.section(elf.SHT_SYMTAB), (b"", 0))

    def test_the_tarball_runs_where_it_is_unpacked(self):
        found = list(self.folder.glob("*.tar.gz"))
        self.assertEqual(len(found), 1)
        with tarfile.open(found[0]) as archive:
            archive.extractall(self.folder / "unpacked")
        top = next((self.folder / "unpacked").iterdir())
        self.assertTrue((top / "include/sparse24/sparse24.h").exists())
        for file, folder in (("LICENSE", SOURCE), ("sparse24.cdx.json", BUILD)):
            self.assertTrue(filecmp.cmp(top / "share/doc/sparse24" / file, folder / file, False))
        if NN:
            env = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
            done = run(top / "bin/sparse24", "--version", env=env)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(VERSION, done.stdout)


if __name__ == "__main__":
    unittest.main()
