//! A function as a sequence of tokens that is the same for all functions of the same structure.

use std::collections::VecDeque;
use std::fmt;

use cranelift_entity::SecondaryMap;

use crate::arith::Facts;
use crate::graph::visit::ScopeTree;
use crate::graph::{
    Call, Callee, Closure, Expr, ExprId, Function, If, Scope, ScopeId, ScopeKind, While,
};
use crate::ir::{Attrs, Constant, GlobalVar, Type};
use crate::ops::Op;

/// A piece of a function's structure. Expressions are numbered in the order in which they are
/// reached from the result; names, ids and spans do not occur.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Token<'a> {
    Function {
        attrs: &'a Attrs,
        facts: &'a Facts,
    },
    /// A scope starts: its kind and how many parameters it has.
    Scope(ScopeKind, usize),
    /// A parameter, or a closure's name for itself.
    Param(&'a Type),
    /// A binding, whose value follows.
    Bind,
    /// The end of a scope, whose result follows.
    Result,
    /// A use of the expression with that number.
    Use(u32),
    Global(&'a GlobalVar),
    Constant(&'a Constant),
    /// A field of the tuple that follows.
    Field(u32),
    /// An absent argument.
    Absent,
    Tuple {
        depth: u32,
        fields: usize,
    },
    Op {
        depth: u32,
        op: Op,
        attrs: &'a Attrs,
        args: usize,
    },
    /// A call of the function that follows.
    Call {
        depth: u32,
        attrs: &'a Attrs,
        args: usize,
    },
    If {
        depth: u32,
    },
    While {
        depth: u32,
        state: usize,
    },
    Func {
        depth: u32,
        attrs: &'a Attrs,
        recursive: bool,
    },
    /// A use of an expression that is defined nowhere; only in functions that do not verify.
    Undefined,
}

impl fmt::Display for Token<'_> {
    /// The description of the token in a message about a difference.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Function { attrs, facts } => {
                write!(f, "a function with attributes {{{attrs}}} and facts {{{facts}}}")
            }
            Token::Scope(kind, params) => write!(f, "a {kind:?} of {params} parameters"),
            Token::Param(ty) => write!(f, "a parameter of type {ty}"),
            Token::Bind => f.write_str("a binding"),
            Token::Result => f.write_str("the result of a scope"),
            Token::Use(number) => write!(f, "a use of value {number}"),
            Token::Global(global) => write!(f, "{global}"),
            Token::Constant(constant) => {
                write!(f, "a constant of type {}, {}", constant.ty(), hex(constant.digest()))
            }
            Token::Field(index) => write!(f, "field {index} of a tuple"),
            Token::Absent => f.write_str("no argument"),
            Token::Tuple { depth, fields } => {
                write!(f, "a tuple of {fields} fields{}", Depth(*depth))
            }
            Token::Op { depth, op, attrs, args } => {
                write!(f, "{op} of {args} arguments with {{{attrs}}}{}", Depth(*depth))
            }
            Token::Call { depth, attrs, args } => {
                write!(f, "a call of {args} arguments with {{{attrs}}}{}", Depth(*depth))
            }
            Token::If { depth } => write!(f, "a choice{}", Depth(*depth)),
            Token::While { depth, state } => {
                write!(f, "a loop over {state} values{}", Depth(*depth))
            }
            Token::Func { depth, attrs, recursive } => {
                let kind = if *recursive { "recursive closure" } else { "closure" };
                write!(f, "a {kind} with {{{attrs}}}{}", Depth(*depth))
            }
            Token::Undefined => f.write_str("an undefined value"),
        }
    }
}

fn hex(digest: &[u8]) -> String {
    digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect::<String>() + "…"
}

/// The number of scopes around an expression.
struct Depth(u32);

impl fmt::Display for Depth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            depth => write!(f, " at depth {depth}"),
        }
    }
}

/// A token, and the expression it belongs to.
pub(super) type Step<'a> = (Token<'a>, Option<ExprId>);

enum Work {
    /// Number an expression, after its operands.
    Visit(ExprId),
    /// Write an expression whose operands have numbers.
    Write(ExprId),
    /// Give an expression that is written the next number.
    Number(ExprId),
    Scope(ScopeId, Option<ExprId>),
    Bind(ExprId),
    Result(ExprId),
}

/// The tokens of a function, one after the other. Takes linear time and does not recurse.
pub(super) struct Canonical<'a> {
    function: &'a Function,
    tree: ScopeTree,
    numbers: SecondaryMap<ExprId, Option<u32>>,
    next: u32,
    work: Vec<Work>,
    out: VecDeque<Step<'a>>,
}

