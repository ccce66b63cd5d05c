//! Sums in registers that are matrices: what AMX has to know of a block of [`MATRIX_SUMS`].
//!
//! The block's loops are read, not a form of their own: each step is loops over terms, rows and columns
//! around a [`PrimExpr::DotAdd`]. What does not have that form is code like any other.

use std::collections::{BTreeMap, BTreeSet};

use crate::ir::DType;
use crate::target::Target;
use crate::tir::{
    Affine, BufferId, ForKind, MATRIX_BYTES, MATRIX_GRID, MATRIX_ROWS, MATRIX_STEP, MATRIX_SUMS,
    PrimExpr, PrimFuncData, Stmt, VarId,
};

/// Registers of rows, and of columns, as numbers of registers are.
const GRID: usize = MATRIX_GRID as usize;

/// Bytes of one term of all columns: four of each, side by side.
const FOUR: i64 = 4;

/// Where code is that is being written, as far as such registers matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Matrices {
    /// In a function without them.
    Unused,
    /// Where nobody has configured them.
    Outside,
    /// Where they are configured for all blocks.
    Configured,
    /// In a block.
    InBlock,
}

impl Matrices {
    /// At the beginning of a function for a target.
    pub(super) fn of(func: &PrimFuncData, target: &Target) -> Matrices {
        match target.has_matrix_add() && Block::is_in(func) {
            true => Matrices::Outside,
            false => Matrices::Unused,
        }
    }

    /// At the beginning of a function that is called from there.
    pub(super) fn of_other_function(self) -> Matrices {
        if self == Matrices::Unused { self } else { Matrices::Outside }
    }
}

