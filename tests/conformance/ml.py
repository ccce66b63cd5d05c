"""Cases of the domain ai.onnx.ml."""

import numpy as np
from onnx import numpy_helper

DOMAIN = "ai.onnx.ml"
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def family(name, variants):
    """Cases of one form: a function for each variant."""

    def add(function):
        for suffix, variant in variants.items():
            CASES[f"{name}_{suffix}"] = lambda c, variant=variant: function(c, **variant)
        return function

    return add


# Trees.

def trees(c, leaf, count, depth, features, targets, modes, several=False, missing=False, positive=False):
    """Attributes of random trees, some of whose branches end early. `targets` has the target of each tree, or all."""
    nodes = {name: [] for name in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")}
    tracks, leaves = [], {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(count):
        numbers = iter(range(1 << 20))

        def grow(level):
            number, place = next(numbers), len(nodes["modes"])
            end = level == depth or (level > 1 and c.random.random() < 0.2)
            mode = "LEAF" if end else c.random.choice(modes)
            feature = 0 if end else int(c.random.integers(features))
            value = 0.0 if end else float(np.float32(c.random.integers(-4, 5) / 2))
            row = (tree, number, feature, str(mode), value, 0, 0)
            for name, entry in zip(nodes, row, strict=True):
                nodes[name].append(entry)
            tracks.append(int(missing and not end and c.random.random() < 0.5))
            if end:
                own = targets if several else [targets[tree % len(targets)]]
                for target in own:
                    weight = c.random.random() if positive else c.random.standard_normal()
                    for name, entry in zip(leaves, (tree, number, target, float(weight)), strict=True):
                        leaves[name].append(entry)
            else:
                nodes["truenodeids"][place] = grow(level + 1)
                nodes["falsenodeids"][place] = grow(level + 1)
            return number

        grow(0)
    result = {f"nodes_{name}": entries for name, entries in nodes.items()}
    result |= {f"{leaf}_{name}": entries for name, entries in leaves.items()}
    if missing:
        result["nodes_missing_value_tracks_true"] = tracks
    return result


def examples(c, rows, columns, missing=False):
    """Features, many of which are just what a tree compares them with."""
    x = np.where(c.random.random((rows, columns)) < 0.5, c.random.integers(-4, 5, (rows, columns)) / 2, c.normal(rows, columns))
    if missing:
        x[c.random.random((rows, columns)) < 0.2] = np.nan
    return x.astype(np.float32)


MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


@family("tree_regressor", {
    **{mode.lower(): dict(modes=[mode], missing=mode in ("BRANCH_LEQ", "BRANCH_LT")) for mode in MODES},
    "mixed": dict(modes=MODES, missing=True, count=40),
    "targets": dict(n_targets=3, count=7),
    "leaves_of_targets": dict(n_targets=3, several=True),
    "average": dict(aggregate_function="AVERAGE", base_values=[0.5]),
    "least": dict(aggregate_function="MIN"),
    "greatest": dict(aggregate_function="MAX"),
    "logistic": dict(post_transform="LOGISTIC"),
    "probit": dict(post_transform="PROBIT", positive=True, count=1),
    "deep": dict(depth=14, count=3),
    "one_leaf": dict(depth=0, count=2),
})
def tree_regressor(c, modes=("BRANCH_LEQ",), count=20, depth=5, n_targets=1, several=False, missing=False, positive=False, **attributes):
    attributes |= trees(c, "target", count, depth, 6, list(range(n_targets)), list(modes), several, missing, positive)
    c.node("TreeEnsembleRegressor", [c.input(examples(c, 33, 6, missing))], n_targets=n_targets, **attributes)


@case
def tree_classifier_of_integers(c):
    attributes = trees(c, "class", 5, 4, 6, [0, 1, 2], ["BRANCH_LEQ"]) | dict(classlabels_int64s=[0, 1, 2])
    c.node("TreeEnsembleClassifier", [c.input(c.random.integers(-3, 4, (9, 6)))], ["label", "scores"], **attributes)


@case
def tree_regressor_of_doubles(c):
    attributes = trees(c, "target", 5, 4, 6, [0], ["BRANCH_LT"])
    for name in ("nodes_values", "target_weights"):
        attributes[f"{name}_as_tensor"] = numpy_helper.from_array(np.float64(attributes.pop(name)) + 1e-12, name)
    x = examples(c, 21, 6).astype(np.float64)
    c.node("TreeEnsembleRegressor", [c.input(x)], n_targets=1, **attributes)


@family("tree_classifier", {
    "classes": dict(classes=[0, 1, 2], several=True, positive=True),
    "softmax": dict(classes=[4, 2, 7], post_transform="SOFTMAX", base_values=[0.1, -0.2, 0.3]),
    "softmax_zero": dict(classes=[0, 1, 2], post_transform="SOFTMAX_ZERO", several=True),
    "logistic": dict(classes=[0, 1, 2], post_transform="LOGISTIC"),
    "two": dict(classes=[0, 1], several=True, positive=True),
    "binary": dict(classes=[0, 1], targets=[1]),
    "binary_positive": dict(classes=[3, 5], targets=[1], positive=True, count=1),
    "binary_logistic": dict(classes=[0, 1], targets=[0], post_transform="LOGISTIC"),
    "binary_positive_logistic": dict(classes=[0, 1], targets=[0], post_transform="LOGISTIC", positive=True, count=1),
    "second_logistic": dict(classes=[0, 1], targets=[1], post_transform="LOGISTIC"),
    "two_bases": dict(classes=[3, 5], targets=[0], base_values=[0.5, 0.25]),
    "binary_base": dict(classes=[0, 1], targets=[0], post_transform="LOGISTIC", base_values=[0.25]),
    "strings": dict(labels=["dog", "cat", "o\"x"], several=True, positive=True),
    "binary_strings": dict(labels=["no", "yes"], targets=[1]),
})
def tree_classifier(c, classes=None, labels=None, targets=None, count=12, several=False, positive=False, **attributes):
    targets = targets or list(range(len(classes or labels)))
    attributes |= trees(c, "class", count, 4, 5, targets, ["BRANCH_LEQ", "BRANCH_GT"], several, False, positive)
    if classes:
        attributes["classlabels_int64s"] = classes
    else:
        attributes["classlabels_strings"] = c.labels = labels
    c.node("TreeEnsembleClassifier", [c.input(examples(c, 17, 5))], ["label", "scores"], **attributes)
    if several and len(targets) == 2:
        # Labels of two classes that both have values are the greater one's, as the standard says; ONNX Runtime looks
        # at the sign of the second.
        c.output("scores")


@family("tree_ensemble", {"plain": dict(), "members": dict(members=True), "average": dict(aggregate_function=0)})
def tree_ensemble(c, members=False, **attributes):
    c.ml_opset = 5
    tensor = lambda name, values, dtype: numpy_helper.from_array(np.array(values, dtype), name)
    modes, splits = [0, 3, 1], [0.5, -0.25, 0.0]
    if members:
        modes[1] = 6
        attributes["membership_values"] = tensor("m", [1.0, 2.0, 3.0, np.nan], np.float32)
    attributes |= dict(
        n_targets=2, tree_roots=[0, 2], nodes_featureids=[0, 1, 2], nodes_modes=tensor("modes", modes, np.uint8),
        nodes_splits=tensor("splits", splits, np.float32), nodes_truenodeids=[1, 0, 3], nodes_trueleafs=[0, 1, 1],
        nodes_falsenodeids=[2, 1, 4], nodes_falseleafs=[1, 1, 1], leaf_targetids=[0, 1, 0, 1, 1],
        leaf_weights=tensor("weights", [0.5, -1.5, 2.0, 0.25, 3.0], np.float32),
    )
    c.node("TreeEnsemble", [c.input(examples(c, 19, 3))], **attributes)


@case
def zip_map(c):
    attributes = trees(c, "class", 5, 3, 5, [0, 1, 2], ["BRANCH_LEQ"], True, positive=True)
    names = ["a", "b", "c"]
    c.labels = names
    c.node("TreeEnsembleClassifier", [c.input(examples(c, 7, 5))], ["label", "scores"], classlabels_strings=names, **attributes)
    c.node("ZipMap", ["scores"], "maps", classlabels_strings=names)
    c.output("label", "maps")


# Linear models and support vectors.

@family("linear_regressor", {"plain": dict(), "targets": dict(targets=3), "no_intercept": dict(intercept=False)})
def linear_regressor(c, targets=1, intercept=True):
    attributes = dict(coefficients=c.normal(targets * 5).tolist(), targets=targets)
    if intercept:
        attributes["intercepts"] = c.normal(targets).tolist()
    c.node("LinearRegressor", [c.input(c.normal(7, 5))], **attributes)


@family("linear_classifier", {
    "plain": dict(count=3),
    "softmax": dict(count=3, post_transform="SOFTMAX", multi_class=1),
    "logistic": dict(count=3, post_transform="LOGISTIC"),
    "binary": dict(count=2, single=True),
    "binary_logistic": dict(count=2, single=True, post_transform="LOGISTIC"),
    "two": dict(count=2, post_transform="SOFTMAX"),
    "strings": dict(labels=["x", "y", "z"], count=3),
})
def linear_classifier(c, count, single=False, labels=None, **attributes):
    rows = 1 if single else count
    attributes |= dict(coefficients=c.normal(rows * 5).tolist(), intercepts=c.normal(rows).tolist())
    if labels:
        attributes["classlabels_strings"] = c.labels = labels
    else:
        attributes["classlabels_ints"] = [3 * index + 1 for index in range(count)]
    c.node("LinearClassifier", [c.input(c.normal(9, 5))], ["label", "scores"], **attributes)


@family("svm_regressor", {
    "linear": dict(kernel_type="LINEAR", kernel_params=[0.0, 0.0, 0.0]),
    "rbf": dict(kernel_type="RBF", kernel_params=[0.3, 0.0, 0.0]),
    "polynomial": dict(kernel_type="POLY", kernel_params=[0.3, 0.5, 2.0]),
    "sigmoid": dict(kernel_type="SIGMOID", kernel_params=[0.3, 0.1, 0.0]),
    "one_class": dict(kernel_type="RBF", kernel_params=[0.3, 0.0, 0.0], one_class=1),
    "no_vectors": dict(kernel_type="LINEAR", kernel_params=[0.0, 0.0, 0.0], vectors=False),
})
def svm_regressor(c, vectors=True, **attributes):
    attributes |= dict(coefficients=c.normal(6 if vectors else 5).tolist(), rho=[0.25])
    if vectors:
        attributes |= dict(support_vectors=c.normal(30).tolist(), n_supports=6)
    c.node("SVMRegressor", [c.input(c.normal(8, 5))], **attributes)


@family("svm_classifier", {
    "two": dict(count=2),
    "three": dict(count=3),
    "strings": dict(labels=["x", "y", "z"], count=3, kernel_type="POLY", kernel_params=[0.3, 0.5, 2.0]),
    "linear": dict(count=3, vectors=False, kernel_type="LINEAR"),
    "two_probabilities": dict(count=2, probabilities=True),
    "three_probabilities": dict(count=3, probabilities=True),
    "five_probabilities": dict(count=5, probabilities=True, kernel_type="POLY", kernel_params=[0.3, 0.5, 2.0]),
})
def svm_classifier(
    c, count, vectors=True, labels=None, probabilities=False, kernel_type="RBF", kernel_params=(0.3, 0.0, 0.0), **attributes
):
    pairs, own = count * (count - 1) // 2, [2 + index for index in range(count)]
    attributes |= dict(kernel_type=kernel_type, kernel_params=list(kernel_params))
    if vectors:
        attributes |= dict(coefficients=c.normal((count - 1) * sum(own)).tolist(), vectors_per_class=own)
        attributes |= dict(support_vectors=c.normal(sum(own) * 4).tolist(), rho=c.normal(pairs).tolist())
    else:
        attributes |= dict(coefficients=c.normal(count * 4).tolist(), rho=[0.25])
    if probabilities:
        attributes |= dict(prob_a=(c.normal(pairs) - 1.5).tolist(), prob_b=c.normal(pairs).tolist())
    if labels:
        attributes["classlabels_strings"] = c.labels = labels
    else:
        attributes["classlabels_ints"] = [3 * index + 1 for index in range(count)]
    c.node("SVMClassifier", [c.input(c.normal(15, 4))], ["label", "scores"], **attributes)


# Features.

@family("normalizer", {"greatest": dict(norm="MAX"), "sum": dict(norm="L1"), "norm": dict(norm="L2")})
def normalizer(c, **attributes):
    c.node("Normalizer", [c.input(np.vstack([np.abs(c.normal(4, 5)), np.zeros((1, 5), np.float32)]))], **attributes)


@family("scaler", {"columns": dict(count=4), "one": dict(count=1)})
def scaler(c, count):
    c.node("Scaler", [c.input(c.normal(3, 4))], offset=c.normal(count).tolist(), scale=c.normal(count).tolist())


@family("imputer", {"nan": dict(value=float("nan")), "number": dict(value=-1.0), "one": dict(value=-1.0, count=1)})
def imputer(c, value, count=4):
    x = c.normal(5, 4)
    x[c.random.random((5, 4)) < 0.4] = value
    c.node("Imputer", [c.input(x)], replaced_value_float=value, imputed_value_floats=c.normal(count).tolist())


@case
def imputer_of_integers(c):
    x = c.random.integers(0, 3, (5, 4))
    c.node("Imputer", [c.input(x)], replaced_value_int64=1, imputed_value_int64s=[7, 8, 9, 10])


@case
def binarizer(c):
    c.node("Binarizer", [c.input(c.normal(5, 4))], threshold=0.25)


@family("one_hot_encoder", {"integers": dict(dtype=np.int64), "floats": dict(dtype=np.float32)})
def one_hot_encoder(c, dtype):
    c.node("OneHotEncoder", [c.input(c.random.integers(0, 5, (4, 2)).astype(dtype))], cats_int64s=[1, 3, 4], zeros=1)


@family("label_encoder", {
    "integers": dict(keys_int64s=[1, 3, 4], values_int64s=[10, 30, 40], default_int64=-7),
    "to_floats": dict(keys_int64s=[1, 3, 4], values_floats=[0.5, 1.5, 2.5], default_float=9.0),
    "of_floats": dict(keys_floats=[1.0, float("nan"), 4.0], values_int64s=[10, 30, 40]),
})
def label_encoder(c, **attributes):
    x = c.random.integers(0, 6, (4, 3))
    if "keys_floats" in attributes:
        x = np.where(x == 2, np.nan, x).astype(np.float32)
    c.node("LabelEncoder", [c.input(x)], **attributes)


@case
def label_encoder_of_tensors(c):
    c.ml_opset = 4
    tensor = lambda values: numpy_helper.from_array(np.array(values))
    attributes = dict(keys_tensor=tensor([1, 3]), values_tensor=tensor(np.float32([0.5, 1.5])))
    attributes["default_tensor"] = tensor(np.float32([4.5]))
    c.node("LabelEncoder", [c.input(c.random.integers(0, 5, (4, 3)))], **attributes)


@case
def array_feature_extractor(c):
    c.node("ArrayFeatureExtractor", [c.input(c.normal(4, 5)), c.constant(np.array([3, 0, 3]))])


@case
def feature_vectorizer(c):
    inputs = [c.input(c.normal(4, 2)), c.input(c.normal(4, 3))]
    c.node("FeatureVectorizer", inputs, inputdimensions=[2, 3])
