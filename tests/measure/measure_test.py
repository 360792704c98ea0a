# SPDX-License-Identifier: Apache-2.0
"""The scripts of calib/measure without a GPU: lists, files, deadlines, and steps on a pretended torch-less machine."""

import contextlib
import csv
import io
import os
import re
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MEASURE = os.path.join(ROOT, "calib", "measure")
sys.path.insert(0, MEASURE)

import kernel_cases  # noqa: E402
import kernels  # noqa: E402
import measure_all  # noqa: E402
import step_cases  # noqa: E402
import steps  # noqa: E402
import table  # noqa: E402
import timing  # noqa: E402


def quietly(call, *args):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            code = call(*args)
        except SystemExit as end:
            code = end.code
    return code, out.getvalue()


class Files(unittest.TestCase):
    def test_columns_are_those_that_the_readers_know(self):
        with open(os.path.join(ROOT, "calib/measure/samples/kernels.csv"), encoding="utf-8") as file:
            self.assertEqual(next(csv.reader(file)), table.KERNEL_COLUMNS)
        with open(os.path.join(ROOT, "calib/validate/case_row.cc"), encoding="utf-8") as file:
            lists = re.split(r"(?:kColumns|kShape) = \{", file.read())[1:]
            columns, shape, known = [re.findall(r'"(\w+)"', part.split("}")[0]) for part in lists]
            needed = columns + shape
        self.assertGreater(len(needed), 3)
        self.assertEqual([name for name in needed if name not in table.STEP_COLUMNS], [])
        self.assertGreater(len([name for name in table.STEP_COLUMNS if name in known]), 20)

    def test_rows_are_on_the_disk_at_once_and_a_second_run_appends(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "k.csv")
            first = table.Table(path, ["a", "b"])
            first.add({"a": 1.5})
            again = table.Table(path, ["a", "b"])
            again.add({"a": True, "b": "x,y"})
            with open(path, encoding="utf-8") as file:  # still open for writing
                self.assertEqual(file.read(), 'a,b\n1.5,\n1,"x,y"\n')
            with self.assertRaises(KeyError):
                again.add({"c": 1})


class Cases(unittest.TestCase):
    def test_every_set_has_cases_with_columns_of_the_file(self):
        for name, make in kernel_cases.SETS.items():
            cases = make()
            self.assertTrue(cases, name)
            for case in cases:
                self.assertEqual(set(case) - set(table.KERNEL_COLUMNS), set(), name)
            self.assertGreater(kernel_cases.estimate_s(cases), 0)

    def test_products_are_those_of_the_models_the_measured_ones_first(self):
        cases = kernel_cases.SETS["gemm"]()
        self.assertGreater(len(cases), 300)
        self.assertIn({"m": 8192, "n": 2304, "k": 768}, [{key: case[key] for key in "mnk"} for case in cases[:40]])
        one = kernel_cases.product("nt", 2, 3, 5, "bf16", "accumulate")
        self.assertEqual((one["flops"], one["bytes"]), (60, 2 * (10 + 15 + 12)))
        half = kernel_cases.attention("forward", 1, 2, 2, 8, 8, 4, True, "bf16", "flash")
        self.assertEqual((half["flops"], half["bytes"]), (4 * 2 * 64 * 4 / 2, 2 * 4 * 64))

    def test_parameters_are_the_published_ones(self):
        for model, count in (("gpt2-small", 124439808), ("gpt2-xl", 1557611200), ("llama-1b", 1100048384)):
            self.assertEqual(step_cases.parameters_of(step_cases.read_model(model))[0], count)
        # The BERT backbone and its pre-training head (h^2 + 3 h + vocabulary).
        self.assertEqual(step_cases.parameters_of(step_cases.read_model("bert-large"))[0],
                         335141888 + 1024 * 1024 + 3 * 1024 + 30522)

    def test_steps_name_their_columns_and_count_operations(self):
        for chosen in step_cases.SETS.values():
            for one in chosen:
                row = steps.describe(one, step_cases.config_of(one), one.batches[0])
                self.assertEqual(set(row) - set(table.STEP_COLUMNS), set())
                self.assertEqual(list(one.batches), sorted(one.batches))
                # Trainer compiles the loss with the blocks, too.
                self.assertEqual("compile_loss=on" in row["framework"], one.compiled != "no")
                self.assertGreater(step_cases.estimate_s(one), 0)
        small = step_cases.read_model("gpt2-small")
        per_token = step_cases.flops_per_sequence(small, 1024) / 1024
        self.assertEqual(per_token, 6 * (124439808 - 1024 * 768) + 12 * 12 * 768 * 1024)


