//! Tests of buffer specs: layouts, refusals, packing and the text form.

use proptest::prelude::*;

use super::*;

fn f32_bytes(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_ne_bytes).collect()
}

fn f32_values(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|chunk| f32::from_ne_bytes(*chunk)).collect()
}

#[test]
fn nchwc_has_blocks_halo_and_padding_lanes() {
    let spec = BufferSpec::nchwc(&[2, 20, 5, 6], 16, &[(1, 1), (0, 2)]);
    assert_eq!(spec.physical_shape(), [2, 2, 7, 8, 16]);
    assert_eq!(spec.strides(), [2 * 7 * 8 * 16, 7 * 8 * 16, 8 * 16, 16, 1]);
    assert_eq!(spec.physical_len(), Ok(2 * 2 * 7 * 8 * 16));
    assert_eq!(spec.blocking(), [(1, 16)]);
    assert!(spec.has_padding_lanes() && spec.has_halo() && !spec.is_dense());
    // n = 1, c = 17 (block 1, lane 1), y = 3 (+1), x = 4.
    let expected = 2 * 7 * 8 * 16 + 7 * 8 * 16 + 4 * 8 * 16 + 4 * 16 + 1;
    assert_eq!(spec.element_offset(&[1, 17, 3, 4]), expected);
    assert!(spec.is_addressable(&[0, 31, -1, 7]));
    assert!(!spec.is_addressable(&[0, 32, 0, 0]));
    assert!(!spec.is_addressable(&[0, 0, -2, 0]));
}

#[test]
fn convolution_weights_are_packed_in_panels() {
    // OIHW 3x2x1x2 as [O/2][I/2][KH][KW][2 i][2 o].
    let spec = BufferSpec::packed(&[3, 2, 1, 2], &[(0, 2), (1, 2), (2, 1), (3, 1), (1, 1), (0, 1)]);
    assert_eq!(spec.physical_shape(), [2, 1, 1, 2, 2, 2]);
    let weights = f32_bytes((1..=12).map(|v| v as f32));
    let packed = spec.pack(&weights, DType::F32).unwrap();
    // Element (o, i, 0, x) is 1 + 4 o + 2 i + x; the fourth output channel is padding.
    let expected = [
        1., 5., 3., 7., 2., 6., 4., 8., //
        9., 0., 11., 0., 10., 0., 12., 0.,
    ];
    assert_eq!(f32_values(&packed), expected);
    assert_eq!(spec.unpack(&packed, DType::F32).unwrap(), weights);
}

#[test]
fn scalars_empty_tensors_and_views_have_layouts() {
    assert_eq!(BufferSpec::dense(&[]).pack(&[7], DType::U8).unwrap(), [7]);
    assert!(BufferSpec::dense(&[3, 0]).pack(&[], DType::F32).unwrap().is_empty());
    let view = BufferSpec::dense(&[2, 2]).with_strides(&[3, 1]).with_offset(1);
    assert_eq!(view.physical_len(), Ok(1 + 3 + 1 + 1));
    assert_eq!(view.pack(&[1, 2, 3, 4], DType::I8).unwrap(), [0, 1, 2, 0, 3, 4]);
    assert_eq!(BufferSpec::dense(&[2, 2]).with_strides(&[2, 1]), BufferSpec::dense(&[2, 2]));
}

#[test]
fn parts_whose_elements_lie_side_by_side_have_layouts() {
    let blocked = |channels| BufferSpec::nchwc(&[1, channels, 3, 2], 16, &[(1, 1), (1, 1)]);
    let plane = 5 * 4 * 16;
    assert_eq!(blocked(40).part(1, 16..32), Some((blocked(16), plane)));
    assert_eq!(blocked(40).part(1, 32..40), Some((blocked(8), 2 * plane)));
    assert_eq!(blocked(40).part(1, 8..24), None, "it begins within a block");
    assert_eq!(blocked(40).part(1, 0..8), None, "it ends within a block");
    assert_eq!(blocked(40).part(2, 0..1), None, "the axis has a border");
    let dense = BufferSpec::dense(&[1, 4, 6]);
    assert_eq!(dense.part(1, 1..3), Some((BufferSpec::dense(&[1, 2, 6]), 6)));
    assert_eq!(dense.part(0, 0..1), Some((dense.clone(), 0)));
    assert_eq!(dense.part(2, 0..2), None, "other elements lie between its rows");
    assert_eq!(dense.part(1, 3..5), None, "it ends behind the tensor");
    assert_eq!(dense.part(1, 2..2), None);
    assert_eq!(dense.part(3, 0..1), None);
    assert_eq!(dense.clone().with_offset(1).part(1, 0..1), None);
}