/// An instruction on such registers, by their numbers.
pub(super) enum Instruction<'a> {
    /// Says which rows each of them has, and how long they are: before all others.
    Configure([u8; 64]),
    /// Gives them back, so that nobody has to save them.
    Release,
    /// Makes sums zero.
    Zero(u8),
    /// Reads rows or columns.
    Load(u8, &'a Operand),
    /// Adds the product of rows and columns to sums.
    Multiply { sums: u8, left: u8, right: u8 },
    /// Writes sums.
    Store(u8, &'a Operand),
}

/// What a code generator writes such instructions with.
pub(super) trait MatrixEmitter {
    /// Why something cannot be written.
    type Failure;

    /// The function.
    fn func(&self) -> &PrimFuncData;

    /// Where it is.
    fn place(&mut self) -> &mut Matrices;

    /// Writes an instruction.
    fn instruction(&mut self, instruction: Instruction<'_>) -> Result<(), Self::Failure>;

    /// Writes any statement.
    fn any(&mut self, stmt: &Stmt) -> Result<(), Self::Failure>;

    /// Writes a statement in which the registers are used, if it is one: a block, a step of one, or what
    /// all blocks are in for which they are configured alike.
    fn matrices(&mut self, stmt: &Stmt) -> Result<bool, Self::Failure> {
        match *self.place() {
            Matrices::Unused => return Ok(false),
            Matrices::Outside => return self.configured(stmt, |emitter| emitter.any(stmt)),
            Matrices::InBlock => {
                let Some(step) = Step::of_marked(self.func(), stmt) else { return Ok(false) };
                return self.matrix_step(&step).map(|()| true);
            }
            Matrices::Configured => {}
        }
        let Some(block) = Block::of(self.func(), stmt) else { return Ok(false) };
        for (row, column) in block.shape.each() {
            self.instruction(Instruction::Zero(Shape::sums(row, column)))?;
        }
        *self.place() = Matrices::InBlock;
        block.terms.iter().try_for_each(|stmt| self.any(stmt))?;
        *self.place() = Matrices::Configured;
        for ((row, column), place) in block.shape.each().zip(&block.stored) {
            self.instruction(Instruction::Store(Shape::sums(row, column), place))?;
        }
        Ok(true)
    }

    /// Configures the registers around what `write` writes, if all blocks of a statement want them alike
    /// and nobody has; whether it was written.
    fn configured(
        &mut self,
        stmt: &Stmt,
        write: impl FnOnce(&mut Self) -> Result<(), Self::Failure>,
    ) -> Result<bool, Self::Failure> {
        let is_outside = *self.place() == Matrices::Outside;
        let shape = is_outside.then(|| Block::shape(self.func(), stmt)).flatten();
        let Some(shape) = shape else { return Ok(false) };
        self.instruction(Instruction::Configure(shape.config()))?;
        *self.place() = Matrices::Configured;
        write(self)?;
        *self.place() = Matrices::Outside;
        self.instruction(Instruction::Release)?;
        Ok(true)
    }

    /// Writes a step.
    fn matrix_step(&mut self, step: &Step) -> Result<(), Self::Failure> {
        for (row, place) in step.left.iter().enumerate() {
            self.instruction(Instruction::Load(Shape::left(row), place))?;
        }
        for (column, place) in step.right.iter().enumerate() {
            self.instruction(Instruction::Load(Shape::right(column), place))?;
        }
        step.shape.each().try_for_each(|(row, column)| {
            let (left, right) = (Shape::left(row), Shape::right(column));
            self.instruction(Instruction::Multiply { sums: Shape::sums(row, column), left, right })
        })
    }
}

/// What the registers hold: they are configured for that.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Shape {
    /// Rows of each register of rows.
    rows: Vec<i64>,
    /// Registers of columns.
    columns: usize,
    /// Bytes of a row.
    bytes: i64,
}

impl Shape {
    /// The register of the sums of a register of rows and one of columns.
    fn sums(row: usize, column: usize) -> u8 {
        (row * GRID + column) as u8
    }

    /// A register of rows.
    fn left(row: usize) -> u8 {
        (GRID * GRID + row) as u8
    }

    /// A register of columns.
    fn right(column: usize) -> u8 {
        (GRID * GRID + GRID + column) as u8
    }

    /// Each register of rows with each of columns.
    fn each(&self) -> impl Iterator<Item = (usize, usize)> {
        let columns = self.columns;
        (0..self.rows.len()).flat_map(move |row| (0..columns).map(move |column| (row, column)))
    }

    /// Whether its registers are among those of another one.
    fn is_part_of(&self, other: &Shape) -> bool {
        let is_smaller = self.columns <= other.columns && self.bytes == other.bytes;
        is_smaller && other.rows.starts_with(&self.rows)
    }

    /// What configures the registers: palette 1, then the bytes of the rows of each register at 16, and
    /// how many rows it has at 48.
    fn config(&self) -> [u8; 64] {
        let mut config = [0; 64];
        config[0] = 1;
        let mut set = |register: u8, rows: i64, bytes: i64| {
            let register = usize::from(register);
            config[16 + 2 * register] = bytes as u8;
            config[48 + register] = rows as u8;
        };
        for (row, &rows) in self.rows.iter().enumerate() {
            set(Shape::left(row), rows, self.bytes);
        }
        for column in 0..self.columns {
            set(Shape::right(column), self.bytes / FOUR, MATRIX_BYTES);
        }
        for (row, column) in self.each() {
            set(Shape::sums(row, column), self.rows[row], MATRIX_BYTES);
        }
        config
    }
}

/// A place in memory from which a register is loaded: the first element, and bytes from row to row.
#[derive(Clone, Debug)]
pub(super) struct Operand {
    pub(super) buffer: BufferId,
    pub(super) first: PrimExpr,
    pub(super) stride: i64,
}

/// A step: what is loaded for each register of rows and of columns.
#[derive(Clone, Debug)]
pub(super) struct Step {
    shape: Shape,
    left: Vec<Operand>,
    right: Vec<Operand>,
    /// The sums in memory.
    sums: BufferId,
}

/// A block of sums.
#[derive(Clone, Debug)]
struct Block<'a> {
    shape: Shape,
    /// What adds to the sums: loops around steps.
    terms: &'a [Stmt],
    /// Where each register of sums is stored, in the order of [`Shape::each`].
    stored: Vec<Operand>,
}

