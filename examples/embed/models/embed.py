"""Writes embed.onnx and tokenizer.json: a small model with the interface of all-MiniLM-L6-v2.

It is a transformer of one layer without trained weights. The words below are vectors of their topics,
and a word of several topics lies between them. In the layer, one head of attention looks for words
that share a topic, the other one for neighbours; what they find adds to a word's topics, and the
feed-forward part strengthens the topic that is ahead. So `bass` becomes a fish in a river, and an
instrument in a band. A sentence is the mean of its words.

    python embed.py
"""

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TOPICS = {
    "people": """man woman boy girl child children person people somebody someone everybody everyone
        anybody nobody friend neighbour men women mother father brother sister son daughter aunt uncle
        baby family crowd stranger grandmother grandfather guest""",
    "animals": """animal dog cat horse cow pig sheep goat bird fish bass duck hen mouse rat lion tiger
        bear wolf fox rabbit monkey elephant snake frog bee spider whale shark puppy kitten bark tail paw
        fur wing feed farm zoo pet wild bat crane jaguar beetle fly""",
    "food": """food eat ate eaten meal lunch dinner breakfast supper bread butter cheese egg meat soup
        rice pasta salad cake pie apple orange banana potato tomato onion sugar salt cook bake fry
        kitchen restaurant hungry taste delicious plate spoon fork jam toast fish chef dish drink tea
        coffee recipe snack chew swallow""",
    "weather": """weather rain snow wind storm cloud sun sunny cloudy rainy windy cold warm hot hail fog
        frost thunder lightning sky temperature degree forecast freeze froze frozen umbrella wet dry
        mild heat ice breeze blow drizzle climate spring winter summer autumn""",
    "vehicles": """car bus train truck lorry van bicycle bike motorcycle plane boat ship drive drove
        driven ride rode driver passenger wheel engine road street motorway traffic brake station
        airport travel journey fuel petrol garage park jam crane jaguar beetle fly flew pilot sail trip""",
    "music": """music song sing sang sung singer play band stage guitar piano violin drum flute trumpet
        bass melody tune rhythm concert orchestra musician audience choir note listen loud rock jazz
        composer key record dance beat instrument lyrics""",
    "sport": """sport football tennis golf ball team game match goal score player play win won lose lost
        race run ran runner swim swam bat coach referee champion league stadium medal train kick throw
        threw jump athlete tournament fan""",
    "home": """home house room door window wall roof floor kitchen bathroom bedroom bed chair table sofa
        lamp curtain carpet garden clean sweep wash tidy furniture shelf cupboard key stairs rent
        tenant move paint""",
    "money": """money bank pay paid price cost cheap expensive buy bought sell sold shop market coin
        cash credit debt loan tax wage salary rich poor earn spend spent save bill rent economy
        invest stock share interest account customer""",
    "plants": """plant tree flower leaf leaves grass root seed rose garden forest wood bush branch bark
        fruit apple orange grow grew grown bloom harvest field soil farm park gardener petal oak pine
        moss weed spring""",
    "learning": """learn school teach taught teacher pupil student study lesson class exam book read
        write wrote written library university college science history mathematics language word page
        pencil homework professor knowledge explain grade course""",
    "computing": """computer program software code keyboard screen mouse laptop internet website network
        server data file compiler compile processor memory bug password email click download phone
        robot digital programmer algorithm machine cloud key""",
    "health": """health doctor nurse hospital ill sick pain disease medicine pill fever cough cold heart
        blood bone tooth teeth dentist patient treat cure hurt injury wound headache healthy surgeon
        operation clinic vaccine flu""",
    "clothes": """clothes dress shirt trousers skirt coat jacket hat cap shoe sock boot glove scarf tie
        button pocket sleeve wool cotton silk sew wear wore worn fashion tailor jeans sweater belt
        fabric wash""",
    "water": """water sea ocean river lake stream wave beach coast shore swim swam dive boat ship sail
        fish bass flood tide deep pool bank whale shark harbour island drop pour wet float swallow""",
    "stars": """star moon planet earth sun sky space orbit rocket astronaut telescope galaxy comet night
        universe astronomer mars venus jupiter saturn launch gravity satellite crater eclipse""",
}
LIGHT = {"people": 0.6}  # Topics that say less of what a sentence is about.

