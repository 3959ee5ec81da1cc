# SPDX-License-Identifier: Apache-2.0
"""plan: what it says of a model that is known exactly, and how it keeps the model that it measures.
The measuring itself is asked for the smallest grid and judged by its shape, not its figures."""
import json
import math
import os
import shutil
import subprocess
import unittest

from cli_case import (PATIENCE, PROGRAM, Scratch, clean_environment, listing, one_object,
                      preloaded, run)

SMALL = ["--threads", "1", "--largest", "128", "--predict"]
TIMED = ["--threads", "1"]
KEYS = {"version", "date", "machine", "cpu", "versions", "m", "k", "n", "dtype", "threads",
        "dense_dtype", "faster",
        "ratio", "rows", "dense_faster", "chosen"}
ROW = {"threads", "sparse_ms", "dense_ms", "ratio", "timed", "measured", "error_median",
       "error_worst", "cache"}


# In place of the machine's clock: looks of a thread are 1 ms apart, or ever longer; none sleeps.
CLOCK = """#include <time.h>
int clock_gettime(clockid_t id, struct timespec *now)
{
    static __thread double time = 1, step = 1e-3;
    (void)id;
    time += step;
    step = step < 1e9 ? step * GROWTH : step;
    now->tv_sec = (time_t)time;
    now->tv_nsec = (long)(1e9 * (time - (double)now->tv_sec));
    return 0;
}
int nanosleep(const struct timespec *time, struct timespec *left)
{
    (void)time;
    (void)left;
    return 0;
}
"""


def clock(folder, growth):
    """The environment of a program that looks at such a clock: its times come twice whatever else
    runs here, unless they grow."""
    library = folder / f"clock-{growth}.so"
    if not library.exists():
        subprocess.run([os.environ["CC"], "-shared", "-fPIC", f"-DGROWTH={growth}", "-x", "c", "-",
                        "-o", library], input=CLOCK, text=True, check=True)
    return preloaded(library)