class Arguments(unittest.TestCase):
    def test_wrong_words_are_refused(self):
        for call, words in ((kernels.main, ["--set", "gemn"]), (steps.main, ["--set", "x"]),
                            (steps.main, ["--batches", "1,b"]), (measure_all.main, ["--part", "3"])):
            code, text = quietly(call, words)
            self.assertEqual(code, 2)
            self.assertIn("error", text)

    def test_machines_have_their_devices(self):
        self.assertEqual(steps.machine_of("NVIDIA H100 80GB HBM3"), ("h100", "aws-p5"))
        self.assertEqual(steps.machine_of("NVIDIA GH200 480GB"), ("gh200", ""))
        self.assertEqual(steps.machine_of("NVIDIA A100-SXM4-40GB"), ("a100", "aws-p4d"))
        self.assertEqual(steps.machine_of("NVIDIA RTX A6000"), ("a6000", ""))
        for _, topology in steps.MACHINES:
            self.assertTrue(not topology or os.path.exists(
                os.path.join(os.path.dirname(steps.__file__), "..", "..", "topologies", topology + ".yaml")), topology)

    def test_dry_runs_list_everything(self):
        code, text = quietly(measure_all.main, ["--dry-run"])
        self.assertEqual(code, 0)
        for piece in measure_all.PIECES:
            self.assertIn(piece.name, text)
        named = {name for piece in measure_all.PIECES if "--set" in piece.words
                 for name in piece.words[-1].split(",")}
        self.assertEqual(named, set(kernel_cases.SETS) | set(step_cases.SETS))
        code, text = quietly(steps.main, ["--set", "fp32", "--batches", "2", "--dry-run"])
        self.assertIn("gpt2-small seq 1024 batch 2 fp32", text)
        self.assertIn("3 steps", text)

    def test_parts_fit_their_command(self):
        for part in (1, 2):
            deadlines = [piece.deadline_s for piece in measure_all.PIECES if piece.part == part]
            self.assertLessEqual(sum(deadlines), 630)  # some end early; the last is cut short


class Deadlines(unittest.TestCase):
    def run_script(self, text, seconds):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "piece.py"), "w", encoding="utf-8") as file:
                file.write(text)
            piece = measure_all.Piece(1, "made up", seconds, ["piece.py"])
            begin = time.monotonic()
            with open(os.path.join(folder, "log"), "w+", encoding="utf-8") as log:
                code = measure_all.run_piece(piece, seconds, folder, log, folder=folder)
                log.seek(0)
                return code, time.monotonic() - begin, log.read(), os.listdir(folder)

    def test_a_hanging_piece_is_killed_and_keeps_its_rows(self):
        code, took, _, files = self.run_script(
            "import os, signal, sys, time\n"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "open(os.path.join(sys.argv[2], 'kernels.csv'), 'w').write('a row')\n"
            "time.sleep(60)\n", 1.0)
        self.assertIsNone(code)
        self.assertLess(took, 20)
        self.assertIn("kernels.csv", files)

    def test_a_dying_piece_says_why_in_the_log(self):
        code, _, log, _ = self.run_script("raise RuntimeError('CUDA error: made up')\n", 30)
        self.assertEqual(code, 1)
        self.assertIn("CUDA error: made up", log)

    def test_what_does_not_fit_is_not_begun(self):
        now = [0.0]

        def run(piece, seconds, out, log):
            now[0] += min(seconds, 50)
            return None if seconds < 50 else 0
        pieces = [measure_all.Piece(1, str(i), 60, []) for i in range(5)]
        with tempfile.TemporaryDirectory() as folder:
            report = measure_all.run_all(pieces, 130, folder, run=run, clock=lambda: now[0], say=lambda *a, **k: None)
        self.assertEqual([what for _, _, what in report],
                         ["ok", "ok", "ended at its deadline", "no time left", "no time left"])

    def test_without_torch_the_exit_code_says_so(self):
        sys.modules["torch"] = None  # an import of it fails
        try:
            for call in (kernels.main, steps.main):
                code, text = quietly(call, [])
                self.assertEqual(code, 2)
                self.assertIn("no torch", text)
        finally:
            del sys.modules["torch"]


class Timing(unittest.TestCase):
    def test_percentiles(self):
        self.assertEqual(timing.percentile([1.0, 2.0, 3.0], 0.5), 2.0)
        self.assertAlmostEqual(timing.percentile([0.0, 10.0], 0.1), 1.0)
        time_of = timing.summary([4.0, 2.0, 6.0], 2)
        self.assertEqual((time_of.median, time_of.calls), (2.0, 6))

    def test_sets_leave_the_cache(self):
        self.assertEqual(timing.sets_for(1 << 30), 2)
        self.assertEqual(timing.sets_for(1 << 40), 1)
        self.assertEqual(timing.sets_for(4096), 16)

    def test_a_failing_case_is_named_and_the_next_one_timed(self):
        class Pretended:
            def __init__(self):
                self.rows = []

            def add(self, row):
                self.rows.append(row)

            def columns(self):
                return {"device": "pretended"}

        class Calls:
            @staticmethod
            def time_case(_, case):
                if case["n"] == 2:
                    raise RuntimeError("out of memory")
                return {**case, "seconds": 1.0}

            @staticmethod
            def release(_):
                pass
        pretended, cases = Pretended(), [{"kind": "optimizer", "op": "sgd", "n": n} for n in (1, 2, 3)]
        sys.modules["kernel_calls"], before = Calls, sys.modules.get("kernel_calls")
        try:
            with contextlib.redirect_stderr(io.StringIO()) as said:
                done, failed = kernels.measure(None, cases, pretended, pretended, time.monotonic() + 60)
        finally:
            sys.modules.pop("kernel_calls")
            if before:
                sys.modules["kernel_calls"] = before
        self.assertEqual((done, len(failed), len(pretended.rows)), (2, 1, 2))
        self.assertIn("n=2", said.getvalue())


if __name__ == "__main__":
    unittest.main()
