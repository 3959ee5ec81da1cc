# SPDX-License-Identifier: Apache-2.0
"""tools/release on a small repository: what lies in its folder, the same bytes twice, a signature,
and what it refuses. What it builds is tested where it is built (test_package, tools/wheel)."""
import hashlib
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["S24_SOURCE"])
CHANGES = ("# Changelog\n\n## [Unreleased]\n\n- To come.\n\n## [1.2.3]\n\n- Come.\n\n"
           "## [1.2.2]\n\n- Old.\n")


@unittest.skipUnless(shutil.which("git"), "no git here")
class Release(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.root = self.folder / "tree"
        (self.root / "tools").mkdir(parents=True)
        (self.root / "include/sparse24").mkdir(parents=True)
        shutil.copy(SOURCE / "tools/release", self.root / "tools")
        (self.root / "include/sparse24/sparse24.h").write_text('#define S24_VERSION "1.2.3"\n')
        (self.root / "CHANGELOG.md").write_text(CHANGES)
        for words in ("init -q", "add -A", "commit -q -m all"):
            self.git(*words.split())

    def environment(self, **more):
        who = {f"GIT_{role}_{what}": "nobody@example.org" for role in ("AUTHOR", "COMMITTER")
               for what in ("NAME", "EMAIL")}
        return dict(os.environ, **who, **more)

    def git(self, *words):
        subprocess.run(["git", "-C", self.root, *words], check=True, env=self.environment())

    def release(self, out, *words, **environment):
        return subprocess.run(["sh", self.root / "tools/release", self.folder / out, *words],
                              capture_output=True, text=True, env=self.environment(**environment))

    def tarball(self, out, *words, **environment):
        done = self.release(out, "--only", "tarball", *words, **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.folder / out

    def refuse(self, sentence, *words, code=1):
        done = self.release("refused", *words)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(sentence, done.stderr)
        self.assertFalse((self.folder / "refused").exists())

    def test_what_lies_in_it(self):
        out = self.tarball("out")
        self.assertEqual(sorted(p.name for p in out.iterdir()),
                         ["NOTES.md", "SHA256SUMS", "sparse24-1.2.3.tar.gz"])
        self.assertEqual((out / "NOTES.md").read_text().strip(), "- Come.")
        for line in (out / "SHA256SUMS").read_text().splitlines():
            digest, name = line.split()
            self.assertEqual(hashlib.sha256((out / name).read_bytes()).hexdigest(), digest)
        with tarfile.open(out / "sparse24-1.2.3.tar.gz") as tar:
            self.assertIn("sparse24-1.2.3/CHANGELOG.md", tar.getnames())

    def test_the_same_bytes_twice(self):
        first, second = self.tarball("a"), self.tarball("b", TZ="Asia/Tokyo", LANG="C.UTF-8")
        self.assertEqual((first / "SHA256SUMS").read_text(), (second / "SHA256SUMS").read_text())

    def test_a_snapshot_has_what_is_unreleased(self):
        out = self.tarball("out", "--snapshot")
        self.assertEqual((out / "NOTES.md").read_text().strip(), "- To come.")

    @unittest.skipUnless(shutil.which("gpg"), "no gpg here")
    def test_a_signature(self):
        home = self.folder / "gnupg"
        home.mkdir(mode=0o700)
        keyring = {"GNUPGHOME": str(home)}
        made = subprocess.run(["gpg", "--batch", "-q", "--passphrase", "", "--quick-generate-key",
                               "tester", "ed25519", "sign"], env=self.environment(**keyring),
                              capture_output=True, text=True)
        if made.returncode:
            self.skipTest("gpg makes no key here: " + made.stderr)
        out = self.tarball("out", "--sign", "tester", **keyring)
        subprocess.run(["gpg", "--verify", out / "SHA256SUMS.asc"], check=True,
                       env=self.environment(**keyring), capture_output=True)
        subprocess.run(["gpgconf", "--kill", "all"], env=self.environment(**keyring))

    def test_a_signature_without_a_tool(self):
        key = self.folder / "secret.key"
        key.write_text("")
        if shutil.which("minisign"):
            self.skipTest("minisign is here")
        self.refuse("needs minisign, which is not here", "--sign", str(key))

    def test_what_is_not_committed(self):
        (self.root / "new").write_text("")
        self.refuse("the tree is not what is committed:\n?? new")

    def test_a_version_without_notes(self):
        (self.root / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n\n- To come.\n")
        self.git("commit", "-q", "-a", "-m", "none")
        self.refuse("CHANGELOG.md has no section [1.2.3]")

    def test_a_folder_that_is_there(self):
        (self.folder / "out").mkdir()
        done = self.release("out")
        self.assertEqual(done.returncode, 1)
        self.assertIn("out is there already", done.stderr)

    def test_usage(self):
        for words in (("--only",), ("--only", "nothing"), ("--what",), ("second",)):
            with self.subTest(words):
                self.refuse("usage: tools/release OUT", *words, code=2)


if __name__ == "__main__":
    unittest.main()
