//! Choices that were measured.

use std::collections::BTreeMap;

use super::*;
use crate::tuned::{Measured, Tunable, Tuned, Workload};

/// A convolution that Winograd's algorithm can compute, one that it cannot, and two products, of many
/// rows and of one.
fn network() -> Model {
    let values = |shape: &[usize]| {
        let count = shape.iter().product::<usize>();
        let values: Vec<f32> = (0..count).map(|i| ((i * 37) % 19) as f32 / 19.0 - 0.4).collect();
        let shape: Vec<i64> = shape.iter().map(|&extent| extent as i64).collect();
        Constant::from_f32(&shape, &values).unwrap()
    };
    let strided = [("strides", vec![2, 2].into()), ("pads", vec![1, 1, 1, 1].into())];
    let shape = Constant::from_i64(&[2], &[256, 32]).unwrap();
    let proto = ModelBuilder::new(13)
        .input("x", DType::F32, &[1i64, 32, 32, 32])
        .initializer("w1", &values(&[32, 32, 3, 3]))
        .initializer("w2", &values(&[32, 32, 3, 3]))
        .initializer("w3", &values(&[32, 80]))
        .initializer("w4", &values(&[80, 70]))
        .initializer("shape", &shape)
        .node("Conv", &["x", "w1"], &["a"], &[("pads", vec![1, 1, 1, 1].into())])
        .node("Relu", &["a"], &["b"], &[])
        .node("Conv", &["b", "w2"], &["c"], &strided)
        .node("Reshape", &["c", "shape"], &["rows"], &[])
        .node("MatMul", &["rows", "w3"], &["d"], &[])
        .node("ReduceMean", &["d"], &["e"], &[("axes", vec![0].into())])
        .node("MatMul", &["e", "w4"], &["y"], &[])
        .output("y", DType::F32, &[1i64, 70])
        .build();
    Model::from_onnx("network", ModelFile { proto, folder: None, store: None })
}

fn image() -> Constant {
    let values: Vec<f32> = (0..32 * 32 * 32).map(|i| ((i * 31) % 23) as f32 / 23.0).collect();
    Constant::from_f32(&[1, 32, 32, 32], &values).unwrap()
}

fn places(compilation: &Compilation) -> BTreeMap<Workload, Tunable> {
    let tunables = compilation.model.kernels.tunables();
    tunables.map(|place| (place.workload.clone(), place.clone())).collect()
}

#[test]
fn all_candidates_compute_the_same_bits() {
    let model = network();
    let Some(&backend) = Backend::ALL.last() else { panic!("there is a backend") };
    let mut options = CompileOptions { backend, ..options() };
    options.set_target_cpu("native").unwrap();
    let loaded = |compilation: &Compilation| load(&compilation.model, &options).remove(0);
    let own = run(&model, &options).unwrap();
    let places = places(&own);
    let is_algorithm = |workload: &Workload| workload.what.starts_with("algorithm");
    assert_eq!(places.keys().filter(|workload| is_algorithm(workload)).count(), 1);
    assert_eq!(places.len(), 5, "{places:#?}");
    let expected = loaded(&own).run(&[image()]).unwrap();
    let most = places.values().map(|place| place.candidates.len()).max().unwrap();
    assert!(most > 10, "{places:#?}");
    for number in 1..most {
        let mut tuned = Tuned::default();
        for (workload, place) in places.iter().filter(|(workload, _)| !is_algorithm(workload)) {
            let choice = place.candidates.get(number).cloned();
            tuned.set(workload.clone(), Measured { choice, ..Measured::default() });
        }
        let other = run(&model, &CompileOptions { tuned: tuned.clone(), ..options.clone() });
        let other = other.unwrap();
        let taken = self::places(&other);
        for (workload, choice) in tuned.choices() {
            assert_eq!(taken[workload].chosen, choice, "{workload:?}");
        }
        let remark = tuned.remark(other.model.kernels.tunables()).unwrap();
        assert_eq!(remark, format!("{} tuned choices are taken", tuned.choices().count()));
        assert_eq!(loaded(&other).run(&[image()]).unwrap(), expected, "candidates {number}");
        assert_ne!(other.model.symbol, own.model.symbol);
    }
}

#[test]
fn an_algorithm_that_was_measured_is_taken() {
    let model = network();
    let options = options();
    let own = run(&model, &options).unwrap();
    let places = places(&own);
    let (workload, place) =
        places.iter().find(|(workload, _)| workload.what.starts_with("algorithm")).unwrap();
    for algorithm in &place.candidates {
        let mut tuned = Tuned::default();
        let choice = Some(algorithm.clone());
        tuned.set(workload.clone(), Measured { choice, ..Measured::default() });
        let other = run(&model, &CompileOptions { tuned, ..options.clone() }).unwrap();
        assert_eq!(self::places(&other)[workload].chosen, *algorithm);
    }
}

#[test]
fn choices_for_other_machines_have_no_effect() {
    let model = network();
    let options = options();
    let own = run(&model, &options).unwrap();
    let mut tuned = Tuned::default();
    for (workload, place) in places(&own) {
        let machine = "12 bits x 7".to_owned();
        let choice = place.candidates.last().cloned();
        tuned.set(Workload { machine, ..workload }, Measured { choice, ..Measured::default() });
    }
    let other = run(&model, &CompileOptions { tuned, ..options }).unwrap();
    assert_eq!(other.model.symbol, own.model.symbol);
    assert_eq!(other.model.objects, own.model.objects);
}
