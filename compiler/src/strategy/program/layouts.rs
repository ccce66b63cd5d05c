//! How tensors between kernels lie in memory: as the calls of the kernels say, with the borders that
//! convolutions need.

use cranelift_entity::SecondaryMap;
use indexmap::IndexMap;

use super::Lowering;
use crate::analysis::{Demand, called, demands};
use crate::diagnostics::Problem;
use crate::executor::RunTimeAxis;
use crate::graph::{Call, Expr, ExprId, Function};
use crate::ir::{AttrValue, BufferSpec, DType, Dim, GlobalVar, TensorType};
use crate::strategy::primitive::{Primitive, problem_at};
use crate::strategy::{CHANNEL_BLOCK, MIN_BLOCKED_CHANNELS, halo_needed, reads_blocks, run_time};
use crate::te::Anchor;

/// The attribute of a call of a kernel that says in which layouts it stores its tensors: a list of
/// [`DENSE_LAYOUT`] and [`BLOCKED_LAYOUT`]. Without it all are dense.
pub const LAYOUTS: &str = "layouts";

/// Elements in the order of the axes, without gaps.
pub const DENSE_LAYOUT: &str = "dense";

/// Images whose channels are in blocks of [`CHANNEL_BLOCK`], with the border that convolutions need
/// around them.
pub const BLOCKED_LAYOUT: &str = "NCHW16c";

/// Whether a tensor may be in [`BLOCKED_LAYOUT`].
pub fn can_be_blocked(ty: &TensorType) -> bool {
    let channels = ty.shape.get(1).and_then(Dim::as_const);
    let is_tiled =
        matches!(ty.dtype, DType::F32 | DType::F16 | DType::BF16 | DType::I8 | DType::U8);
    is_tiled && ty.shape.rank() == 4 && channels.is_some_and(|c| c >= MIN_BLOCKED_CHANNELS)
}

/// The border that convolutions need around an image, if any reads it: before and after, height and
/// width.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Border(Option<[(i64, i64); 2]>);

impl Demand for Border {
    fn merge(&mut self, other: &Border) {
        self.0 = match (self.0, other.0) {
            (Some(a), Some(b)) => {
                let widest = |axis: usize| (a[axis].0.max(b[axis].0), a[axis].1.max(b[axis].1));
                Some([widest(0), widest(1)])
            }
            (a, b) => a.or(b),
        };
    }
}

/// The border that a kernel needs around a parameter.
fn border_of(primitive: &Primitive, param: usize) -> Border {
    let Some(&stage) = primitive.params.get(param) else { return Border::default() };
    let input = primitive.dag.shape(stage);
    let border = match primitive.conv_of(param) {
        Some((
            Anchor::Conv2d { weight, strides, padding, pad_value, dilation, groups, .. },
            output,
        )) => {
            let kernel = primitive.dag.shape(*weight);
            if *groups > 1 && !reads_blocks(kernel, *groups, primitive.dag.dtype(stage)) {
                return Border::default();
            }
            let limits = primitive.dag.limits(stage);
            let is_open = |axis: usize| limits.iter().any(|limit| limit.axis == axis);
            let halo = |axis: usize| {
                if *pad_value != 0 {
                    // A halo reads as zero: the kernel makes a copy with the border it needs.
                    return (0, 0);
                }
                halo_needed(
                    (input[axis + 2], is_open(axis + 2)),
                    output[axis + 2],
                    kernel[axis + 2],
                    strides[axis],
                    padding[axis],
                    dilation[axis],
                )
            };
            Some([halo(0), halo(1)])
        }
        Some((Anchor::Winograd { image, padding, .. }, _)) => {
            let image = primitive.dag.shape(*image);
            let halo = |axis: usize| {
                (padding[axis], (image[axis + 2] - padding[axis] - input[axis + 2]).max(0))
            };
            Some([halo(0), halo(1)])
        }
        Some((Anchor::MatMul { .. } | Anchor::Window { .. } | Anchor::None, _)) | None => None,
    };
    Border(border)
}

/// The borders of all tensors of `main`.
pub(super) fn borders(
    main: &Function,
    primitives: &IndexMap<GlobalVar, Primitive>,
) -> SecondaryMap<ExprId, Vec<Border>> {
    let of_arg = |call: &Call, arg: usize| {
        let primitive = called(main, call).and_then(|global| primitives.get(global));
        primitive.map_or(Border::default(), |primitive| border_of(primitive, arg))
    };
    demands(main, of_arg, &Border::default())
}

impl Lowering<'_> {
    /// How the results of a call of a kernel lie in memory, as its attribute says.
    ///
    /// # Errors
    ///
    /// The attribute is not of as many results, or names a layout that one of them cannot have.
    pub(super) fn specs(
        &self,
        id: ExprId,
        global: &GlobalVar,
        results: &[(Vec<i64>, DType)],
        axes: &[Vec<RunTimeAxis>],
    ) -> Result<Vec<BufferSpec>, Problem> {
        let error = |what: String| Err(problem_at(what, self.main.span(id)));
        let Expr::Call(Call { attrs, .. }) = self.main.expr(id) else { return Ok(Vec::new()) };
        let layouts = match attrs.get(LAYOUTS) {
            None => return Ok(results.iter().map(|(shape, _)| BufferSpec::dense(shape)).collect()),
            Some(AttrValue::List(layouts)) if layouts.len() == results.len() => layouts,
            Some(other) => {
                let count = results.len();
                let what = format!(
                    "`{LAYOUTS}` of a call of `{global}` is {other}, but must be a list of {count}"
                );
                return error(what);
            }
        };
        let types = run_time::tensor_types(self.main.ty(id));
        let mut specs = Vec::with_capacity(results.len());
        for (field, ((shape, _), layout)) in results.iter().zip(layouts).enumerate() {
            let is_open =
                axes.get(field).is_some_and(|axes| axes.iter().any(|open| open.axis == 1));
            specs.push(match (layout, types.get(field)) {
                (AttrValue::Str(layout), _) if **layout == *DENSE_LAYOUT => BufferSpec::dense(shape),
                (AttrValue::Str(layout), Some(ty))
                    if **layout == *BLOCKED_LAYOUT && !is_open && can_be_blocked(ty) =>
                {
                    let border = self.borders[id].get(field).and_then(|border| border.0);
                    let border = border.as_ref().map_or(&[][..], |border| &border[..]);
                    BufferSpec::nchwc(shape, CHANNEL_BLOCK, border)
                }
                (_, ty) => {
                    let ty = ty.map(|ty| format!(", of type {ty},")).unwrap_or_default();
                    return error(format!(
                        "result {field} of a call of `{global}`{ty} cannot be stored in {layout}: a \
                         layout is \"{DENSE_LAYOUT}\", or \"{BLOCKED_LAYOUT}\" for four axes, of which \
                         the second has {MIN_BLOCKED_CHANNELS} elements or more in every run, of one \
                         or two bytes or float32"
                    ));
                }
            });
        }
        Ok(specs)
    }
}
