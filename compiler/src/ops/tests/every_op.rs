//! One call of every operator of the table: the types that evaluation yields are those that the
//! type relation says, for each data type that the relation accepts.

use crate::graph::interp::Tensor;
use crate::ir::{DType, TensorType, Type};
use crate::ops::samples::{dtype_of_input, infer, sample, tensor, types};
use crate::ops::tensor::TRUNCATE;
use crate::ops::{Op, all};

#[test]
fn every_operator_yields_the_types_that_its_relation_says() {
    for &op in all() {
        let call = sample(op.name).unwrap_or_else(|| panic!("there is no sample of `{}`", op.name));
        let mut accepted = 0;
        for dtype in DType::all().filter(|dtype| !dtype.is_storage_only()) {
            let Some((types, expected)) = types(op, &call, dtype) else { continue };
            accepted += 1;
            let args: Vec<Option<Tensor>> =
                types.iter().map(|ty| ty.as_ref().map(tensor)).collect();
            let args: Vec<Option<&Tensor>> = args.iter().map(Option::as_ref).collect();
            let results = op
                .evaluate(&call.0, &args)
                .unwrap_or_else(|error| panic!("`{}` of {dtype}: {error}", op.name));
            if Op::new(op).is(&TRUNCATE) {
                // The relation knows no more than a symbol.
                continue;
            }
            let found: Vec<Type> = results.iter().map(|result| result.ty().into()).collect();
            let expected = match expected.as_tuple() {
                Some(fields) => fields.to_vec(),
                None => vec![expected],
            };
            assert_eq!(found, expected, "`{}` of {dtype}", op.name);
        }
        assert!(accepted > 0, "the sample of `{}` is not well-typed in any data type", op.name);
    }
}

#[test]
fn every_operator_refuses_unknown_attributes_and_missing_inputs() {
    for &op in all() {
        let (attrs, shapes) = sample(op.name).unwrap();
        let dtype = |input| {
            let accepts = |dtype: &DType| {
                let types: Vec<_> = (shapes.iter().enumerate())
                    .map(|(input, shape)| {
                        shape.map(|s| TensorType::from_consts(s, dtype_of_input(op, input, *dtype)))
                    })
                    .collect();
                infer(op, &attrs, &types).is_ok()
            };
            dtype_of_input(op, input, DType::all().find(accepts).unwrap())
        };
        let types: Vec<_> = (shapes.iter().enumerate())
            .map(|(input, shape)| shape.map(|s| TensorType::from_consts(s, dtype(input))))
            .collect();
        let unknown = infer(op, &attrs.clone().with("colour", 1), &types).unwrap_err();
        assert!(unknown.to_string().contains("`colour`"), "`{}`: {unknown}", op.name);
        if shapes.is_empty() {
            continue;
        }
        let missing = infer(op, &attrs, &[]).unwrap_err();
        assert!(missing.to_string().contains("is missing"), "`{}`: {missing}", op.name);
        // Evaluation is reached from folding as well, without a builder that checks first.
        assert!(op.evaluate(&attrs, &[]).is_err(), "`{}`", op.name);
    }
}

#[test]
fn every_attribute_of_a_sample_is_needed_or_optional() {
    for &op in all() {
        let (attrs, shapes) = sample(op.name).unwrap();
        let types: Vec<_> =
            shapes.iter().map(|s| s.map(|s| TensorType::from_consts(s, DType::F32))).collect();
        for (name, _) in attrs.iter() {
            let may_be_absent =
                [("clip", "min"), ("vision.non_max_suppression", "score_threshold")];
            if may_be_absent.contains(&(op.name, name)) {
                continue;
            }
            let error = infer(op, &attrs.clone().without(name), &types).unwrap_err();
            assert!(error.to_string().contains(name), "`{}`: {error}", op.name);
        }
    }
}

#[test]
fn attributes_with_defaults_may_be_left_out() {
    for &op in all() {
        let (attrs, shapes) = sample(op.name).unwrap();
        let defaults = (op.defaults)();
        let listed = op.attrs().unwrap();
        assert!(
            defaults.iter().all(|(name, _)| listed.iter().any(|a| a.name == name)),
            "`{}` has defaults of attributes that it does not list: {defaults}",
            op.name,
        );
        let given = defaults.iter().fold(attrs, |attrs, (name, _)| attrs.without(name));
        let types: Vec<_> =
            shapes.iter().map(|s| s.map(|s| TensorType::from_consts(s, DType::F32))).collect();
        // Another number of groups may not fit the sample's shapes; its attributes are read before.
        let message = infer(op, &given.or(&defaults), &types)
            .map_or_else(|e| e.to_string(), |_| String::new());
        assert!(!message.contains("attribute"), "`{}` with {defaults}: {message}", op.name);
    }
}
