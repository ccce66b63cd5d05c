"""Models of tables: scikit-learn's by skl2onnx, LightGBM's and XGBoost's by onnxmltools, trained on random numbers."""

import warnings

import numpy as np
import sklearn.exceptions
from lightgbm import LGBMClassifier, LGBMRegressor
from onnxmltools import convert_lightgbm, convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType as ToolsFloats
from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import FloatTensorType
from sklearn.base import is_classifier
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.compose import ColumnTransformer
from sklearn.cross_decomposition import PLSRegression
from sklearn.decomposition import PCA, IncrementalPCA, KernelPCA, TruncatedSVD
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import (
    AdaBoostClassifier, AdaBoostRegressor, BaggingClassifier, BaggingRegressor, ExtraTreesClassifier, ExtraTreesRegressor,
    GradientBoostingClassifier, GradientBoostingRegressor, IsolationForest, RandomForestClassifier, RandomForestRegressor, StackingClassifier, StackingRegressor, VotingClassifier,
    VotingRegressor,
)
from sklearn.feature_selection import SelectKBest, VarianceThreshold
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, DotProduct
from sklearn.impute import SimpleImputer
from sklearn.linear_model import (
    ARDRegression, BayesianRidge, ElasticNet, LinearRegression, LogisticRegression, PoissonRegressor, Ridge,
    RidgeClassifier, SGDClassifier, TweedieRegressor,
)
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputRegressor
from sklearn.naive_bayes import BernoulliNB, ComplementNB, GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    Binarizer, KBinsDiscretizer, MaxAbsScaler, MinMaxScaler, Normalizer, PolynomialFeatures, PowerTransformer, RobustScaler,
    StandardScaler,
)
from sklearn.random_projection import GaussianRandomProjection
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR, NuSVC, OneClassSVM
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from xgboost import XGBClassifier, XGBRegressor

from family import families
from net import BATCH

# Of fits that end early, and of what converters use.
warnings.simplefilter("ignore", sklearn.exceptions.ConvergenceWarning)
warnings.simplefilter("ignore", FutureWarning)

FAMILIES, family = families()
FEATURES = 6
OPSETS = {"": 21, "ai.onnx.ml": 3}


def trained(net, estimator, classes=3, targets=1, positive=False, missing=False):
    """Fits to rows of random numbers; the model's input has others of the kind."""

    def rows(count):
        x = net.random.standard_normal((count, FEATURES)).astype(np.float32)
        if missing:
            x[net.random.random(x.shape) < 0.2] = np.nan
        return np.abs(x) if positive else x

    x = rows(120)
    size = np.nan_to_num(x) @ net.random.standard_normal((FEATURES, targets))
    if is_classifier(estimator):
        y = np.digitize(size[:, 0], np.quantile(size, np.arange(1, classes) / classes))
    else:
        y = np.abs(size) if positive else size
        y = y[:, 0] if targets == 1 else y
    net.feeds["x"] = rows
    return estimator.fit(x, y)


def of_batches(model):
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = BATCH
    return model


def converted(net, estimator, **data):
    """A model of one of scikit-learn's estimators."""
    trained(net, estimator, **data)
    types = [("x", FloatTensorType([None, FEATURES]))]
    # Scores as a tensor, where there would be maps from labels.
    options = {id(estimator): {"zipmap": False}} if is_classifier(estimator) and not isinstance(estimator, LinearSVC) else None
    return of_batches(convert_sklearn(estimator, initial_types=types, target_opset=OPSETS, options=options))


def estimators(**variants):
    """A family whose variants are estimators, each alone or with options of `converted`."""
    return family(**{name: dict(of=of if isinstance(of, tuple) else (of, {})) for name, of in variants.items()})


def made(net, of):
    estimator, data = of
    return converted(net, estimator(), **data)


@estimators(least_squares=LinearRegression, ridge=Ridge, elastic_net=lambda: ElasticNet(0.01), bayesian=BayesianRidge, targets=(LinearRegression, dict(targets=3)))
def sklearn_linear(net, of):
    """scikit-learn: linear regression"""
    return made(net, of)


@estimators(poisson=(PoissonRegressor, dict(positive=True)), tweedie=(lambda: TweedieRegressor(power=1.5), dict(positive=True)), ard=ARDRegression)
def sklearn_generalised_linear(net, of):
    """scikit-learn: linear regression behind a link"""
    return made(net, of)


@estimators(
    logistic=LogisticRegression, logistic_of_two=(LogisticRegression, dict(classes=2)), ridge=RidgeClassifier,
    descent=lambda: SGDClassifier(loss="log_loss", random_state=0), svm=LinearSVC,
)
def sklearn_linear_classifier(net, of):
    """scikit-learn: linear classification"""
    return made(net, of)


