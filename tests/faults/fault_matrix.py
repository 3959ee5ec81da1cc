# SPDX-License-Identifier: Apache-2.0
"""The matrix of faults: a row of fault_rows.py is run once for each fault of a kind, and each run
is judged: how it ends, what it says, what is left, and whether the next run does the work."""
import collections
import errno
import os
import pathlib
import random
import re
import shutil
import subprocess
import tempfile
import time

import fault_client
import fault_power
import fault_rows
import fault_run
from fault_run import KILL, LEFTOVER, OTHERS, SHORT

ERROR = re.compile(r"^sparse24(?: [a-z]+)?: error: (.+)$", re.M)
API_ERROR = re.compile(r"^[a-z]+: (.+)$", re.M)  # of examples/
OURS = 15 - OTHERS
# Kinds of which all later calls fail, too: what is lacking once is lacking again.
LASTING = ("alloc", "thread", "write")
REMAINS = re.compile(r"/[^/]+\.training$")  # of a stage that could not remove it, and says so
TIMES = re.compile(rb"(seconds|_ms|per_second)(\": )[-0-9.e+]+|[0-9.]+ (s|ms|tokens/s)\b")


def below(files, name):
    """The part of a listing that is that output."""
    return {path: data for path, data in files.items()
            if path == name or path.startswith(name + "/")}


def without_times(data):
    return TIMES.sub(rb"", data)


class Judge:
    """What the runs of a row, from one start, must come to."""

    def __init__(self, row, place, words, good):
        self.row, self.place, self.words, self.good = row, place, words, good

    def is_new(self, files, name):
        found, good = below(files, name), below(self.good.files, name)
        if name in self.row.loose:
            return {path for path in found if not REMAINS.search(path)} == good.keys()
        return found == good

    def is_old(self, files, name):
        return below(files, name) == below(self.place.start, name)

    def others(self, files):
        """What is neither an output nor what may stand there in between."""
        known = (*self.row.out, *self.row.between, "cache")
        return [path for path in files if not any(below({path: 0}, name) for name in known)]

    def sentence(self, outcome):
        """What is wrong with the words of a run that failed; None: nothing."""
        found = (API_ERROR if self.row.api else ERROR).findall(outcome.err)
        if self.row.stages:  # what a stage says stands before it
            found = found[-1:]
        if self.row.api and not outcome.err:  # without a context there is no sentence
            return None
        if len(found) != 1:
            return f"{len(found)} error sentences: {outcome.err[-300:]!r}"
        return None

    def outputs(self, outcome, is_whole):
        """What is wrong with the files, leftovers apart; is_whole: all is new."""
        files = {path: data for path, data in outcome.files.items() if not LEFTOVER.search(path)}
        for name in self.row.out:
            new = self.is_new(files, name)
            if is_whole and not new:
                return f"{name} is not as it should be"
            if not new and not self.is_old(files, name) and name not in self.row.between:
                return f"{name} is neither old nor new: {sorted(below(files, name))}"
        return None

    def run_again(self):
        """What is wrong with the next run, without a fault, from what is there now."""
        words = list(self.words)
        if self.row.api:  # it replaces nothing
            self.place.remove(self.row.out)
        has_out = any((self.place.folder / name).exists() for name in self.row.out)
        if "--force" not in words and has_out and self.row.force:
            words.append("--force")
        if any((self.place.folder / name).exists() for name in self.row.resumes):
            words.append("--resume")
        again = self.place.run(words, plain=True)
        if again.code != 0:
            return f"the next run ends with {again.code}: {again.err[-300:]}"
        if len(again.answers) != len(self.good.answers) or None in again.answers:
            return f"the next run answers {again.answers}"
        wrong = self.outputs(again, True)
        # Of a folder that the next run does not write in, its next writer removes them.
        kept = tuple(f"{name}/" for name in (*self.row.between, "cache"))
        left = [path for path in again.files if LEFTOVER.search(path) and not path.startswith(kept)]
        left += self.others(again.files.keys() - set(left))
        return f"after the next run {wrong or f'{left} remain'}" if wrong or left else None

    def finished(self, outcome, kind=""):
        """What is wrong with a run that was not killed."""
        if outcome.code is None:
            return "it hung"
        if outcome.code < 0:
            return f"it ended by signal {-outcome.code}: {outcome.err[-300:]}"
        # What cannot be looked at may pass for what is not there; a lost device is exit 5.
        good = {"stat": (0, 2, 3, 4, 5), "device": (0, 3, 5)}.get(kind, (0, 3))
        good = (0, 1) if self.row.api else good
        if outcome.code not in good:
            return f"exit {outcome.code}: {outcome.err[-300:]}"
        left = [path for path in outcome.files if LEFTOVER.search(path)]
        if self.others(outcome.files.keys() - set(left)):
            return f"exit {outcome.code}, {self.others(outcome.files)} left: {outcome.err[-300:]}"
        is_told = self.row.api  # the examples take no log
        is_told |= self.said(left, outcome.err) or all(path.endswith(".lock") for path in left)
        if left and not is_told:
            return f"exit {outcome.code}, {left} left, and nothing said: {outcome.err[-300:]}"
        wrong = self.outputs(outcome, outcome.code == 0)
        if not wrong and outcome.code == 0 and self.row.stdout:
            same = without_times(outcome.out) == without_times(self.good.out)
            wrong = None if same else f"exit 0, but it printed {outcome.out[-200:]!r}"
        if not wrong and outcome.code:
            wrong = self.sentence(outcome)
        if not wrong:
            wrong = fault_client.wrong(outcome.answers, self.good.answers, kind == "files")
        if wrong:
            return f"exit {outcome.code}, {wrong}"
        again = left or (outcome.files != self.place.start and outcome.code)
        return self.run_again() if again else None

    @staticmethod
    def said(left, err):
        """Is it said what remains?"""
        return any(path.split("/")[-1] in err for path in left if "/" not in path or
                   not LEFTOVER.search(path.rsplit("/", 1)[0]))

    def whole(self, outcome, kind=""):
        """What is wrong with a run whose faults cost nothing."""
        return self.finished(outcome, kind) or (f"exit {outcome.code}" if outcome.code else None)

    def killed(self, outcome, kind=""):
        """What is wrong after SIGKILL: temporaries may be there, until the next run."""
        return self.outputs(outcome, False) or self.run_again()