OF_NO_TOPIC = """a an the and or but if of to in on at by for with from into over under after before is
    are was were be been being am do does did has have had will would can could may might must shall
    should not no it its he she they we you i me him her them us my your his their our this that these
    those there here what which who when where why how all some any many much more most very too also
    just so than then now today yesterday tomorrow soon again still only one two three up down out off
    about as s t"""
ENDINGS = "s es ed d ing er ers ly y ming ning ping ting mer ner per ter".split()
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
SIGNS = list(".,;:!?'\"()-0123456789")

LONGEST = 64
WIDTH = 32
TOPIC = np.arange(16)
SHADE = np.arange(16, 22)  # Tells words of the same topics apart.
PLACE = np.arange(22, 30)
ANCHOR = np.arange(30, 32)  # So that norms leave words of no topic small.
HEADS, HEAD = 2, 16

nodes, constants = [], []


def constant(value, dtype=np.float32):
    name = f"c{len(constants)}"
    constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
    return name


def node(op, *inputs, output=None, **attributes):
    output = output or f"v{len(nodes)}"
    nodes.append(helper.make_node(op, list(inputs), [output], **attributes))
    return output


def ints(*values):
    return constant(values, np.int64)


def forms(word):
    """A word as it is, and as it is with endings that change it: `bak` of `baking`, `families`."""
    if word.endswith("e"):
        return [word, word[:-1]]
    if word.endswith("y"):
        return [word, f"{word[:-1]}ies"]
    return [word]


def words():
    """Pieces of the vocabulary, each with its topics."""
    topics_of = {piece: [] for piece in SPECIAL + SIGNS + [f"##{ending}" for ending in ENDINGS]}
    topics_of.update((word, []) for word in OF_NO_TOPIC.split())
    for topic, members in enumerate(TOPICS.values()):
        for word in members.split():
            topics_of.setdefault(word, []).append(topic)
    for word, topics in list(topics_of.items()):
        for form in forms(word) if topics else []:
            topics_of.setdefault(form, topics)
    return topics_of


def vectors(topics_of):
    random = np.random.RandomState(1)
    weights = [LIGHT.get(topic, 1.0) for topic in TOPICS]
    table = np.zeros((len(topics_of), WIDTH))
    for row, (piece, topics) in zip(table, topics_of.items()):
        if piece in SPECIAL:
            continue
        row[SHADE] = random.normal(size=SHADE.size) * (0.2 if topics else 0.02)
        for topic in topics:
            row[topic] = weights[topic] / np.sqrt(len(topics))
    return table


def places():
    """Sines and cosines, and their opposites, so that their mean is nothing to a norm."""
    at = np.arange(LONGEST)[:, None] * [0.6, 0.1]
    waves = np.hstack([np.sin(at), np.cos(at)]) / np.sqrt(2)
    table = np.zeros((LONGEST, WIDTH))
    table[:, PLACE] = np.hstack([waves, -waves])
    return table


def types():
    """First and second texts of a pair; this program has first ones alone."""
    table = np.zeros((2, WIDTH))
    table[:, ANCHOR] = [2, -2]
    table[1, SHADE] = 0.01
    return table


def linear(x, weights):
    return node("Add", node("MatMul", x, constant(weights)), constant(np.zeros(len(weights[0]))))


def norm(x, scale):
    return node("LayerNormalization", x, constant(scale), constant(np.zeros(WIDTH)), epsilon=1e-6)


def heads(x, perm):
    return node("Transpose", node("Reshape", x, ints(0, 0, HEADS, HEAD)), perm=perm)


