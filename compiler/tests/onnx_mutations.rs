//! Damaged models: ten thousand seeded mutations of five models are loaded and imported, without a
//! panic, a hang, or more memory than twice the file and 64 MiB.

mod counting;

use std::path::Path;
use std::time::{Duration, Instant};

use niello::ir::{Constant, DType};
use niello::onnx::{self, ImportOptions, ModelBuilder, ModelDim};

/// Mutations of each model.
const MUTATIONS: u64 = 2_000;

/// Bytes that an import may allocate beyond twice the size of its file.
const ALLOWANCE: usize = 64 << 20;

/// Time that an import may take. The models take milliseconds; the margin is for busy machines.
const PATIENCE: Duration = Duration::from_secs(10);

/// SplitMix64: a seed gives the same mutations on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// The offsets of lengths and numbers, as far as the bytes are valid protobuf.
#[derive(Default)]
struct Places {
    /// Lengths of nested messages, strings and bytes.
    lengths: Vec<usize>,
    /// Numbers.
    numbers: Vec<usize>,
}

fn places(bytes: &[u8]) -> Places {
    fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *bytes.get(*at)?;
            *at += 1;
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
    /// The offsets in `from..to`, or `None` if the bytes are no message.
    fn walk(bytes: &[u8], from: usize, to: usize, depth: u32) -> Option<Places> {
        let mut found = Places::default();
        let mut at = from;
        while at < to {
            let key = varint(bytes, &mut at)?;
            if key >> 3 == 0 || key >> 3 > 30 {
                return None;
            }
            match key & 7 {
                0 => {
                    found.numbers.push(at);
                    varint(bytes, &mut at)?;
                }
                1 => at += 8,
                5 => at += 4,
                2 => {
                    found.lengths.push(at);
                    let length = usize::try_from(varint(bytes, &mut at)?).ok()?;
                    let end = at.checked_add(length).filter(|&end| end <= to)?;
                    if depth > 0 {
                        let inner = walk(bytes, at, end, depth - 1).unwrap_or_default();
                        found.lengths.extend(inner.lengths);
                        found.numbers.extend(inner.numbers);
                    }
                    at = end;
                }
                _ => return None,
            }
        }
        (at == to).then_some(found)
    }
    walk(bytes, 0, bytes.len(), 8).unwrap_or_default()
}

fn mutate(model: &[u8], places: &Places, random: &mut Random) -> Vec<u8> {
    let mut bytes = model.to_vec();
    for _ in 0..=random.below(2) {
        if bytes.is_empty() {
            break;
        }
        let at = random.below(bytes.len());
        let span = at..(at + random.below(64)).min(bytes.len());
        let one_of = |list: &[usize], random: &mut Random| list[random.below(list.len())];
        match random.below(12) {
            0 => bytes.truncate(at),
            // A piece from elsewhere, as a replacement or an insertion.
            1 => {
                let from = random.below(bytes.len());
                let piece = bytes[from..(from + random.below(64)).min(bytes.len())].to_vec();
                let replaced = if random.below(2) == 0 { at..at } else { span };
                bytes.splice(replaced, piece);
            }
            2 => drop(bytes.drain(span)),
            // A length of another size, possibly far beyond the file.
            3 | 4 => {
                let at = one_of(&places.lengths, random).min(bytes.len() - 1);
                let mut rest = random.next() >> random.below(64);
                let mut varint = Vec::new();
                while rest >= 0x80 {
                    varint.push(rest as u8 | 0x80);
                    rest >>= 7;
                }
                varint.push(rest as u8);
                bytes.splice(at..=at, varint);
            }
            // Another number of the same size: an extent, an attribute, a type.
            5..=7 => {
                let at = one_of(&places.numbers, random).min(bytes.len() - 1);
                bytes[at] ^= 1 << random.below(7);
            }
            8 => bytes[at] = random.next() as u8,
            _ => {
                for _ in 0..=random.below(4) {
                    let at = random.below(bytes.len());
                    bytes[at] ^= 1 << random.below(8);
                }
            }
        }
    }
    bytes
}

/// Convolutions, pools and a shape computation.
fn convolutions() -> Vec<u8> {
    let weight = Constant::from_f32(&[4, 2, 3, 3], &[0.5; 72]).unwrap();
    ModelBuilder::new(13)
        .input::<ModelDim>("x", DType::F32, &["n".into(), 2.into(), 9.into(), 9.into()])
        .initializer("w", &weight)
        .ints("rest", &[0, -1])
        .node(
            "Conv",
            &["x", "w"],
            &["c"],
            &[("auto_pad", "SAME_UPPER".into()), ("strides", [2, 2].into())],
        )
        .node("MaxPool", &["c"], &["p"], &[("kernel_shape", [2, 2].into())])
        .node("Reshape", &["p", "rest"], &["r"], &[])
        .node("Softmax", &["r"], &["y"], &[])
        .output("y", DType::F32, &["n", "k"])
        .to_bytes()
}