impl Block<'_> {
    /// The block of a statement, if it is one whose sums can be in such registers.
    fn of<'a>(func: &PrimFuncData, stmt: &'a Stmt) -> Option<Block<'a>> {
        let Stmt::Block { name, body } = stmt else { return None };
        let Stmt::Seq(stmts) = &**body else { return None };
        let cleared: Vec<BufferId> = stmts.iter().map_while(cleared).collect();
        let terms = &stmts[cleared.len()..];
        if name != MATRIX_SUMS || cleared.is_empty() {
            return None;
        }
        let mut steps = Vec::new();
        let mut others = false;
        for stmt in terms {
            find_steps(func, stmt, &mut steps, &mut others);
        }
        let first = steps.first()?;
        let alike = |step: &Step| step.shape == first.shape && step.sums == first.sums;
        if others || !steps.iter().all(alike) || cleared.iter().any(|&buffer| buffer != first.sums)
        {
            return None;
        }
        let Step { shape, sums, .. } = first.clone();
        let width = shape.columns as i64 * MATRIX_ROWS;
        let mut above = 0;
        let mut stored = Vec::new();
        for &rows in &shape.rows {
            stored.extend((0..shape.columns as i64).map(|column| Operand {
                buffer: sums,
                first: PrimExpr::index(above * width + column * MATRIX_ROWS),
                stride: width * 4,
            }));
            above += rows;
        }
        Some(Block { shape, terms, stored })
    }

    /// The shape that suits all blocks in a statement, if there is one and no loop is shared in it, whose
    /// iterations may run here and leave the registers as they like.
    fn shape(func: &PrimFuncData, stmt: &Stmt) -> Option<Shape> {
        let mut is_shared = false;
        stmt.walk(&mut |stmt| {
            is_shared |= matches!(stmt, Stmt::For { kind: ForKind::Parallel, .. });
        });
        if is_shared {
            return None;
        }
        let shapes = Block::shapes(func, stmt);
        let widest = shapes.iter().max_by_key(|shape| (shape.rows.len(), shape.columns))?;
        shapes.iter().all(|shape| shape.is_part_of(widest)).then(|| widest.clone())
    }

    /// The shapes of the blocks in a statement.
    fn shapes(func: &PrimFuncData, stmt: &Stmt) -> BTreeSet<Shape> {
        if let Some(block) = Block::of(func, stmt) {
            return [block.shape].into();
        }
        let mut shapes = BTreeSet::new();
        stmt.for_each_child(&mut |child| shapes.extend(Block::shapes(func, child)));
        shapes
    }

    /// Whether a function has a block.
    fn is_in(func: &PrimFuncData) -> bool {
        let mut found = false;
        func.body.walk(&mut |stmt| {
            found |= matches!(stmt, Stmt::Block { name, .. } if name == MATRIX_SUMS);
        });
        found
    }
}

/// The buffer in which a statement stores zeros, if it does nothing else.
fn cleared(stmt: &Stmt) -> Option<BufferId> {
    let (mut buffers, mut others) = (BTreeSet::new(), false);
    stmt.walk(&mut |stmt| match stmt {
        Stmt::Store { buffer, value, .. } => {
            let lane = match value {
                PrimExpr::Broadcast { value, .. } => value,
                value => value,
            };
            others |= !lane.is_const(0);
            buffers.insert(*buffer);
        }
        Stmt::Seq(_) | Stmt::For { .. } | Stmt::Block { .. } => {}
        _ => others = true,
    });
    let mut buffers = buffers.into_iter();
    buffers.next().filter(|_| !others && buffers.next().is_none())
}

/// The steps in a statement, and whether anything else is done in it.
fn find_steps(func: &PrimFuncData, stmt: &Stmt, steps: &mut Vec<Step>, others: &mut bool) {
    match stmt {
        Stmt::For { annotations, .. } if annotations.contains_key(MATRIX_STEP) => {
            match Step::of(func, stmt) {
                Some(step) => steps.push(step),
                None => *others = true,
            }
        }
        Stmt::Prefetch { .. } => {}
        Stmt::For { kind: ForKind::Serial, .. } | Stmt::Seq(_) | Stmt::Let { .. } => {
            stmt.for_each_child(&mut |child| find_steps(func, child, steps, others));
        }
        _ => *others = true,
    }
}