def attention(x, mask):
    query, value, out = (np.zeros((WIDTH, WIDTH)) for _ in range(3))
    query[TOPIC, TOPIC] = 4  # Scores are divided by 4: about 4 for words of one topic.
    query[PLACE, HEAD + np.arange(PLACE.size)] = 3  # About 4 for neighbours, less the farther away.
    value[TOPIC, TOPIC] = value[TOPIC, HEAD + TOPIC] = 1
    out[TOPIC, TOPIC], out[HEAD + TOPIC, TOPIC] = 1, 0.5
    q = heads(linear(x, query), [0, 2, 1, 3])
    k = heads(linear(x, query), [0, 2, 3, 1])
    v = heads(linear(x, value), [0, 2, 1, 3])
    scores = node("Div", node("MatMul", q, k), constant(np.sqrt(HEAD)))
    found = node("MatMul", node("Softmax", node("Add", scores, mask), axis=-1), v)
    side_by_side = node("Reshape", node("Transpose", found, perm=[0, 2, 1, 3]), ints(0, 0, WIDTH))
    return linear(side_by_side, out)


def gelu(x):
    half = node("Mul", x, constant(0.5))
    erf = node("Erf", node("Div", x, constant(np.sqrt(2))))
    return node("Mul", half, node("Add", erf, constant(1)))


def feed_forward(x):
    """Adds to a topic by how far it is ahead of all others."""
    ahead, more = np.zeros((WIDTH, TOPIC.size)), np.zeros((TOPIC.size, WIDTH))
    ahead[TOPIC] = 1 * (2 * np.eye(TOPIC.size) - 1)
    more[TOPIC, TOPIC] = 0.5
    return linear(gelu(linear(x, ahead)), more)


def encoder():
    word, place, kind = (constant(table) for table in (vectors(words()), places(), types()))
    length = node("Gather", node("Shape", "input_ids"), constant(1, np.int64), axis=0)
    at = node("Range", constant(0, np.int64), length, constant(1, np.int64))
    x = node("Add", node("Gather", word, "input_ids"), node("Gather", kind, "token_type_ids"))
    x = node("Add", x, node("Gather", place, at))
    size = np.full(WIDTH, np.sqrt(10 / WIDTH))  # Undoes the norm, for words of no topic.
    x = norm(x, size)
    real = node("Cast", "attention_mask", to=TensorProto.FLOAT)
    padding = node("Sub", constant(1), node("Unsqueeze", real, ints(1, 2)))
    x = norm(node("Add", x, attention(x, node("Mul", padding, constant(-1e9)))), size)
    size[np.r_[PLACE, ANCHOR]] = 0
    size[SHADE] *= 4
    x = norm(node("Add", x, feed_forward(x)), size)
    return x, node("Unsqueeze", real, ints(2))


def write_model():
    x, real = encoder()
    total = node("ReduceSum", node("Mul", x, real), ints(1), keepdims=0)
    mean = node("Div", total, node("ReduceSum", real, ints(1), keepdims=0))
    length = node("ReduceL2", mean, axes=[1], keepdims=1)
    node("Div", mean, node("Clip", length, constant(1e-12)), output="sentence_embedding")

    info = helper.make_tensor_value_info
    names = ["input_ids", "attention_mask", "token_type_ids"]
    inputs = [info(name, TensorProto.INT64, ["batch", "seq"]) for name in names]
    outputs = [info("sentence_embedding", TensorProto.FLOAT, ["batch", WIDTH])]
    graph = helper.make_graph(nodes, "embed", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, Path(__file__).with_name("embed.onnx"))


def write_tokenizer():
    vocabulary = {piece: number for number, piece in enumerate(words())}
    cls, sep = ({"SpecialToken": {"id": piece, "type_id": 0}} for piece in ("[CLS]", "[SEP]"))
    first, second = ({"Sequence": {"id": which, "type_id": kind}} for kind, which in enumerate("AB"))
    last = {"SpecialToken": {"id": "[SEP]", "type_id": 1}}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": vocabulary[piece],
                "content": piece,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for piece in SPECIAL
        ],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [cls, first, sep],
            "pair": [cls, first, sep, second, last],
            "special_tokens": {
                piece: {"id": piece, "ids": [vocabulary[piece]], "tokens": [piece]}
                for piece in ("[CLS]", "[SEP]")
            },
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocabulary,
        },
    }
    Path(__file__).with_name("tokenizer.json").write_text(json.dumps(tokenizer) + "\n")


if __name__ == "__main__":
    write_model()
    write_tokenizer()