/// Shapes, slices, ranges and constants.
fn shapes() -> Vec<u8> {
    let scalar = |value| Constant::from_i64(&[], &[value]).unwrap();
    ModelBuilder::new(18)
        .input("x", DType::F32, &[4, 6])
        .ints("starts", &[1, 0])
        .ints("ends", &[3, i64::MAX])
        .ints("pads", &[1, 0, 0, 2])
        .ints("repeats", &[2, 3])
        .initializer("zero", &scalar(0))
        .initializer("limit", &scalar(12))
        .initializer("step", &scalar(3))
        .node("Slice", &["x", "starts", "ends"], &["s"], &[])
        .node("Pad", &["s", "pads"], &["p"], &[])
        .node("Tile", &["p", "repeats"], &["t"], &[])
        .node("Split", &["t"], &["a", "b"], &[("num_outputs", 2.into())])
        .node("Concat", &["a", "b"], &["c"], &[("axis", 0.into())])
        .node("Range", &["zero", "limit", "step"], &["r"], &[])
        .node("Gather", &["c", "r"], &["g"], &[("axis", 1.into())])
        .node("Shape", &["g"], &["shape"], &[])
        .node("ConstantOfShape", &["shape"], &["k"], &[])
        .node("Add", &["g", "k"], &["y"], &[])
        .output("y", DType::F32, &[6, 4])
        .to_bytes()
}

/// Matrix products, normalisation and reductions over chains of nodes.
fn dense() -> Vec<u8> {
    let weight = Constant::from_f32(&[8, 8], &[0.25; 64]).unwrap();
    let bias = Constant::from_f32(&[8], &[1.0; 8]).unwrap();
    let mut model = ModelBuilder::new(17)
        .input::<ModelDim>("h0", DType::F32, &["batch".into(), 8.into()])
        .initializer("w", &weight)
        .initializer("b", &bias);
    for layer in 0..12 {
        let [from, product, normal, to] = [
            format!("h{layer}"),
            format!("p{layer}"),
            format!("n{layer}"),
            format!("h{}", layer + 1),
        ];
        model = model
            .node("MatMul", &[&from, "w"], &[&product], &[])
            .node("LayerNormalization", &[&product, "b", "b"], &[&normal], &[])
            .node("Relu", &[&normal], &[&to], &[]);
    }
    model
        .node("ReduceMean", &["h12"], &["y"], &[("axes", [1].into()), ("keepdims", 0.into())])
        .output("y", DType::F32, &["batch"])
        .to_bytes()
}

/// Tensors whose elements are in their typed fields.
fn typed_fields() -> Vec<u8> {
    let mut model = ModelBuilder::new(13)
        .input("x", DType::I64, &[3])
        .ints("k", &[1, -2, 300])
        .node("Mul", &["x", "k"], &["a"], &[])
        .node("Clip", &["a", "", "hi"], &["y"], &[])
        .initializer("hi", &Constant::from_i64(&[], &[9]).unwrap())
        .output("y", DType::I64, &[3])
        .build();
    let graph = model.graph.as_mut().expect("the builder made a graph");
    for tensor in &mut graph.initializer {
        let raw = tensor.raw_data.take().expect("the builder writes raw elements");
        let values = raw.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
        tensor.int64_data = onnx::proto::PackedValues::from_varints(values);
    }
    model.to_bytes()
}

#[test]
fn damaged_models_are_refused_within_bounds() {
    let digits =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/digits/models/digits.onnx");
    let models = [
        ("digits", std::fs::read(digits).expect("the digits model is committed")),
        ("convolutions", convolutions()),
        ("shapes", shapes()),
        ("dense", dense()),
        ("typed fields", typed_fields()),
    ];
    let options = ImportOptions::default();
    let (mut imported, mut refused) = (0, 0);
    for (seed, (name, model)) in models.iter().enumerate() {
        let whole = onnx::load_bytes(model.clone())
            .and_then(|file| onnx::import(&file.proto, None, &options));
        assert!(whole.is_ok(), "{name}: {:?}", whole.err());
        let places = places(model);
        assert!(
            places.lengths.len() > 10 && places.numbers.len() > 5,
            "{name}: it reads as protobuf"
        );
        let mut random = Random(seed as u64);
        for mutation in 0..MUTATIONS {
            let bytes = mutate(model, &places, &mut random);
            let size = bytes.len();
            let start = Instant::now();
            let import = std::panic::AssertUnwindSafe(|| {
                onnx::load_bytes(bytes)
                    .and_then(|file| onnx::import(&file.proto, None, &options))
                    .map(drop)
                    .map_err(|report| assert!(!report.is_empty(), "an error says why"))
                    .is_ok()
            });
            let (result, peak) = counting::with_peak(|| std::panic::catch_unwind(import));
            let case = format!("mutation {mutation} of {name}");
            match result {
                Ok(true) => imported += 1,
                Ok(false) => refused += 1,
                Err(_) => panic!("{case} makes the importer panic"),
            }
            assert!(peak <= 2 * size + ALLOWANCE, "{case} takes {peak} bytes for {size}");
            assert!(start.elapsed() < PATIENCE, "{case} takes {:?}", start.elapsed());
        }
    }
    // Both outcomes must be frequent, or the mutations are too harsh or too mild for the test.
    assert!(imported > 500 && refused > 5_000, "{imported} imported, {refused} refused");
}
