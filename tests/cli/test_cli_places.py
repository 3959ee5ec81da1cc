# SPDX-License-Identifier: Apache-2.0
"""Where outputs go and what goes along: modes of files, side files that are links, what killed
writers left."""
import fcntl
import os
import pathlib
import stat
import subprocess
import unittest

import cli_case
import cli_data
import tiny_bert


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


class Places(cli_case.Scratch):
    @staticmethod
    def make(folder):
        tiny_bert.write(folder / "model")
        cli_case.run("prune", "model", "pruned", cwd=folder)

    def with_umask(self, umask, *arguments):
        done = subprocess.run([cli_case.PROGRAM, *arguments], cwd=self.folder, umask=umask,
                              env=cli_case.clean_environment(), capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_modes_of_a_folder_go_along(self):
        source = self.folder / "pruned"
        wanted = {"": 0o750, "model.safetensors": 0o640, "config.json": 0o600, "vocab.txt": 0o444,
                  "1_Pooling": 0o700, "1_Pooling/config.json": 0o660}
        for name, bits in wanted.items():
            (source / name).chmod(bits)
        for command in (["pack"], ["prune", "--packed"], ["unpack"]):
            for umask in (0o000, 0o077):
                with self.subTest(command=command, umask=umask):
                    self.with_umask(umask, *command, "pruned", "out", "--force")
                    found = {name: mode(self.folder / "out" / name) for name in wanted}
                    self.assertEqual(found, wanted)

    def test_mode_of_a_file_goes_along(self):
        source = self.folder / "pruned" / "model.safetensors"
        for bits in (0o600, 0o640, 0o644):
            source.chmod(bits)
            for command in ("pack", "prune"):
                with self.subTest(command=command, bits=oct(bits)):
                    self.with_umask(0o022, command, "pruned/model.safetensors", "one.safetensors",
                                    "--force")
                    self.assertEqual(mode(self.folder / "one.safetensors"), bits)

    def test_new_files_obey_the_umask(self):
        (self.folder / "texts").write_text("read the file\n")
        for umask, bits in ((0o022, 0o644), (0o077, 0o600)):
            self.with_umask(umask, "embed", "model", "--input", "texts", "--output",
                            "vectors.safetensors", "--force")
            self.assertEqual(mode(self.folder / "vectors.safetensors"), bits)

    def test_metadata_of_a_file_go_along(self):
        path = self.folder / "pruned" / "model.safetensors"
        tensors, _ = cli_data.read(path)
        cli_data.write(path, {name: {"dtype": dtype, "shape": shape, "data": data}
                              for name, (dtype, shape, data) in tensors.items()}, {"format": "pt"})
        self.good("pack", "pruned/model.safetensors", "one.safetensors")
        self.assertIn(b'"format":"pt"', (self.folder / "one.safetensors").read_bytes()[:4096])

    def test_links_out_of_the_folder_are_not_copied(self):
        secret = self.folder / "secret"
        secret.write_text("not a model's")
        model = self.folder / "pruned"
        (model / "notes.txt").symlink_to("../secret")
        (model / "absolute.txt").symlink_to(secret)
        (model / "1_Pooling" / "deep.txt").symlink_to("../../secret")
        (model / "inside.json").symlink_to("config.json")
        (self.folder / "model-link").symlink_to("pruned")
        for source in ("pruned", "model-link"):
            done = self.good("pack", source, "out", "--force")
            for name in ("notes.txt", "absolute.txt", "deep.txt"):
                self.assertRegex(done.stderr, rf"{name} is a link to {secret}, outside the model's "
                                              "folder, so it is not copied")
            copied = set(cli_case.listing(self.folder / "out"))
            self.assertFalse(copied & {"notes.txt", "absolute.txt", "1_Pooling/deep.txt"})
            self.assertEqual((self.folder / "out" / "inside.json").read_bytes(),
                             (model / "config.json").read_bytes())

    def test_a_download_cache_is_followed_to_its_blobs(self):
        cache = self.folder / "hub" / "models--org--tiny"
        other = self.folder / "hub" / "models--org--other" / "blobs"
        snapshot = cache / "snapshots" / "0123abcd"
        for folder in (cache / "blobs", other, snapshot):
            folder.mkdir(parents=True)
        (other / "foreign").write_text("another model's")
        (cache / "refs").write_text("not a blob")
        for i, path in enumerate(sorted((self.folder / "pruned").rglob("*"))):
            if path.is_file():
                link = snapshot / path.relative_to(self.folder / "pruned")
                link.parent.mkdir(exist_ok=True)
                path.rename(cache / "blobs" / f"hash{i}")
                link.symlink_to(os.path.relpath(cache / "blobs" / f"hash{i}", link.parent))
        (snapshot / "foreign.txt").symlink_to("../../../models--org--other/blobs/foreign")
        (snapshot / "refs.txt").symlink_to("../../refs")
        done = self.good("pack", snapshot, "out")
        self.assertEqual(set(cli_case.listing(self.folder / "out")),
                         set(cli_case.listing(snapshot)) - {"foreign.txt", "refs.txt"})
        self.assertRegex(done.stderr, "foreign.txt is a link to .* so it is not copied")
        self.assertRegex(done.stderr, "refs.txt is a link to .* so it is not copied")

    def test_what_a_killed_writer_left_is_removed_and_said(self):
        name = ".sparse24-00112233445566ff"
        left, lock = self.folder / name, self.folder / (name + ".lock")
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        left.mkdir()
        (left / "model.safetensors").write_bytes(bytes(2500000))
        lock.write_text(f"sparse24 writes {name}\non {boot}\n")
        with lock.open("r+") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            self.assertNotIn(name, self.good("pack", "pruned", "out").stderr)
        self.assertTrue(left.exists() and lock.exists())
        done = self.good("pack", "pruned", "out", "--force")
        self.assertRegex(done.stderr, rf"removed .*/{name}, left by a writer that was killed "
                                      r"\(2\.5 MB\)")
        self.assertFalse(left.exists() or lock.exists())


if __name__ == "__main__":
    unittest.main()