def computed(m, k, n):
    """What the kernels compute of a shape on one thread."""
    def up(value, step):
        return -(-value // step) * step

    return m if m <= 16 else up(m, 16), up(k, 32), up(n, 16)


class Plan(Scratch):
    @staticmethod
    def make(folder):
        steady = clock(folder, "1")
        done = run("plan", 8, 128, 128, *SMALL,
                   environment={**steady, "XDG_CACHE_HOME": str(folder / "cache")})
        assert done.returncode == 0, done.stderr

    @property
    def steady(self):
        return clock(self.folder, "1")

    @property
    def here(self):
        return {**self.steady, "XDG_CACHE_HOME": str(self.folder / "cache")}

    def kept(self):
        return sorted((self.folder / "cache/sparse24").iterdir())

    def plan(self, *arguments, **more):
        return self.json("plan", *arguments, **{"environment": self.here, **more})

    def craft(self, sparse, dense, sizes=(128, 512), steps=(1, 16, 256), checks=None):
        """The kept file with times of our own: functions of m, k and n in ms."""
        path, = self.kept()
        content = json.loads(path.read_text())
        shapes = [(m, k, n) for k in sizes for n in sizes for m in steps]

        def rows(them):
            return [[*s, sparse(*s), dense(*s)] for s in them]

        content.update(sizes=list(sizes), points=rows(shapes),
                       checks=checks or rows([(3, 200, 300)]), measured="2026-01-02T03:04:05Z")
        path.write_text(json.dumps(content))
        return path

    def test_powers_are_read_exactly_between_points_and_beyond(self):
        def sparse(m, k, n):
            return 1e-6 * math.prod(computed(m, k, n))

        path = self.craft(sparse, lambda m, k, n: 4e-6 * m**0.5 * k * n)
        before = listing(self.folder)
        for m, k, n in ((1, 128, 128), (5, 200, 300), (100, 512, 128), (256, 512, 512),
                        (3000, 4096, 100), (2, 64, 2048)):
            found = self.plan(m, k, n, "--threads", 1, "--predict")
            self.assertEqual(set(found), KEYS)
            row, = found["rows"]
            self.assertEqual(set(row), ROW)
            self.assertTrue(math.isclose(row["sparse_ms"], sparse(m, k, n), rel_tol=1e-6), (m, row))
            # Above the grid's 256 tokens both times grow with the work.
            dense = 4e-6 * min(m, 256)**0.5 * max(1, m / 256) * k * n
            self.assertTrue(math.isclose(row["dense_ms"], dense, rel_tol=1e-6), (m, row))
            self.assertTrue(math.isclose(row["ratio"], dense / sparse(m, k, n), rel_tol=1e-6))
            self.assertEqual(found["faster"], "dense" if m > 16 else "2:4")
            # sqrt(m) is 4 at 16 tokens; beyond the end it is never said to turn again.
            turn = next(i for i in range(1, 18) if sparse(i, k, n) > 3.999e-6 * i**0.5 * k * n)
            self.assertEqual([(r["from"] - turn in (0, 1), r["to"]) for r in found["dense_faster"]],
                             [(True, None)])
            self.assertEqual((row["measured"], row["cache"]), ("2026-01-02T03:04:05Z", str(path)))
            self.assertLess(row["error_worst"], 1e-9)
        self.assertEqual(listing(self.folder), before)

    def test_a_layer_is_timed(self):
        """Without a model: nothing is read or kept, and every dtype has dense to compare with."""
        before = listing(self.folder)
        for dtype in ("f32", "bf16", "i8"):
            for m, k, n in ((5, 128, 96), (70, 200, 36), (1030, 64, 16)):
                found = self.plan(m, k, n, *TIMED, "--dtype", dtype)
                self.assertEqual((set(found), found["dtype"]), (KEYS, dtype))
                row, = found["rows"]
                self.assertEqual(set(row), ROW)
                self.assertEqual((row["timed"], row["cache"]), (True, None))
                self.assertTrue(row["sparse_ms"] > 0 and row["dense_ms"] > 0)
                self.assertTrue(math.isclose(found["ratio"], row["dense_ms"] / row["sparse_ms"],
                                             rel_tol=1e-6))
                faster = {"2:4": "sparse_ms", "dense": "dense_ms"}[found["faster"]]
                self.assertLessEqual(row[faster], min(row["sparse_ms"], row["dense_ms"]) * 1.000001)
            words = self.good("plan", 5, 128, 96, *TIMED, "--dtype", dtype,
                              environment=self.here).stdout
            made = found["dense_dtype"]
            self.assertIn(made, ("i8", "bf16") if dtype == "i8" else (dtype,))
            dense = f"dense in {'int8' if made == 'i8' else 'bf16'}" if dtype == "i8" else "dense"
            self.assertRegex(words, rf"Timed 2\S+, {dense} by .+; seven turns of one number of "
                                    r"tokens differ by \d+ % \(median\), \d+ % \(worst\)\.\n")
        self.assertEqual(listing(self.folder), before)

    def test_all_threads_are_timed(self):
        found = self.plan(9, 128, 96)
        rows = self.json("bench", "--prune", "1", "--rounds", "1", "--min-ms", "1")["rows"]
        # The process's, or as many as a container's quota pays for.
        cores = max(row["threads"] for row in rows)
        self.assertLessEqual(cores, len(os.sched_getaffinity(0)))
        self.assertEqual([r["threads"] for r in found["rows"]], sorted({1, cores}))
        self.assertIn(found["threads"], (1, cores))

    def test_a_layer_of_gigabytes_is_predicted(self):
        row, = self.plan(8, 1 << 14, (1 << 14) + 1, "--threads", 1, "--largest", 128)["rows"]
        self.assertFalse(row["timed"])

    def test_tokens_of_a_wide_layer_stay_within_memory(self):
        """A thousand tokens of a million inputs would be 4 GB. By the machine's clock, which bounds
        what is timed."""
        cache = {"XDG_CACHE_HOME": str(self.folder / "cache")}
        with subprocess.Popen([PROGRAM, "plan", "1", "1000000", "4", "--threads", "1", "-q"],
                              stdout=subprocess.DEVNULL,
                              env=clean_environment(cache)) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0)
        if not os.environ.get("S24_SANITIZE"):  # whose own memory would be measured
            self.assertLess(usage.ru_maxrss, 5 << 19)  # in kB

    def test_a_layer_that_other_work_disturbed_gets_no_advice(self):
        """By a clock on which everything takes longer than what came before."""
        done = self.good("plan", 8, 128, 128, *TIMED,
                         environment={**self.here, **clock(self.folder, "1.2")})
        self.assertIn("No advice: other work ran while this layer was timed; plan times it "
                      "again.\n", done.stdout)
        self.assertNotIn("Take", done.stdout)

    def test_formats(self):
        """Those whose blocks divide the layer, at every share, and from which one on they win."""
        options = (5, 96, 160, *SMALL, "--formats")
        found = self.plan(*options)
        self.assertEqual(set(found), KEYS | {"formats"})
        formats = found["formats"]
        self.assertEqual([f["format"] for f in formats],
                         ["6:8", "csr", "bsr:4x1", "bsr:16x16", "bsr:32x32"])
        for f in formats:
            self.assertEqual([t["zeros"] for t in f["times"]],
                             [0.25] if f["format"] == "6:8" else [0.5, 0.6, 0.7, 0.8, 0.9, 0.95])
            for key, rival in (("beats_dense_from", "dense_ms"), ("beats_two_four_from",
                                                                 "sparse_ms")):
                first = 1 if f[key] is None else f[key]
                wins = [t for t in f["times"] if t["zeros"] >= first]
                self.assertTrue(all(t["ms"] <= f[rival] for t in wins))
                self.assertTrue(not wins or wins[0]["zeros"] == first)
        words = self.good("plan", *options, environment=self.here).stdout
        self.assertRegex(words, r"6:8 +ms +[\d.]+ +\(25 %\) +(25 %|no share), (25 %|no share)\n")
        self.assertRegex(words, r"bsr:32x32 +ms( +[\d.]+){6}  (\d\d %|no share), ")

    def test_formats_of_integers(self):
        """All are multiplied as blocks of 4x1."""
        found = self.json("plan", "5", "96", "160", "--threads", "1", "--dtype", "i8", "--formats",
                          environment=self.here)
        (form,) = found["formats"]
        self.assertEqual(form["format"], "bsr:4x1")
        self.assertEqual(len(form["times"]), 6)
        self.assertTrue(all(t["ms"] > 0 for t in form["times"]))

    def test_rows_of_kernels(self):
        """Each that this CPU could take is timed, the one that is taken first."""
        for dtype in ("f32", "bf16", "i8"):
            how = TIMED if dtype == "i8" else SMALL
            options = (5, 128, 128, *how, "--dtype", dtype, "--rows")
            found = self.plan(*options)
            names = [k["kernel"] for k in found["kernels"]]
            self.assertEqual(set(found), KEYS | {"kernels", "timed_dense_ms"})
            self.assertGreater(found["timed_dense_ms"], 0)
            taken = [k["taken"] for k in found["kernels"]]
            self.assertEqual(taken, [True] + [False] * (len(names) - 1))
            self.assertTrue(all(k["ms"] > 0 for k in found["kernels"]))
            self.assertEqual(len(set(names)), len(names))
            self.assertTrue(all(f"_{dtype}_" in name for name in names), names)
            if "avx512" in names[0] and dtype == "f32":
                self.assertEqual(set(names), {"linear_f32_avx2", "linear_f32_avx2_near",
                                              "linear_f32_avx512", "linear_f32_avx512_broadcast"})
            words = self.good("plan", *options, environment=self.here).stdout
            self.assertIn(f"{names[0]}, which is taken\n", words)
            self.assertRegex(words, r" ms  dense by \S")
        portable = self.plan(5, 128, 128, *SMALL, "--isa", "baseline", "--rows")
        self.assertEqual(len(portable["kernels"]), 1)

    def test_words(self):
        self.craft(lambda m, k, n: 2.0 * m, lambda m, k, n: 5.0 * m)
        done = self.good("plan", 7, 128, 128, "--threads", 1, "--predict", environment=self.here)
        self.assertRegex(done.stdout, r"(?m)^ +1 +14\.0000 +35\.0000 +2\.50x$")
        self.assertIn("Take 2:4 on 1 thread: 2.50x as fast as dense there.\n", done.stdout)
        self.assertIn("With K 128 and N 128 on 1 thread dense is faster for no M.\n", done.stdout)
        self.assertIn("Measured 2026-01-02T03:04:05Z", done.stdout)
        # 2:4 loses up to 4 tokens, from 128 on, and where most of a vector of tokens beyond 48 is
        # empty.
        self.craft(lambda m, k, n: {1: 2.0, 4: 4.0, 16: 5.0, 64: 28.0, 128: 60.0}[m],
                   lambda m, k, n: {1: 1.0, 4: 4.0, 16: 10.0, 64: 30.0, 128: 60.0}[m],
                   steps=(1, 4, 16, 64, 128), checks=[[4, 128, 128, 4.0, 4.0]])
        done = self.good("plan", 1, 128, 128, "--threads", 1, "--predict", environment=self.here)
        self.assertIn("Take dense on 1 thread: 2.00x as fast as 2:4 there.\n", done.stdout)
        # Tokens go one by one up to 48, or up to 40.
        self.assertRegex(done.stdout,
                         r"dense is faster for M 1 to [34], (M 41 to 4\d, )?"
                         r"M 49 to 5\d, M 65 to 7\d, .*M 113 and more\.\n")

    def test_dense_of_uneven_shapes_takes_what_checks_of_them_take(self):
        self.craft(lambda m, k, n: 2.0 * m, lambda m, k, n: 3.0 * m,
                   checks=[[4, 128, 100, 8.0, 24.0], [4, 100, 128, 8.0, 24.0],
                           [4, 128, 128, 8.0, 12.0]])
        for k, n, dense in ((128, 128, 12.0), (128, 120, 24.0), (108, 128, 24.0)):
            row = self.plan(4, k, n, "--threads", 1, "--predict")["rows"][0]
            self.assertAlmostEqual(row["dense_ms"] / dense, 1, places=1)

    def test_a_difference_within_the_error_is_no_advice(self):
        self.craft(lambda m, k, n: 2.0 * m, lambda m, k, n: 2.1 * m,
                   checks=[[3, 128, 128, 5.0, 7.0]])  # 6 and 6.3 are told
        done = self.good("plan", 7, 128, 128, "--threads", 1, "--predict", environment=self.here)
        self.assertIn("About even on 1 thread: the difference is within the error.\n", done.stdout)

    def test_a_model_that_is_wrong_off_its_grid_gives_no_advice(self):
        self.craft(lambda m, k, n: 2.0 * m, lambda m, k, n: 9.0 * m,
                   checks=[[3, 128, 128, 20.0, 30.0]])  # 6 and 27 are told
        done = self.good("plan", 7, 128, 128, "--threads", 1, "--predict", environment=self.here)
        self.assertIn("No advice: other work ran while this machine was measured", done.stdout)
        self.assertIn("--measure does it again", done.stdout)
        self.assertNotIn("Take", done.stdout)
        self.assertNotIn("dense is faster", done.stdout)

    def of_two_threads(self):
        """The kept model of one thread and where the same one of two threads is to lie."""
        one, = self.kept()
        content = json.loads(one.read_text())
        key = {**content["key"], "threads": 2}
        name = 14695981039346656037
        for byte in json.dumps(key, sort_keys=True, separators=(",", ":")).encode():
            name = (name ^ byte) * 1099511628211 % 2**64
        return one, {**content, "key": key}, one.with_name(f"plan-{name:016x}.json")

    def test_the_faster_number_of_threads_is_chosen(self):
        """Two models, of one and of two threads; the latter loses."""
        one, content, two = self.of_two_threads()
        for path, threads in ((one, 1), (two, 2)):
            for name in ("points", "checks"):
                content[name] = [[m, k, n, threads * m, threads * 2 * m] for m, k, n, _, _ in
                                 content[name]]
            content["key"]["threads"] = threads
            path.write_text(json.dumps(content))
        for threads in (1, 2):
            found = self.plan(8, 128, 128, "--threads", threads, "--predict")
            self.assertEqual(found["threads"], threads)
            self.assertTrue(math.isclose(found["rows"][0]["sparse_ms"], 8 * threads))
        found = self.plan(8, 128, 128, "--largest", 128, "--predict")
        self.assertEqual(found["rows"][0]["threads"], 1)
        self.assertEqual(found["threads"] in [r["threads"] for r in found["rows"]], True)

    def test_what_is_measured(self):
        path, = self.kept()
        content = json.loads(path.read_text())
        self.assertEqual(set(content), {"version", "key", "measured", "sizes", "points", "checks"})
        self.assertEqual(set(content["key"]),
                         {"cpu", "isa", "sparse24", "dense_engine", "dtype", "threads"})
        self.assertEqual(content["sizes"], [128])
        self.assertEqual(content["points"][0][:3], [1, 128, 128])
        self.assertTrue(all(t > 0 for p in content["points"] + content["checks"] for t in p[3:]))
        first = self.plan(8, 128, 128, *SMALL)
        self.assertEqual(path.read_bytes(), (self.fixtures / "cache/sparse24" / path.name)
                         .read_bytes())
        again = self.plan(8, 128, 128, *SMALL)
        self.assertEqual(first["rows"], again["rows"])

    def test_measure_again(self):
        path = self.craft(lambda m, k, n: 1.0, lambda m, k, n: 1.0)
        self.plan(8, 128, 128, *SMALL, "--measure")
        self.assertNotIn("2026-01-02", path.read_text())
        self.assertEqual(self.kept(), [path])  # and no temporary file

    def test_another_dtype_or_isa_is_another_model(self):
        for more in (["--dtype", "bf16"], ["--isa", "baseline"]):
            self.assertEqual(self.plan(8, 128, 128, *SMALL, *more)["dtype"], (more + ["f32"])[1]
                             if more[0] == "--dtype" else "f32")
        self.assertEqual(len(self.kept()), 3)

    def test_a_file_that_cannot_be_read_counts_as_absent(self):
        path, = self.kept()
        good = json.loads(path.read_text())
        points = good["points"]
        for name, text in (
                ("not JSON", "{"), ("no object", "[]"), ("empty", ""),
                *((key, json.dumps({**good, **part})) for key, part in (
                    ("another key", {"key": {**good["key"], "cpu": "another"}}),
                    ("no points", {"points": []}),
                    ("a point too short", {"points": [[1, 128, 128, 1.0]]}),
                    ("a time of 0", {"points": [[1, 128, 128, 0, 1.0]]}),
                    ("words", {"points": [["1", 128, 128, 1, 1]]}),
                    ("another size", {"points": points + [[1, 64, 128, 1, 1]]}),
                    ("falling", {"points": points[::-1]}),
                    ("sizes that fall", {"sizes": [128, 64]}),
                    ("too many sizes", {"sizes": list(range(1, 100))}),
                    ("a size without points", {"sizes": [128, 256]}),
                    ("no sizes", {"sizes": []}),
                    ("too many points", {"points": [[m, 128, 128, 1, 1] for m in range(1, 99)]}),
                    ("too many checks", {"checks": [[1, 128, 128, 1, 1]] * 99}),
                    ("no checks", {"checks": []}), ("no date", {"measured": 3})))):
            with self.subTest(name):
                path.write_text(text)
                done = self.good("plan", 8, 128, 128, *SMALL, environment=self.here)
                self.assertIn(f"{path} is of another make or damaged: measured again", done.stderr)
                self.assertEqual(json.loads(path.read_text())["sizes"], [128])

    def measured_again(self, path, reason, *arguments, threads=1):
        """A poisoned file is named, and another stands there afterwards; but two threads that wait
        look at the clock as often as the scheduler lets them: times that differ are not kept."""
        before = path.read_text()
        done = self.good("plan", 8, 128, 128, *arguments, environment=self.here)
        self.assertIn(f"{path} was measured while other work ran ({reason}): measured again",
                      done.stderr)
        if threads == 1 or "no advice and no model for" not in done.stderr:
            self.assertNotEqual(path.read_text(), before)

    def test_times_that_other_work_disturbed_are_not_believed(self):
        """236 ms where 0.1 was right."""
        tokens, layer = (f"its times do not grow with the {of}" for of in ("tokens", "layer"))
        wrong = "it is wrong of shapes off its grid"
        for name, reason, at, checks in (
                ("the first", tokens, lambda m, k, n: m == 1, None),
                ("the last", tokens, lambda m, k, n: m == 256, None),
                ("a layer", layer, lambda m, k, n: k == 512 and n == 128, None),
                ("the checks", wrong, lambda m, k, n: False, [[3, 200, 300, 1e-4, 1e-4]])):
            for way in range(2):
                with self.subTest(name, way=way):
                    times = [lambda m, k, n: 1e-6 * m * k * n] * 2
                    times[way] = lambda m, k, n: 1e-6 * m * k * n * (2000 if at(m, k, n) else 1)
                    path = self.craft(*times, checks=checks)
                    self.measured_again(path, reason, *SMALL)
                    (self.folder / "cache/sparse24" / path.name).write_bytes(
                        (self.fixtures / "cache/sparse24" / path.name).read_bytes())

    def test_a_machine_that_is_too_busy_gets_no_model(self):
        """By a clock on which everything takes longer than what came before."""
        path, = self.kept()
        path.unlink()
        busy = {**self.here, **clock(self.folder, "1.2")}
        words = ["plan", 8, 128, 128, *SMALL]
        done = run(*words, cwd=self.folder, environment=busy)
        self.assertEqual((done.returncode, done.stdout), (5, ""), done.stderr)
        self.assertIn("other work ran while 1 thread was measured (its times do not come twice): "
                      "no advice and no model for so many\n", done.stderr)
        self.assertIn("this machine is too busy to be measured", done.stderr)
        found = self.json(*words, exit=5, environment=busy)
        self.assertRegex(found["error"], "too busy to be measured.*nothing was kept")
        self.assertEqual(self.kept(), [])

    def test_threads_that_take_many_times_as_long_are_not_believed(self):
        one, content, two = self.of_two_threads()
        for part in ("points", "checks"):
            content[part] = [[m, k, n, 0.5 * m, 0.5 * m] for m, k, n, _, _ in content[part]]
        one.write_text(json.dumps({**content, "key": {**content["key"], "threads": 1}}))

        def write(factor):
            points, checks = ([[m, k, n, factor * s, factor * d] for m, k, n, s, d in content[part]]
                              for part in ("points", "checks"))
            two.write_text(json.dumps({**content, "points": points, "checks": checks}))

        write(3)  # slower, as two threads may be
        both = ("--threads", 2, "--predict")
        self.assertEqual(self.plan(8, 128, 128, *both)["rows"][0]["sparse_ms"], 12)
        write(2000)
        self.assertEqual(self.plan(8, 128, 128, *both)["rows"][0]["sparse_ms"], 8000)
        if len(os.sched_getaffinity(0)) == 2:
            self.measured_again(two, "it is many times as slow as one thread", "--predict",
                                "--largest", 128, threads=2)

    def test_where_the_model_is_kept(self):
        home = self.folder / "home"
        home.mkdir()
        for cache in ("", "relative"):
            found = self.plan(8, 128, 128, *SMALL,
                              environment={**self.steady, "XDG_CACHE_HOME": cache,
                                           "HOME": str(home)})
            self.assertTrue(found["rows"][0]["cache"].startswith(f"{home}/.cache/sparse24/plan-"))
            shutil.rmtree(home / ".cache")
        done = self.good("plan", 8, 128, 128, *SMALL,
                         environment={**self.steady, "XDG_CACHE_HOME": "", "HOME": ""})
        self.assertIn("neither XDG_CACHE_HOME nor HOME is a folder's path: not kept", done.stderr)

    def test_a_place_that_cannot_be_written_is_no_error(self):
        done = self.good("plan", 8, 128, 128, *SMALL, "--json",
                         environment={**self.steady, "XDG_CACHE_HOME": "/dev/null"})
        self.assertIn("could not be written (Not a directory)", done.stderr)
        self.assertIsNone(json.loads(done.stdout)["rows"][0]["cache"])

    def test_many_at_once(self):
        """Programs that measure and keep the same model: every one answers, a whole file stays."""
        path, = self.kept()
        path.unlink()
        command = [PROGRAM, "plan", "8", "128", "128", *SMALL, "--json"]
        running = [subprocess.Popen(command, env=clean_environment(self.here), text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                   for _ in range(4)]
        for child in running:
            out, error = child.communicate(timeout=PATIENCE)
            self.assertEqual((child.returncode, error.count("damaged")), (0, 0), error)
            self.assertEqual(one_object(out)["rows"][0]["cache"], str(path))
        self.assertEqual(self.kept(), [path])
        self.assertEqual(self.good("plan", 8, 128, 128, *SMALL, environment=self.here).stderr, "")

    def test_refusals(self):
        self.refusals([
            *((word, ["plan", word, "128", "128"], 2,
               rf"M: '{word}' is not a whole number from 1 to 16777216")
              for word in ("0", "x", "1.5", "99999999999999999999", "16777217")),
            ("K", ["plan", "1", "6", "8"], 2, r"K: 6 is not a multiple of 4"),
            ("N", ["plan", "1", "8", "many"], 2, r"N: 'many' is not a whole number"),
            ("two", ["plan", "1", "8"], 2, r"plan needs M K N, got only '1' and '8'"),
            ("dtype", ["plan", "1", "8", "8", "--dtype", "luck"], 2, r"--dtype: 'luck' is not one"),
            ("largest", ["plan", "1", "8", "8", "--measure", "--largest", "127"], 2,
             r"--largest: 127 is less than 128"),
            *((name, ["plan", "1", "8", "8", "--dtype", "i8", f"--{name}"], 2,
               rf"option --{name}: it is of f32 and bf16, and not of --dtype i8")
              for name in ("predict", "measure")),
        ])


if __name__ == "__main__":
    unittest.main()