/// An index as a sum, with the variables of some loops apart from the rest: their factors.
fn factors(index: &PrimExpr, vars: &[VarId]) -> Option<(Vec<i64>, PrimExpr)> {
    let mut rest = Affine::of(index);
    let factors = vars.iter().map(|&var| {
        let is_own = |(atom, _): &(PrimExpr, i64)| matches!(atom, PrimExpr::Var { var: own, .. } if *own == var);
        match rest.terms.iter().position(is_own) {
            Some(place) => rest.terms.remove(place).1,
            None => 0,
        }
    });
    let factors = factors.collect();
    let rest = rest.into_expr();
    let is_free = vars.iter().all(|&var| !rest.uses(var));
    is_free.then_some((factors, rest))
}

/// The first of adjacent elements that an index names.
fn first_of(indices: &[PrimExpr], lanes: i64) -> Option<&PrimExpr> {
    match indices {
        [PrimExpr::Ramp { base, stride, lanes: own }]
            if stride.is_const(1) && i64::from(*own) == lanes =>
        {
            Some(base)
        }
        _ => None,
    }
}

/// A store of a step: the sums of a row and so many columns.
struct Leaf {
    sums: (BufferId, PrimExpr),
    left: (BufferId, PrimExpr),
    right: (BufferId, PrimExpr),
}

impl Leaf {
    fn of(func: &PrimFuncData, stmt: &Stmt, values: &BTreeMap<VarId, PrimExpr>) -> Option<Leaf> {
        let Stmt::Store { buffer, indices, value: PrimExpr::DotAdd { a, b, c } } = stmt else {
            return None;
        };
        let PrimExpr::Load { buffer: summed, indices: at, .. } = &**c else { return None };
        let PrimExpr::Shuffle { vectors, lanes } = &**a else { return None };
        let [PrimExpr::Load { buffer: left, indices: four, .. }] = vectors.as_slice() else {
            return None;
        };
        let PrimExpr::Load { buffer: right, indices: columns, .. } = &**b else { return None };
        let repeats = lanes.len() as i64 == MATRIX_BYTES
            && (0..).zip(lanes).all(|(place, &lane): (i64, _)| i64::from(lane) == place % FOUR);
        let types = [*left, *right, *buffer].map(|buffer| func.buffers[buffer].dtype);
        if summed != buffer || at != indices || !repeats {
            return None;
        }
        let first = |indices: &[PrimExpr], lanes: i64| {
            Some(first_of(indices, lanes)?.clone().substitute(values))
        };
        (types == [DType::U8, DType::I8, DType::I32]).then_some(Leaf {
            sums: (*buffer, first(indices, MATRIX_ROWS)?),
            left: (*left, first(four, FOUR)?),
            right: (*right, first(columns, MATRIX_BYTES)?),
        })
    }
}

impl Step {
    /// The step of a loop that is marked as one.
    fn of_marked(func: &PrimFuncData, stmt: &Stmt) -> Option<Step> {
        match stmt {
            Stmt::For { annotations, .. } if annotations.contains_key(MATRIX_STEP) => {
                Step::of(func, stmt)
            }
            _ => None,
        }
    }

