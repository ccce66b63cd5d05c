//! A 1x1 convolution and a depthwise one of its result, by bands of lines: the first half of an inverted
//! residual block.
//!
//! The lines of some channels that a band of the result reads are computed, and read from the second
//! cache at once; there is no image of all channels. Lines that two bands read are computed twice. Each
//! element is computed as by kernels of its own, so that results are the same to the bit.

use super::{Conv, Direct, around};
use crate::ir::{BufferSpec, DType};
use crate::strategy::emit::{Emitter, Root};
use crate::strategy::rows::with_indices;
use crate::strategy::tile::{Column, ColumnRun, Columns, steps};
use crate::strategy::tiling::Run;
use crate::target::CHANNEL_BLOCK;
use crate::te::{Anchor, StageId, StageKind};
use crate::tir::border::{fill_box, padding};
use crate::tir::region::vars_of;
use crate::tir::{PrimExpr, Stmt};

impl Emitter {
    /// Stages that depthwise convolutions read and that are computed in the same kernel: they are stored.
    pub(in crate::strategy) fn expanded_stages(&self) -> Vec<StageId> {
        let data = self.dag.ids().filter_map(|stage| match self.dag.stages[stage].anchor {
            Anchor::Conv2d { data, groups, .. } if groups > 1 => Some(data),
            _ => None,
        });
        data.filter(|&data| self.dag.stages[data].kind != StageKind::Placeholder).collect()
    }

    /// The loops of a convolution of single pixels and a depthwise one of what is made of it; `None` if the
    /// roots are anything else.
    pub(in crate::strategy) fn emit_expanded(&mut self, roots: &[Root]) -> Option<Stmt> {
        let [first, last] = roots else { return None };
        let anchor = |emitter: &Emitter, root: &Root| {
            let inner = root.fused.unwrap_or(root.stage);
            (inner, emitter.dag.stages[inner].anchor.clone())
        };
        let [(expanding, one), (inner, other)] = [first, last].map(|root| anchor(self, root));
        let (
            Anchor::Conv2d { weight: one_weight, .. },
            Anchor::Conv2d { data, weight: other_weight, .. },
        ) = (&one, &other)
        else {
            return None;
        };
        let is_scratch = self.scratch.contains(self.materialised.get(&first.stage)?);
        let weights = [one_weight, other_weight].map(|weight| self.materialised.get(weight));
        let are_constant =
            weights.iter().all(|w| w.is_some_and(|&buffer| self.is_constant(buffer)));
        let are_known = roots.iter().all(|root| self.dag.limits(root.stage).is_empty());
        if *data != first.stage || !is_scratch || !are_constant || !are_known {
            return None;
        }
        let expand = self.conv(first.stage, expanding, &one).ok()?;
        let depthwise = self.conv(last.stage, inner, &other).ok()?;
        let is_expansion = expand.groups == 1
            && (expand.kernel, expand.strides, expand.padding) == ([1; 2], [1; 2], [0; 2])
            && expand.out_channels % CHANNEL_BLOCK == 0
            && depthwise.is_depthwise()
            && [&expand, &depthwise].iter().all(|conv| conv.ty.sum == DType::F32);
        if !is_expansion {
            return None;
        }
        self.count_macs(expanding);
        self.count_macs(inner);
        Some(match self.is_planar(self.materialised[&last.stage]) {
            true => self.through_blocks(last.stage, inner, |emitter, root| {
                emitter.expanded(expand, &Conv { root, ..depthwise })
            }),
            false => self.expanded(expand, &depthwise),
        })
    }