@estimators(
    classes=lambda: DecisionTreeClassifier(max_depth=5, random_state=0), numbers=lambda: DecisionTreeRegressor(random_state=0),
    targets=(lambda: DecisionTreeRegressor(max_depth=4, random_state=0), dict(targets=2)),
)
def sklearn_tree(net, of):
    """scikit-learn: one tree"""
    return made(net, of)


@estimators(
    classes=lambda: RandomForestClassifier(20, max_depth=6, random_state=0),
    numbers=lambda: RandomForestRegressor(20, random_state=0),
    extra_classes=lambda: ExtraTreesClassifier(20, max_depth=6, random_state=0),
    extra_numbers=lambda: ExtraTreesRegressor(10, random_state=0),
    isolation=lambda: IsolationForest(n_estimators=10, random_state=0),
)
def sklearn_forest(net, of):
    """scikit-learn: many trees"""
    return made(net, of)


@estimators(
    classes=lambda: GradientBoostingClassifier(n_estimators=10, random_state=0),
    two=(lambda: GradientBoostingClassifier(n_estimators=10, random_state=0), dict(classes=2)),
    numbers=lambda: GradientBoostingRegressor(n_estimators=20, random_state=0),
)
def sklearn_boosting(net, of):
    """scikit-learn: gradient boosting"""
    return made(net, of)


@estimators(
    boosted_classes=lambda: AdaBoostClassifier(n_estimators=8, random_state=0),
    boosted_numbers=lambda: AdaBoostRegressor(n_estimators=8, random_state=0),
    bagged_classes=lambda: BaggingClassifier(n_estimators=6, random_state=0),
    bagged_numbers=lambda: BaggingRegressor(n_estimators=6, random_state=0),
)
def sklearn_bagging(net, of):
    """scikit-learn: trees that are weighed or averaged one by one"""
    return made(net, of)


@estimators(
    votes=lambda: VotingClassifier([("a", LogisticRegression()), ("b", GaussianNB())], voting="soft", flatten_transform=False),
    average=lambda: VotingRegressor([("a", Ridge()), ("b", DecisionTreeRegressor(max_depth=4, random_state=0))]),
    stack=lambda: StackingClassifier([("a", LogisticRegression()), ("b", GaussianNB())]),
    numbers=lambda: StackingRegressor([("a", Ridge()), ("b", DecisionTreeRegressor(max_depth=3, random_state=0))]),
)
def sklearn_ensemble(net, of):
    """scikit-learn: several models as one"""
    return made(net, of)


@estimators(
    rbf=SVR, polynomial=lambda: SVR(kernel="poly", degree=2), sigmoid=lambda: SVR(kernel="sigmoid", gamma=0.05),
    linear=LinearSVR, novelty=OneClassSVM,
)
def sklearn_svm_regressor(net, of):
    """scikit-learn: support vector regression"""
    return made(net, of)


@estimators(
    rbf=SVC, linear=lambda: SVC(kernel="linear"), of_two=(lambda: SVC(kernel="poly"), dict(classes=2)), nu=lambda: NuSVC(nu=0.3),
)
def sklearn_svm_classifier(net, of):
    """scikit-learn: support vector classification, without probabilities"""
    return made(net, of)


@estimators(
    classes=lambda: KNeighborsClassifier(3), numbers=lambda: KNeighborsRegressor(4),
    weighted=lambda: KNeighborsRegressor(4, weights="distance"), manhattan=lambda: KNeighborsClassifier(5, p=1),
)
def sklearn_neighbours(net, of):
    """scikit-learn: the nearest of what was seen"""
    return made(net, of)


@estimators(
    classes=lambda: MLPClassifier((16, 8), max_iter=50, random_state=0),
    two=(lambda: MLPClassifier((12,), max_iter=50, activation="logistic", random_state=0), dict(classes=2)),
    numbers=lambda: MLPRegressor(hidden_layer_sizes=(16,), max_iter=50, activation="tanh", random_state=0),
)
def sklearn_perceptron(net, of):
    """scikit-learn: dense layers"""
    return made(net, of)


@estimators(
    normal=GaussianNB, bernoulli=BernoulliNB, counts=(MultinomialNB, dict(positive=True)), complement=(ComplementNB, dict(positive=True)),
)
def sklearn_bayes(net, of):
    """scikit-learn: naive Bayes"""
    return made(net, of)


@estimators(linear=LinearDiscriminantAnalysis, quadratic=QuadraticDiscriminantAnalysis)
def sklearn_discriminant(net, of):
    """scikit-learn: discriminant analysis"""
    return made(net, of)