    /// What the loops of a step do.
    fn of(func: &PrimFuncData, stmt: &Stmt) -> Option<Step> {
        let (mut loops, mut values) = (Vec::new(), BTreeMap::new());
        let mut stmt = stmt;
        let stores = loop {
            match stmt {
                Stmt::For { var, min, extent, kind: ForKind::Serial, body, .. } => {
                    min.is_const(0).then_some(())?;
                    loops.push((*var, extent.as_int()?));
                    stmt = body;
                }
                Stmt::Let { var, value, body } => {
                    values.insert(*var, value.clone().substitute(&values));
                    stmt = body;
                }
                Stmt::Seq(stmts) => break stmts.as_slice(),
                Stmt::Store { .. } => break std::slice::from_ref(stmt),
                _ => return None,
            }
        };
        let leaves: Option<Vec<Leaf>> =
            stores.iter().map(|store| Leaf::of(func, store, &values)).collect();
        let leaves = leaves.filter(|leaves| (1..=GRID).contains(&leaves.len()))?;
        let vars: Vec<VarId> = loops.iter().map(|(var, _)| *var).collect();
        let width = leaves.len() as i64 * MATRIX_ROWS;
        let first = leaves.first()?;
        let (of_sums, sums_at) = factors(&first.sums.1, &vars)?;
        let (of_left, left_at) = factors(&first.left.1, &vars)?;
        let (of_right, right_at) = factors(&first.right.1, &vars)?;
        sums_at.is_const(0).then_some(())?;
        // Beside the first columns lie the others.
        for (number, leaf) in (0..).zip(&leaves) {
            let number: i64 = number;
            let (sums, sums_at) = factors(&leaf.sums.1, &vars)?;
            let (left, at) = factors(&leaf.left.1, &vars)?;
            let (right, columns_at) = factors(&leaf.right.1, &vars)?;
            let beside = columns_at - right_at.clone();
            let is_beside = Affine::of(&beside).as_const() == Some(number * MATRIX_BYTES)
                && sums_at.is_const(number * MATRIX_ROWS)
                && Affine::of(&(at - left_at.clone())).as_const() == Some(0);
            let is_alike = (&sums, &left, &right) == (&of_sums, &of_left, &of_right);
            let are_same = leaf.sums.0 == first.sums.0
                && leaf.left.0 == first.left.0
                && leaf.right.0 == first.right.0;
            (is_beside && is_alike && are_same).then_some(())?;
        }
        // The terms, innermost first: four bytes of a row for each row of the columns.
        let mut terms = 1;
        let mut below: Option<i64> = None;
        let mut rows: Vec<(i64, i64)> = Vec::new();
        let mut height = 1;
        for (place, &(_, extent)) in loops.iter().enumerate().rev() {
            match of_sums[place] {
                0 => {
                    let stride = *below.get_or_insert(of_right[place]);
                    let is_next =
                        (of_left[place], of_right[place]) == (terms * FOUR, terms * stride);
                    is_next.then_some(())?;
                    terms *= extent;
                }
                step => {
                    (step == height * width && of_right[place] == 0).then_some(())?;
                    rows.push((extent, of_left[place]));
                    height *= extent;
                }
            }
        }
        let bytes = terms * FOUR;
        (below? > 0 && bytes <= MATRIX_BYTES).then_some(())?;
        let (heights, stride) = registers_of_rows(&rows)?;
        let operand =
            |(buffer, first): (BufferId, PrimExpr), stride| Operand { buffer, first, stride };
        let left = heights
            .iter()
            .map(|(_, from)| operand((first.left.0, left_at.clone() + *from), stride));
        let right = (0..leaves.len() as i64).map(|column| {
            operand((first.right.0, right_at.clone() + column * MATRIX_BYTES), below.unwrap_or(0))
        });
        let shape = Shape {
            rows: heights.iter().map(|(rows, _)| *rows).collect(),
            columns: leaves.len(),
            bytes,
        };
        Some(Step { shape, left: left.collect(), right: right.collect(), sums: first.sums.0 })
    }
}

/// The rows of each register and how far behind the first element its own are, and the bytes from one row
/// to the next, of loops over rows, innermost first: extents, and bytes from one iteration to the next.
fn registers_of_rows(loops: &[(i64, i64)]) -> Option<(Vec<(i64, i64)>, i64)> {
    let most = MATRIX_GRID;
    match *loops {
        [] => Some((vec![(1, 0)], MATRIX_BYTES)),
        [(count, stride)] => {
            let registers = (count + MATRIX_ROWS - 1) / MATRIX_ROWS;
            let first = (count + registers - 1) / registers;
            let rows = match registers {
                1 => vec![(count, 0)],
                _ if registers == most => vec![(first, 0), (count - first, first * stride)],
                _ => return None,
            };
            Some((rows, stride))
        }
        [(inner, stride), (outer, line)] if line == inner * stride => {
            registers_of_rows(&[(inner * outer, stride)])
        }
        [(inner, stride), (outer, line)] if inner <= MATRIX_ROWS && outer <= most => {
            Some(((0..outer).map(|number| (inner, number * line)).collect(), stride))
        }
        _ => None,
    }
}
