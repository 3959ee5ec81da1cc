# SPDX-License-Identifier: Apache-2.0
"""What strangers hand over: files of other programs, folders without what is needed, names of
models on a hub, places where nothing can be written. Each is called what it is, with what to do."""
import ctypes
import json
import os
import pickle
import shutil
import subprocess
import unittest
import zipfile

from cli_case import PROGRAM, Scratch, clean_environment, run
import tiny_bert
from cli_data import matrix, tensor, write

WEIGHT = "blocks.layer.0.fc.weight"
OURS = "'sparse24 convert IN OUT' writes them"
CONVERT = r"AutoModel\.from_pretrained\(IN\)\.save_pretrained\(OUT\) of transformers writes them"


def write_foreign(folder):
    """Every format under a name that does not tell, and some under their own."""
    with zipfile.ZipFile(folder / "torch", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"a": 1}))
    with zipfile.ZipFile(folder / "zip", "w") as archive:
        archive.writestr("a.txt", "a")
    for protocol in (2, 4):
        (folder / f"pickle{protocol}").write_bytes(pickle.dumps({"weight": 1.0}, protocol))
    for name, begin in (("gguf", b"GGUF\3\0\0\0"), ("hdf5", b"\x89HDF\r\n\x1a\n"),
                        ("npy", b"\x93NUMPY\1\0"), ("gz", b"\x1f\x8b\x08\0\0\0\0\0"),
                        ("xz", b"\xfd7zXZ\0\0\4"), ("zst", b"\x28\xb5\x2f\xfd\4\0Xy"),
                        ("page", b"<!DOCTYPE html>"), ("lfs", b"version https://git-lfs.github.com/"
                                                       b"spec/v1\noid sha256:00\n"),
                        ("model.onnx", b"\x08\x07\x12\x07pytorch"), ("a.msgpack", b"\x81\xa1x\1")):
        (folder / name).write_bytes(begin + bytes(64))
    (folder / "json").write_text('{"model_type": "bert"}')


def write_folders(folder):
    def only(name, *files):
        (folder / name).mkdir()
        for file in files:
            (folder / name / file).write_bytes(b"")
    only("has_bin", "config.json", "pytorch_model.bin", "vocab.txt")
    only("has_shards", "pytorch_model-00001-of-00002.bin", "pytorch_model.bin.index.json")
    only("has_onnx", "model.onnx")
    only("has_gguf", "x-q4_0.gguf")
    only("has_adapter", "adapter_config.json", "adapter_model.safetensors")
    only("has_other", "consolidated.safetensors", "consolidated.00.pth")
    only("bare")
    (folder / "cache/snapshots").mkdir(parents=True)
    tiny_bert.write(folder / "model")
    shutil.copytree(folder / "model", folder / "untold")
    (folder / "untold/config.json").unlink()
    shutil.copytree(folder / "model", folder / "typeless")
    (folder / "typeless/config.json").write_text("{}")


def make_files(folder):
    write_foreign(folder)
    write_folders(folder)
    (folder / "texts").write_text("read a file\nclose it\n")
    write(folder / "sparse.safetensors",
          {WEIGHT: tensor("f32", (8, 16), matrix("f32", 8, 16))})
    double = {"dtype": "F64", "shape": [8, 16], "data": bytes(8 * 8 * 16)}
    write(folder / "double.safetensors",
          {WEIGHT: double, "blocks.layer.1.fc.weight": tensor("f32", (8, 16),
                                                              matrix("f32", 8, 16))})
    write(folder / "beside.safetensors",
          {WEIGHT: tensor("f32", (8, 16), matrix("f32", 8, 16)), "table": double,
           "blocks.layer.0.ids": {"dtype": "I64", "shape": [1, 16], "data": bytes(8 * 16)}})
    (folder / "dangling").symlink_to("nowhere")
    (folder / "dangling.safetensors").symlink_to("nowhere")