impl<'a> Canonical<'a> {
    pub(super) fn new(function: &'a Function) -> Canonical<'a> {
        let head = Token::Function { attrs: function.attrs(), facts: function.facts() };
        Canonical {
            function,
            tree: ScopeTree::new(function),
            numbers: SecondaryMap::new(),
            next: 0,
            work: vec![Work::Scope(function.body(), None)],
            out: VecDeque::from([(head, None)]),
        }
    }

    fn number(&mut self, id: ExprId) {
        self.numbers[id] = Some(self.next);
        self.next += 1;
    }

    /// The expression whose number a use refers to: a field is a use of its tuple.
    fn root(&self, mut id: ExprId) -> ExprId {
        while let Expr::TupleGet { tuple, index: _ } = self.function.expr(id)
            && *tuple < id
        {
            id = *tuple;
        }
        id
    }

    fn step(&mut self, work: Work) {
        match work {
            Work::Visit(id) => {
                let id = self.root(id);
                if self.numbers[id].is_some() {
                    return;
                }
                match self.function.expr(id) {
                    // Leaves are written where they are used.
                    Expr::Var(_) | Expr::GlobalVar(_) | Expr::Constant(_) => {}
                    Expr::TupleGet { .. } => {}
                    expr @ (Expr::Tuple(_)
                    | Expr::Call(_)
                    | Expr::If(_)
                    | Expr::While(_)
                    | Expr::Func(_)) => {
                        self.work.push(Work::Write(id));
                        let start = self.work.len();
                        // An operand with a greater id is not evaluated yet, which the verifier
                        // refuses.
                        let operands = expr.operands().filter(|&operand| operand < id);
                        self.work.extend(operands.map(Work::Visit));
                        self.work[start..].reverse();
                    }
                }
            }
            Work::Write(id) if self.numbers[id].is_none() => self.write(id),
            Work::Write(_) => {}
            Work::Number(id) => self.number(id),
            Work::Scope(scope, recursive) => self.scope(scope, recursive),
            Work::Bind(value) => {
                self.out.push_back((Token::Bind, Some(value)));
                self.use_of(value, value);
            }
            Work::Result(value) => {
                self.out.push_back((Token::Result, Some(value)));
                self.use_of(value, value);
            }
        }
    }

    fn write(&mut self, id: ExprId) {
        let function = self.function;
        let data = function.data_of(id);
        let depth = self.tree.depth(data.scope);
        let mut recursive_var = None;
        let mut args: &[Option<ExprId>] = &[];
        let mut values: &[ExprId] = &[];
        let mut first = None;
        let token = match &data.expr {
            Expr::Var(_) | Expr::GlobalVar(_) | Expr::Constant(_) | Expr::TupleGet { .. } => return,
            Expr::Tuple(fields) => {
                values = fields;
                Token::Tuple { depth, fields: fields.len() }
            }
            Expr::Call(call) => {
                let Call { callee, args: all, attrs } = call;
                // An absent argument at the end is the same as no argument.
                let given = all.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
                args = &all[..given];
                match callee {
                    Callee::Op(op) => Token::Op { depth, op: *op, attrs, args: given },
                    Callee::Expr(callee) => {
                        first = Some(*callee);
                        Token::Call { depth, attrs, args: given }
                    }
                }
            }
            Expr::If(If { cond, then_scope: _, else_scope: _ }) => {
                first = Some(*cond);
                Token::If { depth }
            }
            Expr::While(While { init, cond: _, body: _ }) => {
                values = init;
                Token::While { depth, state: init.len() }
            }
            Expr::Func(Closure { scope: _, recursive, attrs }) => {
                recursive_var = *recursive;
                Token::Func { depth, attrs, recursive: recursive.is_some() }
            }
        };
        self.out.push_back((token, Some(id)));
        for value in first.into_iter().chain(values.iter().copied()) {
            self.use_of(value, id);
        }
        for arg in args {
            match arg {
                Some(arg) => self.use_of(*arg, id),
                None => self.out.push_back((Token::Absent, Some(id))),
            }
        }
        self.work.push(Work::Number(id));
        let start = self.work.len();
        self.work.extend(data.expr.scopes().map(|scope| Work::Scope(scope, recursive_var)));
        self.work[start..].reverse();
    }

    fn scope(&mut self, scope: ScopeId, recursive: Option<ExprId>) {
        let function = self.function;
        let Scope { kind, parent: _, params, bindings, result } = function.scope(scope);
        self.out.push_back((Token::Scope(*kind, params.len()), self.tree.owner(scope)));
        for &param in recursive.iter().chain(params) {
            self.out.push_back((Token::Param(function.ty(param)), Some(param)));
            self.number(param);
        }
        let start = self.work.len();
        for binding in bindings {
            self.work.extend([Work::Visit(binding.value), Work::Bind(binding.value)]);
        }
        self.work.extend([Work::Visit(*result), Work::Result(*result)]);
        self.work[start..].reverse();
    }

    /// Writes a use of an expression that has a number, or of a leaf.
    fn use_of(&mut self, mut id: ExprId, user: ExprId) {
        let function = self.function;
        let at = Some(user);
        loop {
            if let Some(number) = self.numbers[id] {
                return self.out.push_back((Token::Use(number), at));
            }
            match function.expr(id) {
                Expr::TupleGet { tuple, index } if *tuple < id => {
                    self.out.push_back((Token::Field(*index), at));
                    id = *tuple;
                }
                Expr::GlobalVar(global) => {
                    return self.out.push_back((Token::Global(global), at));
                }
                Expr::Constant(constant) => {
                    return self.out.push_back((Token::Constant(constant), at));
                }
                Expr::Var(_)
                | Expr::TupleGet { .. }
                | Expr::Tuple(_)
                | Expr::Call(_)
                | Expr::If(_)
                | Expr::While(_)
                | Expr::Func(_) => return self.out.push_back((Token::Undefined, at)),
            }
        }
    }
}

impl<'a> Iterator for Canonical<'a> {
    type Item = Step<'a>;

    fn next(&mut self) -> Option<Step<'a>> {
        loop {
            if let Some(step) = self.out.pop_front() {
                return Some(step);
            }
            let work = self.work.pop()?;
            self.step(work);
        }
    }
}