class Defect(collections.namedtuple("Defect", "row kind n what where")):
    def __str__(self):
        return f"{self.row}, {self.kind} {self.n}: {self.what} [{self.where}]"


class World:
    """The inputs of all rows, and what runs on them."""

    def __init__(self, build, library):
        self.build, self.library = pathlib.Path(build).resolve(), pathlib.Path(library).resolve()
        self.program = self.build / "sparse24"
        self.fixtures = pathlib.Path(tempfile.mkdtemp(dir=fault_run.base_folder()))
        fault_rows.make(self.fixtures, self.run)
        self.cache = self.fixtures / "cache"

    def run(self, *words):
        env = {**os.environ, "XDG_CACHE_HOME": str(self.fixtures / "cache")}
        done = subprocess.run([self.program, *words], cwd=self.fixtures, env=env,
                              capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise AssertionError(f"{words}: {done.stderr}")

    def place(self, row, start):
        folder = self.build / "tests"
        program = folder / "faults" / row.name if row.api else self.program
        libraries = folder / "fake" if row.fake else self.build if row.api else None
        more = {"LD_LIBRARY_PATH": str(libraries)} if libraries else {}
        return fault_run.Place(self.fixtures, program, self.library, start, more, row.asks)

    def old(self, row):
        """What is there before a row's output replaces it."""
        files = {}
        for name in row.out:
            if row.before:
                continue
            if name.endswith(".safetensors"):
                files[name] = (self.fixtures / "single.safetensors").read_bytes()
            elif "." in name:
                files[name] = b"old\n"
            else:
                files[name] = None
                files |= {f"{name}/{path}": data for path, data in
                          fault_run.listing(self.fixtures / "dense").items()}
        if not row.before:
            return files
        place = self.place(row, {})
        files = place.run(row.before.split(), plain=True).files
        place.close()
        return {path: data for path, data in files.items() if not path.startswith("cache")}

    def close(self):
        shutil.rmtree(self.fixtures)


class Sweep:
    """A row from one start: `replaces` an output that is there, or makes it."""

    def __init__(self, row, world, replaces):
        self.row, self.replaces = row, replaces
        start = world.old(row) if replaces else {}
        self.place = world.place(row, start)
        self.words = row.words + (["--force"] if replaces and row.force else [])
        self.name = row.name + (" --force" if replaces else "")
        self.place.set_back()
        began = time.monotonic()
        self.good = self.place.run(self.words, who=OURS)
        self.seconds = time.monotonic() - began
        if self.good.code != 0:
            raise AssertionError(f"{self.name}: {self.good.err}")
        self.judge = Judge(row, self.place, self.words, self.good)
        self.runs, self.defects = collections.Counter(), []

    def one(self, kind, n, label, judge, **plan):
        """Runs with one fault; 1 where there was one."""
        self.place.set_back()
        outcome = self.place.run(self.words, kind=kind, at=n, **plan)
        happened = outcome.hits > 0 or outcome.code == -9
        if happened:
            self.runs[label] += 1
            wrong = judge(outcome, kind)
            if wrong:
                self.defects.append(Defect(self.name, label, n, wrong, outcome.where))
        return happened

    def calls(self, kind, action, choose, all_later=False, who=OURS, label=None):
        """The n-th call of a kind, for all n that `choose` leaves of those that there are."""
        label = label or kind + ("…" if all_later else "")
        for n in choose(self.good.counts[kind] + (4 if self.row.slow else 0)):
            if not self.one(kind, n, label, self.judge.finished, action=action,
                            all_later=all_later, who=who) and n > self.good.counts[kind]:
                break

    def all_calls(self, choose):
        for kind, errnos in fault_run.ERRNOS.items():
            for action in errnos:
                name = kind if action == errnos[0] else f"{kind} {errno.errorcode[action]}"
                self.calls(kind, action, choose, label=name)
            if kind in LASTING:
                self.calls(kind, errnos[0], choose, True)
        for kind in ("read", "write"):
            self.one(kind, 1, kind + " short", self.judge.whole, action=SHORT, all_later=True)

    def device(self, most):
        """Calls of the device that fail: a wait, and all after it; memory that ends."""
        if not self.row.fake:
            return
        for name, step in (("WAITS", 1), ("MEMORY", 1 << 20)):
            for n in range(most):
                self.place.more[f"S24_FAKE_{name}"] = str(n * step)
                self.place.set_back()
                outcome = self.place.run(self.words)
                self.runs["device"] += 1
                wrong = self.judge.finished(outcome, "device")
                if wrong:
                    self.defects.append(Defect(self.name, f"device {name}", n, wrong, ""))
                if outcome.code == 0:
                    break
            del self.place.more[f"S24_FAKE_{name}"]

    def descriptors(self):
        """A limit on open files: fewer and fewer, until none is left."""
        for n in range(3, 64):
            self.place.set_back()
            outcome = self.place.run(self.words, files=n)
            self.runs["files open"] += 1
            # The loader itself opens files.
            wrong = None if outcome.code == 127 else self.judge.finished(outcome, "files")
            if wrong:
                self.defects.append(Defect(self.name, "files open", n, wrong, ""))
            if outcome.code == 0:
                break

    def kills(self, choose):
        """SIGKILL after the n-th change of a file."""
        if self.row.writes():
            for n in choose(self.good.counts["change"]):
                self.one("change", n, "killed", self.judge.killed, action=KILL)

    def kills_by_chance(self, count, seed=1):
        """SIGKILL at some moment of the run."""
        chance = random.Random(seed)
        for n in range(count if self.row.writes() else 0):
            self.place.set_back()
            outcome = self.place.run(self.words, plain=True,
                                     kill_after=chance.uniform(0.0005, self.seconds))
            self.runs["killed by chance"] += 1
            wrong = self.judge.killed(outcome)
            if wrong:
                self.defects.append(Defect(self.name, "killed by chance", n, wrong, ""))

    def power(self, count):
        """Loss of power at some moments; the next run of every tree that it leaves."""
        if not self.row.writes():
            return
        self.place.set_back()
        log = self.place.parent / "log"
        self.place.run(self.words, log=log)
        start = {**self.place.inputs, **self.place.start}
        record = fault_power.Record(self.place.folder, start, log)
        log.unlink()
        seen = set()
        for n, (is_end, files) in enumerate(fault_power.losses(record, count)):
            files = {path: data for path, data in files.items() if path not in self.place.inputs}
            self.runs["power lost"] += 1
            wrong = self.judge.outputs(fault_run.Outcome(0, b"", "", files, {}, 0, ""),
                                       is_end and not self.row.between)
            trace = hash(tuple(sorted(files.items(), key=lambda item: item[0])))
            if not wrong and trace not in seen:
                seen.add(trace)
                self.place.set_back(files)
                wrong = self.judge.run_again()
            if wrong:
                self.defects.append(Defect(self.name, "power lost", "at the end" if is_end else n,
                                           wrong, ""))

    def disks(self, choose):
        """A disk that is full after some bytes: at the ends of files, within them, at once."""
        if not self.row.writes():
            return
        total = sum(len(data or b"") for data in self.good.files.values())
        for n in sorted({min(total - 1, total * i // 40) for i in choose(40)} | {0}):
            self.one("alloc", 0, "disk full", self.judge.finished, disk=n)

    def close(self):
        self.place.close()


def every(count):
    return range(1, count + 1)


def some(most):
    """Of many calls the first ones and, beyond them, as many spread over the rest."""
    def choose(count):
        first = range(1, min(count, most // 2) + 1)
        left = count - len(first)
        step = max(1, -(-left // max(1, most - len(first))))
        return [*first, *range(len(first) + 1, count + 1, step)]
    return choose
