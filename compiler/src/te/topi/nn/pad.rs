//! Padding.

use super::within;
use crate::ops::nn::{PadAttrs, PadMode};
use crate::te::topi::{Compute, Stages};
use crate::tir::PrimExpr;

pub(super) fn pad(cx: &mut Compute<'_>) -> Stages {
    let attrs: PadAttrs = cx.attrs()?;
    let (x, fill) = (cx.arg(0)?, cx.optional(1));
    let input = cx.dag.shape(x).to_vec();
    let (_, dtype) = cx.result();
    cx.element(|dag, index| {
        let mut at = Vec::with_capacity(index.len());
        let mut inside = PrimExpr::bool(true);
        for ((i, &[before, after]), &extent) in index.iter().zip(&attrs.pad_width).zip(&input) {
            let place = i.clone() - before;
            // An axis of which elements are only removed is never left.
            let is_padded = before > 0 || after > 0;
            at.push(match attrs.mode {
                _ if !is_padded => place,
                PadMode::Constant => {
                    inside = inside.clone().and(within(&place, 0, extent));
                    place
                }
                PadMode::Edge => place.max(0).min(extent - 1),
                PadMode::Wrap => place.floormod(extent.max(1)),
                PadMode::Reflect => reflected(place, extent),
            });
        }
        let value = dag.at(x, &at);
        if inside.is_const(1) {
            return value;
        }
        let fill = match fill {
            Some(fill) => dag.at(fill, &vec![PrimExpr::index(0); dag.shape(fill).len()]),
            None => PrimExpr::zero(dtype),
        };
        PrimExpr::select(inside, value, fill)
    })
}

/// A place mirrored at the first and the last element until it is within the axis.
fn reflected(place: PrimExpr, extent: i64) -> PrimExpr {
    if extent <= 1 {
        return PrimExpr::index(0);
    }
    let turn = (extent - 1).saturating_mul(2);
    let place = place.floormod(turn);
    place.clone().min(PrimExpr::index(turn) - place)
}
