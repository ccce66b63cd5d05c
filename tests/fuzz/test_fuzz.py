"""Tests of the fuzzer itself: what it makes is valid and repeatable, and what is wrong is found wrong.

    python -m unittest discover -s tests/fuzz
"""

import unittest

import fuzz
import generate
import judge
import numpy as np
import onnx
import peer
import shrink
from onnx import parser


def model(text):
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 17]> {text}')


# The mean of squares less the square of the mean: nothing is left of the digits that both have.
CANCELLING = model("""agraph (float[4] x) => (float[1] y) {
    s = Mul(x, x) m = ReduceMean<axes=[0]>(s) n = ReduceMean<axes=[0]>(x) q = Mul(n, n) y = Sub(m, q) }""")
CHAIN = model("""agraph (float[2,3] x, float[3,2] w) => (float[2,2] y) {
    m = MatMul(x, w) t = Tanh(m) a = Abs(t) r = Relu(a) y = Neg(r) }""")


class Generator(unittest.TestCase):
    def test_the_seed_decides_everything(self):
        for number in range(20):
            one, two = (generate.graph(f"s/{number}") for _ in range(2))
            self.assertEqual(one.model().SerializeToString(), two.model().SerializeToString())
            for name, array in one.feeds.items():
                np.testing.assert_array_equal(array, two.feeds[name])
            graph = generate.graph(f"s/{number}")
            self.assertEqual(generate.setting(f"s/{number}", graph), generate.setting(f"s/{number}", graph))

    def test_nearly_all_graphs_are_valid_and_have_the_declared_shapes(self):
        refused = 0
        for number in range(200):
            graph = generate.graph(f"s/{number}")
            made = graph.model()
            try:
                outputs = peer.run(made, graph.feeds)
            except Exception:  # noqa: BLE001: it has many exceptions
                refused += 1
                continue
            onnx.checker.check_model(made)
            for value, output in zip(made.graph.output, outputs, strict=True):
                shape = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
                self.assertEqual(shape, output.shape, f"case {number}: {value.name}")
        self.assertLess(refused, 8)


class Judge(unittest.TestCase):
    def verdict(self, made, feeds, change):
        expected = peer.run(made, feeds)
        found = [change(output.copy()) for output in expected]
        return judge.judge(made, feeds, found, expected)[0]

    def test_a_result_that_rounding_explains_is_right(self):
        feeds = {"x": np.full(4, 0.3, np.float32)}
        self.assertEqual(self.verdict(CANCELLING, feeds, lambda y: y + np.float32(3e-8)), "right")
        self.assertEqual(self.verdict(CANCELLING, feeds, lambda y: y + np.float32(1e-4)), "wrong")
        self.assertEqual(self.verdict(CANCELLING, feeds, lambda y: y * np.float32(np.nan)), "wrong")

    def test_one_wrong_element_is_wrong_however_small_it_is(self):
        feeds = {"x": np.ones((2, 3), np.float32), "w": np.array([[1e-3, 9]] * 3, np.float32)}

        def first(y):
            y[0, 0] *= np.float32(1.001)
            return y

        self.assertFalse(judge.near(first(peer.run(CHAIN, feeds)[0]), peer.run(CHAIN, feeds)[0]))
        self.assertEqual(self.verdict(CHAIN, feeds, first), "wrong")
        self.assertEqual(self.verdict(CHAIN, feeds, lambda y: y), "right")

    def test_denormal_numbers_may_be_zeros_where_they_are_flushed(self):
        made = model("agraph (float[2] x, float[2] y) => (bool[2] z) { z = Equal(x, y) }")
        feeds = {"x": np.array([3e-40, 2e-38], np.float32), "y": np.zeros(2, np.float32)}
        expected = np.array([False, False])

        def verdict(found, flush):
            return judge.judge(made, feeds, [np.array(found)], [expected], flush)[0]

        self.assertEqual([verdict([True, False], flush) for flush in (False, True)], ["wrong", "right"])
        self.assertEqual(verdict([False, True], True), "wrong")

    def test_integers_are_exact_unless_a_tie_was_rounded(self):
        made = model("agraph (float[2] x, float s, uint8 z) => (uint8[2] y) { t = Tanh(x) y = QuantizeLinear(t, s, z) }")
        feeds = {"x": np.array([0.2, 1.0], np.float32), "s": np.array(0.1, np.float32), "z": np.array(128, np.uint8)}
        self.assertEqual(self.verdict(made, feeds, lambda y: y + np.uint8([1, 0])), "wrong")
        tie = np.arctanh(np.float64(0.15)).astype(np.float32)
        feeds["x"] = np.array([tie, 1.0], np.float32)
        found = [np.uint8([129, 136])], [np.uint8([130, 136])]
        self.assertEqual({judge.judge(made, feeds, *pair)[0] for pair in (found, found[::-1])}, {"right"})

    def test_booleans_are_exact_unless_a_tie_was_rounded(self):
        made = model("agraph (float[2] x, float[2] y) => (bool[2] z) { t = Tanh(x) z = Greater(t, y) }")
        feeds = {"x": np.array([0.5, 1], np.float32), "y": np.array([np.tanh(0.5), 1], np.float32)}
        self.assertEqual(self.verdict(made, feeds, lambda z: z ^ [True, False]), "right")
        self.assertEqual(self.verdict(made, feeds, lambda z: z ^ [False, True]), "wrong")

    def test_wild_elements_count(self):
        made = model("agraph (float[2] x) => (float[2] y) { y = Exp(x) }")
        feeds = {"x": np.array([np.nan, np.inf], np.float32)}
        self.assertEqual(self.verdict(made, feeds, lambda y: y), "right")
        self.assertEqual(self.verdict(made, feeds, np.zeros_like), "wrong")


class Shrinking(unittest.TestCase):
    def test_what_does_not_matter_goes(self):
        feeds = {"x": np.ones((2, 3), np.float32), "w": np.ones((3, 2), np.float32)}

        def fails(made, feeds):
            return any(node.op_type == "Tanh" for node in made.graph.node)

        small, kept = shrink.shrink(CHAIN, feeds, fails, 200)
        self.assertEqual([node.op_type for node in small.graph.node], ["Tanh"])
        self.assertEqual([array.shape for array in kept.values()], [(1, 1)])
        onnx.checker.check_model(small)


class Reports(unittest.TestCase):
    def test_messages_are_grouped_without_names_and_numbers(self):
        self.assertEqual(fuzz.plain("node `v5` (LpPool, opset 18): padding 0"), fuzz.plain("node `v7` (LpPool, opset 9): padding 3"))


if __name__ == "__main__":
    unittest.main()
