"""Tests of the sweep's models and of what it makes of measurements, without an engine but ONNX Runtime.

    python -m unittest discover -s tests/bench
"""

import argparse
import math
import unittest
from unittest import mock

import numpy as np
import onnx

import engines
import sweep
import workload

import peer  # of tests/fuzz, whose folder `workload` adds


class Workloads(unittest.TestCase):
    def test_the_seed_decides_everything(self):
        for number in range(10):
            one, two = (workload.workload(f"s/{number}") for _ in range(2))
            self.assertEqual(one.model().SerializeToString(), two.model().SerializeToString())
            for name, array in one.feeds.items():
                np.testing.assert_array_equal(array, two.feeds[name])

    def test_models_are_valid_and_of_a_size_that_takes_time(self):
        refused = 0
        for number in range(30):
            g = workload.workload(f"s/{number}")
            work, shapes = workload.products(g), workload.shapes_of(g).values()
            self.assertLessEqual(work, workload.MOST_PRODUCTS)
            largest = max(math.prod(shape) for shape in shapes)
            self.assertTrue(largest >= workload.LEAST_ELEMENTS or work >= workload.LEAST_PRODUCTS)
            model = g.model()
            onnx.checker.check_model(model)
            try:
                peer.run(model, g.feeds)
            except Exception:  # noqa: BLE001: it has many exceptions
                refused += 1
        self.assertLess(refused, 3)

    def test_copies_side_by_side_compute_what_the_model_does(self):
        g = workload.workload("s/1")
        model = g.model()
        several, feeds = workload.copies(model, g.feeds, 3)
        onnx.checker.check_model(several)
        expected = peer.run(model, g.feeds)
        found = peer.run(several, feeds)
        self.assertEqual(len(found), 3 * len(expected))
        for position, array in enumerate(found):
            np.testing.assert_array_equal(array, expected[position % len(expected)])


class Results(unittest.TestCase):
    def test_only_cases_that_take_time_count(self):
        def row(niello, *peers):
            return {"us": {"niello": niello} | dict(zip(("onnxruntime", "openvino"), peers))}

        self.assertEqual(sweep.ratio(row(30.0, 60.0, 40.0)), 0.75)
        self.assertEqual(sweep.ratio(row(30.0, 10.0)), 3.0)
        self.assertIsNone(sweep.ratio(row(15.0, 10.0)))
        self.assertIsNone(sweep.ratio({"us": {"onnxruntime": 50.0}}))

    def test_rules_say_what_was_missed_and_repeat_nothing(self):
        loops = [{"op": "add", "rule": "elementwise", "missed": None}] * 2
        loops.append({"op": "sum", "rule": "reduction", "missed": "one element at a time"})
        expected = "add: elementwise; sum: reduction (missed: one element at a time)"
        self.assertEqual(sweep.rules({"loops": loops}), expected)

    def test_an_engine_that_fails_is_named_and_those_that_do_not_are_timed(self):
        options = argparse.Namespace(seed="s", niello="niello", backend="llvm", rounds=1, seconds=0.0001)
        why = engines.Failed("no such backend")
        with (
            mock.patch.object(engines, "openvino_call", autospec=True, side_effect=engines.Failed("not installed")),
            mock.patch.object(engines, "niello_call", autospec=True, side_effect=why) as call,
        ):
            row = sweep.measure(options, 1)
        self.assertEqual(row["failures"], {"openvino": "not installed", "niello": "no such backend"})
        self.assertEqual(list(row["us"]), ["onnxruntime"])
        self.assertTrue(sweep.is_wrong(row))
        self.assertFalse(sweep.is_refused(row))
        call.assert_called_once()

    def test_what_another_engine_wrote_is_not_taken_for_a_result(self):
        options = argparse.Namespace(seed="s", niello="niello", backend="llvm", rounds=1, seconds=0.0001)

        def idle(_niello, _backend, _model, _inputs, outputs, _folder, threads):
            return outputs, lambda: None, {}

        with (
            mock.patch.object(engines, "openvino_call", autospec=True, side_effect=engines.Failed("not installed")),
            mock.patch.object(engines, "niello_call", autospec=True, side_effect=idle),
        ):
            row = sweep.measure(options, 3)
        self.assertIn(" differs from ", row["failures"]["niello"])
        self.assertEqual(list(row["us"]), ["onnxruntime"])

    def test_nobody_is_wrong_if_both_differ(self):
        differs = "output 0 differs from ONNX Runtime's in 0.1% of its elements"
        self.assertTrue(sweep.is_wrong({"failures": {"niello": differs}}))
        self.assertTrue(sweep.is_wrong({"failures": {"niello": "no rule", "openvino": differs}}))
        self.assertFalse(sweep.is_wrong({"failures": {"niello": differs, "openvino": differs}}))
        self.assertFalse(sweep.is_wrong({"failures": {"openvino": differs}}))


if __name__ == "__main__":
    unittest.main()