@estimators(
    means=lambda: KMeans(4, n_init=2, random_state=0), batches=lambda: MiniBatchKMeans(3, n_init=2, random_state=0),
    mixture=lambda: GaussianMixture(3, random_state=0), diagonal=lambda: GaussianMixture(2, covariance_type="diag", random_state=0),
    bayesian=lambda: BayesianGaussianMixture(n_components=2, random_state=0),
)
def sklearn_clusters(net, of):
    """scikit-learn: clusters and mixtures"""
    return made(net, of)


@estimators(
    pca=lambda: PCA(3), whitened=lambda: IncrementalPCA(3, whiten=True), svd=lambda: TruncatedSVD(3, random_state=0),
    kernel=lambda: KernelPCA(3, kernel="rbf"), random=lambda: GaussianRandomProjection(4, random_state=0),
)
def sklearn_projection(net, of):
    """scikit-learn: fewer features"""
    return made(net, of)


@estimators(standard=StandardScaler, least_greatest=MinMaxScaler, greatest=MaxAbsScaler, robust=RobustScaler, norm=Normalizer)
def sklearn_scaler(net, of):
    """scikit-learn: scales"""
    return made(net, of)


@estimators(
    polynomial=PolynomialFeatures, power=PowerTransformer, bins=lambda: KBinsDiscretizer(4, encode="onehot-dense"),
    thresholds=Binarizer, imputed=(SimpleImputer, dict(missing=True)),
)
def sklearn_features(net, of):
    """scikit-learn: features made of features"""
    return made(net, of)


@estimators(
    scaled=lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    reduced=lambda: make_pipeline(MinMaxScaler(), PCA(3), KNeighborsClassifier(3)),
    imputed=(lambda: make_pipeline(SimpleImputer(), RobustScaler(), RandomForestClassifier(8, random_state=0)), dict(missing=True)),
    columns=lambda: make_pipeline(
        ColumnTransformer([("a", StandardScaler(), [0, 1, 4]), ("b", MinMaxScaler(), [2, 5])]), LogisticRegression()
    ),
    union=lambda: make_pipeline(FeatureUnion([("a", PCA(2)), ("b", SelectKBest(k=3))]), VarianceThreshold(), LinearDiscriminantAnalysis()),
)
def sklearn_pipeline(net, of):
    """scikit-learn: pipelines"""
    return made(net, of)


@estimators(
    one_against_rest=lambda: OneVsRestClassifier(LogisticRegression()),
    outputs=(lambda: MultiOutputRegressor(DecisionTreeRegressor(max_depth=3, random_state=0)), dict(targets=2)),
    least_squares=(lambda: PLSRegression(2), dict(targets=2)),
)
def sklearn_multiple(net, of):
    """scikit-learn: a model for each class or target"""
    return made(net, of)


@estimators(rbf=lambda: GaussianProcessRegressor(RBF(1.5), alpha=0.1), dot=lambda: GaussianProcessRegressor(DotProduct(), alpha=0.1))
def sklearn_gaussian_process(net, of):
    """scikit-learn: Gaussian processes"""
    return made(net, of)


def booster(net, estimator, convert, **data):
    """A model of an estimator that is not scikit-learn's."""
    trained(net, estimator, **data)
    types = [("x", ToolsFloats([None, FEATURES]))]
    options = {"zipmap": False} if convert is convert_lightgbm else {}
    return of_batches(convert(estimator, initial_types=types, target_opset=15, **options))


@family(
    numbers=dict(of=LGBMRegressor), classes=dict(of=LGBMClassifier), two=dict(of=LGBMClassifier, classes=2),
    missing=dict(of=LGBMRegressor, missing=True), forest=dict(of=LGBMRegressor, boosting_type="rf", bagging_freq=1, bagging_fraction=0.6),
)
def lightgbm(net, of, classes=3, missing=False, **options):
    """LightGBM"""
    estimator = of(n_estimators=12, num_leaves=12, min_child_samples=5, verbose=-1, random_state=0, n_jobs=1, **options)
    return booster(net, estimator, convert_lightgbm, classes=classes, missing=missing)


@family(
    numbers=dict(of=XGBRegressor), classes=dict(of=XGBClassifier), two=dict(of=XGBClassifier, classes=2),
    missing=dict(of=XGBRegressor, missing=True), counts=dict(of=XGBRegressor, objective="count:poisson", positive=True),
)
def xgboost(net, of, classes=3, missing=False, positive=False, **options):
    """XGBoost"""
    estimator = of(n_estimators=12, max_depth=4, random_state=0, n_jobs=1, **options)
    return booster(net, estimator, convert_xgboost, classes=classes, missing=missing, positive=positive)