#[test]
fn malformed_layouts_are_refused() {
    for (text, message) in [
        ("[2, -1]", "negative"),
        ("[4]{dims=0:2}", "the last must be 1"),
        ("[4]{dims=1:1}", "no axis 1"),
        ("[4]{dims=0:3 0:2 0:1}", "divide"),
        ("[4]{strides=1 1}", "2 strides"),
        ("[4]{halo=3:1:1}", "no axis 3"),
        ("[4]{colour=3}", "unknown field"),
        ("4", "brackets"),
    ] {
        let error = text.parse::<BufferSpec>().unwrap_err().to_string();
        assert!(error.contains(message), "{text}: {error}");
    }
    assert!(BufferSpec::dense(&[i64::MAX, 2]).physical_len().is_err());
    assert!(BufferSpec::dense(&[3]).pack(&[0; 3], DType::F32).is_err());
    assert!(BufferSpec::dense(&[3]).pack(&[0; 3], DType::I4).is_err());
}

/// Layouts with any permutation, at most one block on each axis, halos and gaps between rows.
fn specs() -> impl Strategy<Value = BufferSpec> {
    let axes = prop::collection::vec((1i64..6, 1i64..4, 0i64..3, 0i64..3), 0..4);
    (axes, any::<u64>(), 0i64..3, 0i64..3).prop_map(|(axes, seed, offset, gap)| {
        let shape: Vec<i64> = axes.iter().map(|axis| axis.0).collect();
        let mut dims: Vec<(usize, i64)> = Vec::new();
        for (axis, &(_, block, ..)) in axes.iter().enumerate() {
            let outer = if block > 1 { block } else { 1 };
            dims.insert((seed as usize >> axis) % (dims.len() + 1), (axis, outer));
        }
        dims.extend(axes.iter().enumerate().filter(|(_, a)| a.1 > 1).map(|(axis, _)| (axis, 1)));
        let mut spec = BufferSpec::packed(&shape, &dims).with_offset(offset);
        for (axis, &(_, _, before, after)) in axes.iter().enumerate() {
            spec = spec.with_halo(axis, before, after);
        }
        if gap > 0 {
            let (mut stride, mut strides) = (1, Vec::new());
            for extent in spec.physical_shape().into_iter().rev() {
                strides.insert(0, stride);
                stride = stride * extent + gap;
            }
            spec = spec.with_strides(&strides);
        }
        spec
    })
}

/// Calls `visit` with every index that names an element, the halo or padding lanes.
fn for_each_addressable(spec: &BufferSpec, index: &mut Vec<i64>, visit: &mut dyn FnMut(&[i64])) {
    let axis = index.len();
    if axis == spec.shape().len() {
        return visit(index);
    }
    for position in spec.addressable_range(axis) {
        index.push(position);
        for_each_addressable(spec, index, visit);
        index.pop();
    }
}

proptest! {
    #[test]
    fn memory_ends_behind_the_last_place_that_an_index_can_name(spec in specs()) {
        let (mut first, mut last) = (i64::MAX, i64::MIN);
        for_each_addressable(&spec, &mut Vec::new(), &mut |index| {
            let place = spec.element_offset(index);
            (first, last) = (first.min(place), last.max(place));
        });
        prop_assert_eq!((first, last), (spec.offset(), spec.physical_len().unwrap() - 1));
    }

    #[test]
    fn packing_places_every_element_where_its_offset_says(spec in specs()) {
        let elements = spec.num_elements().unwrap();
        let dense: Vec<u8> = (0..elements).flat_map(|v| (v as u16 + 1).to_ne_bytes()).collect();
        let packed = spec.pack(&dense, DType::U16).unwrap();
        let values: Vec<u16> =
            packed.as_chunks::<2>().0.iter().map(|c| u16::from_ne_bytes(*c)).collect();
        let mut index = vec![0i64; spec.shape().len()];
        let mut nonzero = 0;
        for element in 0..elements {
            let mut rest = element;
            for axis in (0..index.len()).rev() {
                index[axis] = rest % spec.shape()[axis];
                rest /= spec.shape()[axis];
            }
            prop_assert!(spec.is_addressable(&index));
            prop_assert_eq!(values[spec.element_offset(&index) as usize], element as u16 + 1);
            nonzero += 1;
        }
        prop_assert_eq!(values.iter().filter(|v| **v != 0).count(), nonzero);
        prop_assert_eq!(spec.unpack(&packed, DType::U16).unwrap(), dense);
    }

    #[test]
    fn parts_make_what_packing_at_once_makes(spec in specs(), most in 1usize..40) {
        let count = u16::try_from(spec.num_elements().unwrap()).unwrap();
        let dense: Vec<u8> = (1..=count).flat_map(u16::to_ne_bytes).collect();
        let mut parts = Vec::new();
        spec.pack_in_parts(&dense, DType::U16, most, |part| {
            assert!(part.len() <= most.max(2) || spec.strides.is_some(), "{} of {most}", part.len());
            parts.extend_from_slice(part);
            Ok(())
        })
        .unwrap();
        prop_assert_eq!(parts.len(), spec.packed_bytes(DType::U16).unwrap());
        prop_assert_eq!(parts, spec.pack(&dense, DType::U16).unwrap());
    }

    #[test]
    fn text_form_parses_back(spec in specs()) {
        prop_assert_eq!(spec.to_string().parse::<BufferSpec>().unwrap(), spec);
    }
}