    fn expanded(&mut self, mut expand: Conv, depthwise: &Conv) -> Stmt {
        let wanted = expand.block();
        let image = self.image(&mut expand, wanted);
        let cut = self.cut_conv(&expand);
        self.pack_depthwise(depthwise);
        let [height, width] = expand.output;
        let [lines, pixels] = self.halos(depthwise);
        let columns = |run: &ColumnRun| run.columns.vectors * run.columns.lanes;
        let channels = cut.runs.iter().map(columns).max().unwrap_or(1);
        // Images and results pass through the second cache as well.
        let line = (width + pixels.0 + pixels.1) * channels * expand.ty.bytes();
        let most = self.machine.middle_bytes() / 4 / line;
        let band = |size: &i64| lines_read(depthwise, *size) <= most;
        let band = (1..=depthwise.output[0]).rev().find(band).unwrap_or(1);
        let bands = Run::cover(depthwise.output[0], band);
        self.note(
            depthwise.inner,
            "depthwise convolution",
            format!("bands of {band} lines"),
            None,
            None,
        );

        let scratch = depthwise.data;
        self.scratch.retain(|&buffer| buffer != scratch);
        let shape = [1, channels, lines_read(depthwise, band), width];
        // The lines of a band that begin or end outside of the image are computed further down or up.
        let halo = [(lines.1, lines.0), pixels];
        let spec = BufferSpec::nchwc(&shape, CHANNEL_BLOCK.min(channels), &halo);
        self.func.buffers[scratch].spec = spec;

        let direct = Direct { conv: &expand, block: cut.block, sums: cut.sums };
        let mut stmts = vec![image];
        for run in bands {
            let (b, b_var) = self.counter("band", run.count);
            let read = lines_read(depthwise, run.size);
            let computed = read.min(height);
            let tiles = cut.tiles([computed, width]);
            // The first lines of the result, and of those that are computed.
            let [to_var, from_var] = ["to", "from"].map(|name| self.func.index_var(name));
            let [to, from] = [to_var, from_var].map(|var| self.func.var_expr(var));
            let first_to = b * run.size + run.first;
            let first_read = first_to.clone() * depthwise.strides[0] - depthwise.padding[0];
            let first_from = first_read.clone().max(0).min(height - computed);
            // Where the two begin in what is kept, whose first line is the first that is read.
            let below = first_from.clone() - first_read.clone();
            let in_band = [(to_var, 0.into()), (from_var, below - depthwise.padding[0])].into();
            let panels = cut.runs.iter().map(|run_of_columns| {
                let fetch = cut.fetch(&expand, run_of_columns, &tiles);
                self.over_panels(&expand, run_of_columns, &mut |emitter, n, g, column| {
                    let columns = run_of_columns.columns;
                    let made =
                        emitter.panel(&direct, columns, &fetch, &tiles, [n, g, &from], column);
                    let sums =
                        emitter.depthwise_panel(depthwise, columns, column, run.size, [n, &to]);
                    let in_panel = vars_of(&column.first).into_iter().map(|var| (var, 0.into()));
                    let in_panel = in_panel.collect();
                    let kept = |mut index: Vec<PrimExpr>| {
                        if let [n, channel, y, _] = index.as_mut_slice() {
                            *n = PrimExpr::index(0);
                            *channel = channel.clone().substitute(&in_panel) - run_of_columns.first;
                            *y = y.clone().substitute(&in_band) + depthwise.padding[0];
                        }
                        index
                    };
                    let [made, sums] =
                        [made, sums].map(|stmt| with_indices(stmt, &[scratch], &kept));
                    let border = emitter.border_of_band(depthwise, height, read, &first_read);
                    Stmt::allocate(scratch, Stmt::seq([made, border, sums]))
                })
            });
            let band = Stmt::seq(panels.collect::<Vec<_>>());
            let band = band.substitute(&[(to_var, first_to), (from_var, first_from)].into());
            stmts.push(around(b_var, run.count, band));
        }
        Stmt::seq(stmts)
    }

    /// So many lines of the channels of a panel.
    fn depthwise_panel(
        &mut self,
        conv: &Conv,
        columns: Columns,
        panel: &Column,
        lines: i64,
        [n, first]: [&PrimExpr; 2],
    ) -> Stmt {
        let lanes = self.machine.sums(conv.ty.sum);
        let count = columns.vectors * columns.lanes;
        let runs = ColumnRun::cover(count, &steps(&[CHANNEL_BLOCK, lanes]), lanes);
        let runs = runs.iter().map(|run| {
            self.over_columns(run, &mut |emitter, column| {
                let channel = panel.first.clone() + column.first.clone();
                emitter.depthwise_lines(conv, run.columns, None, lines, [n, &channel, first])
            })
        });
        Stmt::seq(runs.collect::<Vec<_>>())
    }

    /// Stores zeros around what is kept of a band: so many lines, of which the first is given.
    fn border_of_band(&mut self, conv: &Conv, height: i64, lines: i64, first: &PrimExpr) -> Stmt {
        let spec = self.func.buffers[conv.data].spec.clone();
        let zero = padding(conv.ty.lhs, 0);
        let [_, channels, _, width] = <[i64; 4]>::try_from(spec.shape()).unwrap_or_default();
        let (above, beside) = (spec.halo()[2].after, spec.halo()[3]);
        let mut fill = |line: i64, lines: i64, [from, count]: [i64; 2]| {
            let ranges = [(0, 1), (0, channels), (line, lines), (from, count)];
            let ranges = ranges.map(|(start, count)| (PrimExpr::index(start), count));
            fill_box(&mut self.func, conv.data, &spec, &zero, &ranges)
        };
        let mut stmts = Vec::new();
        for side in [[-beside.before, beside.before], [width, beside.after]] {
            if side[1] > 0 {
                stmts.push(fill(0, lines, side));
            }
        }
        let whole = [-beside.before, beside.before + width + beside.after];
        for line in 0..above.min(lines) {
            let is_outside = (first.clone() + line).less(0);
            stmts.push(Stmt::if_then_else(is_outside, fill(line, 1, whole), Stmt::nop()));
        }
        for line in (0..lines).rev().take(usize::try_from(spec.halo()[2].before).unwrap_or(0)) {
            let is_outside = (first.clone() + line).greater_equal(height);
            stmts.push(Stmt::if_then_else(is_outside, fill(line, 1, whole), Stmt::nop()));
        }
        Stmt::seq(stmts)
    }
}

/// Lines of the image that so many of a result's are made of.
fn lines_read(conv: &Conv, lines: i64) -> i64 {
    (lines - 1) * conv.strides[0] + (conv.kernel[0] - 1) * conv.dilation[0] + 1
}