class Inputs(Scratch):
    make = staticmethod(make_files)

    def test_files_of_other_programs(self):
        torch = rf"is a PyTorch checkpoint \(a pickle\); safetensors are expected: {CONVERT}$"
        archive = rf"is a PyTorch checkpoint \(a pickle\); safetensors are expected: {OURS}$"
        self.refusals([(name, ["check", name], 4,
                        rf"(?m)error: {name}: this {sentence}|^{name}: this {sentence}")
                       for name, sentence in (
            ("torch", archive), ("pickle2", torch), ("pickle4", torch),
            ("zip", "is a zip archive; .*unpack it first"),
            ("gguf", "is a GGUF file of llama.cpp; .*sparse24 convert IN OUT"),
            ("model.onnx", "is an ONNX model; .*the folder that it was made from"),
            ("hdf5", r"is an HDF5 file \(Keras\); .*with from_tf=True"),
            ("a.msgpack", "is a Flax checkpoint; .*with from_flax=True"),
            ("npy", r"is a NumPy array; .*safetensors\.numpy\.save_file"),
            ("gz", "is a file that gzip packed; .*unpack it first"),
            ("xz", "is a file that xz packed; "), ("zst", "is a file that zstd packed; "),
            ("page", "is a web page, perhaps of a download that failed; .*download it again"),
            ("lfs", "is a Git LFS pointer; .*'git lfs pull' fetches them"),
            ("json", "is JSON; a safetensors file is expected, or the folder that has it"))])

    def test_a_file_cut_short_is_not_taken_for_another_format(self):
        for begin in (b"\x80\x02\0\0\0\0\0\0", b"{\0\0\0\0\0\0\0", b"\x1f\x8b\0\0\0\0\0\0"):
            (self.folder / "cut.safetensors").write_bytes(begin + b'{"a":')
            done = run("info", "cut.safetensors", cwd=self.folder)
            self.assertEqual(done.returncode, 4)
            self.assertRegex(done.stderr, r"a header of \d+ bytes is announced, but only 5 follow")

    def test_folders_without_what_is_needed(self):
        self.refusals([
            ("PyTorch", ["check", "has_bin"], 3, r"has_bin: the folder has no safetensors, but "
             rf"pytorch_model\.bin, which is a PyTorch checkpoint \(a pickle\): {OURS}"),
            ("shards", ["embed", "has_shards", "--output", "v.safetensors"], 3,
             r"has_shards: .*, which is (a|the index of a) PyTorch checkpoint"),
            ("ONNX", ["prune", "has_onnx", "new"], 3, r"model\.onnx, which is an ONNX model"),
            ("GGUF", ["check", "has_gguf"], 3, r"x-q4_0\.gguf, which is a GGUF file"),
            ("adapter", ["info", "has_adapter"], 3,
             r"adapter_model\.safetensors is an adapter of another model; merge_and_unload"),
            ("another name", ["info", "has_other"], 3,
             r"name its file consolidated\.safetensors itself"),
            ("cache", ["info", "cache"], 3,
             r"a hub's cache; .*one of the folders in cache/snapshots"),
            ("nothing", ["info", "bare"], 3, r"has neither model\.safetensors nor"),
            ("no config", ["embed", "untold", "--output", "v.safetensors"], 4,
             r"untold: the folder has no config\.json, which says what the model is"),
            ("no config to train", ["train", "untold", "new", "--text", "texts"], 4,
             r"untold: the folder has no config\.json"),
            ("no type", ["embed", "typeless", "--output", "v.safetensors"], 4,
             r"typeless/config\.json: model_type is missing"),
            ("a file to embed with",
             ["embed", "model/model.safetensors", "--output", "v.safetensors"], 2,
             r"is a file; an encoder needs its folder"),
            ("a file to train", ["train", "model/model.safetensors", "new", "--text", "texts"], 2,
             r"is a single file; MODEL is a folder, with config\.json and tokenizer")])

    def test_a_download_that_did_not_end(self):
        """A hub's snapshot is a folder of links; those to files that never came are no files that
        the model does without."""
        for file in ("config.json", "tokenizer_config.json", "modules.json", "model.safetensors"):
            with self.subTest(file):
                folder = self.folder / "snapshot"
                shutil.copytree(self.folder / "model", folder)
                self.addCleanup(shutil.rmtree, folder, True)
                (folder / file).unlink(missing_ok=True)
                (folder / file).symlink_to(f"../../blobs/{file}")
                done = run("embed", "snapshot", "--input", "texts", "--output", "v.npy",
                           cwd=self.folder)
                self.assertEqual(done.returncode, 3, done.stderr)
                self.assertIn(f"snapshot/{file} is a link to a file that is not there; the "
                              "download that made it may not have ended", done.stderr)
                shutil.rmtree(folder)
        shutil.copytree(self.folder / "model", self.folder / "linked")
        (self.folder / "linked/notes.txt").symlink_to("nowhere")
        done = run("prune", "linked", "linked24", cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("linked/notes.txt is a link to a file that is not there, so it is not "
                      "copied", done.stderr)

    def test_an_index_that_names_a_file_which_is_not_there(self):
        folder = self.folder / "parts"
        shutil.copytree(self.folder / "model", folder)
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors.index.json").write_text(json.dumps(
            {"weight_map": {"a": "model-00002-of-00002.safetensors"}}))
        for words in (["info"], ["check"], ["embed", "--input", "texts", "--output", "v.npy"]):
            done = run(words[0], "parts", *words[1:], cwd=self.folder)
            self.assertEqual(done.returncode, 3)
            self.assertIn("parts/model-00002-of-00002.safetensors: no such file, but "
                          "model.safetensors.index.json says that tensors lie in it", done.stderr)

    def test_json_that_begins_with_a_byte_order_mark(self):
        folder = self.folder / "marked"
        shutil.copytree(self.folder / "model", folder)
        for file in folder.glob("*.json"):
            file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
        for name in ("model", "marked"):
            done = run("embed", name, "--input", "texts", "--output", f"{name}.npy",
                       cwd=self.folder)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.folder / "marked.npy").read_bytes(),
                         (self.folder / "model.npy").read_bytes())

    def test_a_name_of_pytorch_that_its_content_does_not_bear_out(self):
        (self.folder / "junk").mkdir()
        for content in (b"", b"junk", bytes(500)):
            (self.folder / "junk/pytorch_model.bin").write_bytes(content)
            for words in (["convert", "junk", "new"], ["info", "junk/pytorch_model.bin"]):
                done = run(*words, cwd=self.folder)
                self.assertEqual(done.returncode, 4)
                self.assertIn("junk/pytorch_model.bin: it is named as a PyTorch checkpoint, but "
                              "is neither torch.save's archive nor a pickle", done.stderr)

    def test_words_of_options_are_utf8(self):
        for option in ("--query", "--prompt", "--system"):
            with self.subTest(option):
                words = {"--query": ["search", "model", "--documents", "texts"]}.get(
                    option, ["generate", "model"])
                done = subprocess.run([PROGRAM, *words, option, b"caf\xe9"], cwd=self.folder,
                                      env=clean_environment(), capture_output=True, check=False)
                self.assertEqual(done.returncode, 2)
                self.assertIn(f"option {option}: its text is not UTF-8".encode(), done.stderr)

    def test_names_on_a_hub(self):
        hub = (r"there is no such file or folder; if it is a model's name on a hub, download it "
               r"first: "
               r"huggingface-cli download org/some-model_2\.5 --local-dir FOLDER")
        self.refusals([(words[0], [*words[:1], "org/some-model_2.5", *words[1:]], 3, hub)
                       for words in (["info"], ["check"], ["prune", "new"],
                                     ["embed", "--output", "v.safetensors"],
                                     ["search", "--documents", "texts", "--query", "q"],
                                     ["train", "new", "--text", "texts"])])
        for path in ("model/nothing", "org/model.safetensors", "./org", "nothing", "a/b/c", "/a/b"):
            done = run("info", path, cwd=self.folder)
            self.assertEqual(done.returncode, 3)
            self.assertIn(f"cannot open {path}: No such file or directory", done.stderr)

    def test_pipes_sockets_and_devices(self):
        os.mkfifo(self.folder / "pipe")
        for name, what in (("pipe",
                            "a pipe, a regular file is expected; write what it gives to one"),
                           ("/dev/null", "a device, a regular file is expected")):
            done = run("info", name, cwd=self.folder)
            self.assertEqual(done.returncode, 3)
            self.assertIn(f"cannot read {name}: it is {what}", done.stderr)

    def test_a_folder_that_may_not_be_looked_into(self):
        def no_powers():  # root may look into every folder, unless it gives that up
            if os.geteuid() == 0:
                for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
                    if ctypes.CDLL(None).prctl(24, capability, 0, 0, 0):  # PR_CAPBSET_DROP
                        os._exit(99)
        os.chmod(self.folder / "model", 0)
        self.addCleanup(os.chmod, self.folder / "model", 0o700)
        done = subprocess.run([PROGRAM, "info", "model"], cwd=self.folder, preexec_fn=no_powers,
                              env=clean_environment(), capture_output=True, text=True)
        if done.returncode == 99:
            self.skipTest("root may look into every folder here")
        self.assertEqual(done.returncode, 3)
        self.assertIn("cannot look for model/model.safetensors: Permission denied", done.stderr)

    def test_weights_of_f64_are_named(self):
        sentence = (rf"tensor {WEIGHT} is f64; a weight is expected to be f32, f16, bf16, i8, "
                    rf"e4m3 or "
                    r"e5m2: convert it to f32, or leave it out with --exclude")
        self.refusals([("check", ["check", "double.safetensors"], 4, sentence),
                       ("prune", ["prune", "double.safetensors", "new"], 4, sentence),
                       ("pack", ["pack", "double.safetensors", "new", "--include", "*"], 4,
                        sentence)])
        self.good("prune", "double.safetensors", "p.safetensors", "--exclude", WEIGHT)
        self.good("prune", "beside.safetensors", "q.safetensors")
        self.good("pack", "beside.safetensors", "r.safetensors")
        self.good("unpack", "r.safetensors", "s.safetensors", "--include", "*fc*")
        found = {t["name"]: t["dtype"] for t in self.json("info", "s.safetensors")["tensors"]}
        self.assertEqual(found, {WEIGHT: "f32", "table": "f64", "blocks.layer.0.ids": "i64"})

    def test_outputs_are_refused_before_the_work(self):
        nothing = "is a link to nothing"
        embed = ["embed", "model", "--input", "texts", "-o"]
        train = ["train", "model", "--text", "texts", "--teacher", "model", "--steps", "1"]
        self.refusals([
            ("vectors", [*embed, "dangling.safetensors"], 3, nothing),
            ("pruned", ["prune", "sparse.safetensors", "dangling.safetensors"], 3, nothing),
            ("packed", ["pack", "sparse.safetensors", "dangling.safetensors"], 3, nothing),
            ("trained", [*train, "dangling"], 3, nothing),
            ("a file for a folder", [*train, "texts", "--force"], 3,
             "texts is a file, but a folder is to be written"),
            ("no model's folder", [*train, "has_onnx", "--force"], 3,
             "has_onnx is not a model folder"),
            ("vectors nowhere", [*embed, "no/where.npy"], 3, "the folder no cannot be written to"),
            ("pruned nowhere", ["prune", "model", "no/where/"], 3,
             "no/where/: the folder no cannot be written to: No such file or directory"),
            ("packed nowhere", ["pack", "sparse.safetensors", "no/where.npy"], 3,
             "the folder no cannot"),
            ("trained nowhere", [*train, "no/where.npy"], 3, "the folder no cannot be written to")])
        self.good("prune", "sparse.safetensors", "dangling.safetensors", "--force")
        self.assertFalse((self.folder / "dangling.safetensors").is_symlink())
        self.assertFalse((self.folder / "nowhere").exists())


if __name__ == "__main__":
    unittest.main()
