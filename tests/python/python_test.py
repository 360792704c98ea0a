# SPDX-License-Identifier: Apache-2.0
"""The Python package against the programs: the same documents. usage: python_test.py BUILD_FOLDER"""

import inspect
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

BUILD = pathlib.Path(sys.argv.pop(1))
sys.path.insert(0, str(BUILD / "python"))
import orrery  # noqa: E402

ROOT = pathlib.Path(__file__).parents[2]
LAYOUT = dict(topology="aws-p4d", nodes=1, tp=8, micro_batch=2, global_batch=16)
WORDS = "--model gpt2-medium --topology aws-p4d --nodes 1 --tp 8 --micro-batch 2 --global-batch 16".split()


def without_times(document):
    """Without what the clock decided: how long the search itself took."""
    if isinstance(document, dict):
        return {k: without_times(v) for k, v in document.items() if not ("wall" in k or k == "search_s" or k == "seconds")}
    return [without_times(v) for v in document] if isinstance(document, list) else document


class Package(unittest.TestCase):
    maxDiff = 2000

    def program(self, *words, code=0):
        run = subprocess.run([BUILD / "bin" / "plan", *words, "--json"], stdout=subprocess.PIPE, text=True)
        self.assertEqual(run.returncode, code)
        return without_times(json.loads(run.stdout))

    def test_documents_are_those_of_the_programs(self):
        self.assertEqual(without_times(orrery.plan("gpt2-medium", topology="aws-p4d", nodes=[1, 2], global_batch=64, top=2)),
                         self.program("--model", "gpt2-medium", "--topology", "aws-p4d", "--nodes", "1,2", "--global-batch",
                                      "64", "--top", "2"))
        self.assertEqual(without_times(orrery.predict("gpt2-medium", **LAYOUT, zigzag=None)), self.program("predict", *WORDS))
        self.assertEqual(without_times(orrery.simulate("gpt2-medium", **LAYOUT, slow_gpu=["3:1.5", "1:1.2"])),
                         self.program("simulate", *WORDS, "--slow-gpu", "3:1.5,1:1.2"))
        runs = ROOT / "calib" / "data" / "seed_systems.csv"
        self.assertEqual(without_times(orrery.validate(runs)), self.program("validate", str(runs)))

    def test_what_does_not_fit_is_an_answer(self):
        document = orrery.predict("llama3-70b", topology="aws-p4d", nodes=1, dp=8, micro_batch=1, global_batch=8)
        self.assertEqual(without_times(document),
                         self.program("predict", *"--model llama3-70b --topology aws-p4d --nodes 1 --dp 8 --micro-batch 1 "
                                      "--global-batch 8".split(), code=3))

    def test_wrong_input_is_an_exception_with_a_hint(self):
        with self.assertRaisesRegex(orrery.InputError, "did you mean"):
            orrery.plan("gpt2-mediun")
        with self.assertRaisesRegex(ValueError, "--node"):
            orrery.plan("gpt2-medium", nodse=4)
        with self.assertRaisesRegex(orrery.InputError, "which"):
            orrery.predict()
        for flag in ("help", "quiet", "json"):
            with self.assertRaisesRegex(TypeError, flag + "="):
                orrery.plan("gpt2-medium", **{flag: True})
        with self.assertRaisesRegex(TypeError, "offer_template="):
            orrery.provision("gpt2-medium", offer_template=True)
        with self.assertRaisesRegex(TypeError, "color="):
            orrery.predict("gpt2-medium", color="always")
        with self.assertRaises(TypeError):
            orrery.plan("gpt2-medium", json="x")

    def test_switches_lists_and_paths(self):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "own.yaml"
            model.write_text((ROOT / "scenarios" / "models" / "gpt2-small.yaml").read_text())
            one = orrery.predict(model, topology="aws-p4d", nodes=1, tp=2, dp=4, global_batch=16, micro_batch=1,
                                 sequence_parallel=False)
            self.assertFalse(one["strategy"]["sequence_parallel"] if "strategy" in one else False)
        self.assertIn("bert-1.5b", orrery.names("models"))
        self.assertIn("aws-p5", orrery.names("topologies"))

    def test_functions_say_what_they_take(self):
        for function in (orrery.plan, orrery.predict, orrery.simulate, orrery.validate, orrery.provision):
            self.assertIn("--json", inspect.getdoc(function))
            self.assertIn("return", function.__annotations__)

    def test_threads_ask_at_the_same_time(self):
        answers = {}
        ask = [threading.Thread(target=lambda n=n: answers.update({n: orrery.predict("gpt2-medium", **dict(LAYOUT, global_batch=n))}))
               for n in (16, 32, 48, 64)]
        for each in ask:
            each.start()
        for each in ask:
            each.join()
        for n, answer in answers.items():
            self.assertEqual(answer, orrery.predict("gpt2-medium", **dict(LAYOUT, global_batch=n)))
        self.assertEqual(len(answers), 4)


if __name__ == "__main__":
    unittest.main()
