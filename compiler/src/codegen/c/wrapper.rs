//! Functions that call kernels with arguments from arrays or from tensors, in C.

use std::fmt::Write;

use super::preamble::denormals_around;
use super::text::comment_text;
use crate::codegen::size::{Size, SizeOp};
use crate::codegen::wrapper::{ArrayWrapper, Condition, Field, PackedWrapper, STRING, Wrapper};

/// What packed functions have in common: the structures of DLPack and TVM, and how a call is
/// refused.
const PACKED_DECLARATIONS: &str = "
/* DLPack's tensor and TVM's argument. */
struct niello_tensor {
    void *data;
    int device_type, device_id;
    int ndim;
    u8 dtype_code, dtype_bits;
    u16 dtype_lanes;
    i64 *shape, *strides;
    u64 byte_offset;
};
union niello_value {
    i64 v_int64;
    void *v_handle;
    const char *v_str;
};
";

/// The text of functions that call kernels, to be put after these.
pub(super) fn wrappers_text(wrappers: &[Wrapper]) -> String {
    let mut text = String::new();
    if wrappers.iter().any(Wrapper::is_packed) {
        text.push_str(PACKED_DECLARATIONS);
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "static int niello_refuse(void *value, int *tcode, const char *message) {{
    if (value)
        ((union niello_value *)value)->v_str = message;
    if (tcode)
        *tcode = {STRING}; /* a string */
    return -1;
}}
"
        );
    }
    for wrapper in wrappers {
        match wrapper {
            Wrapper::Array(array) => array_text(array, &mut text),
            Wrapper::Packed(packed) => packed_text(packed, &mut text),
        }
    }
    text
}

fn array_text(wrapper: &ArrayWrapper, text: &mut String) {
    let ArrayWrapper { symbol, kernel, buffers, dims, flush_denormals } = wrapper;
    let [before, after] = denormals_around(*flush_denormals);
    let buffers = (0..*buffers).map(|number| format!(", buffers[{number}]"));
    let dims = (0..*dims).map(|number| format!(", dims[{number}]"));
    let args: String = buffers.chain(dims).collect();
    let _ = write!(
        text,
        "
__attribute__((visibility(\"default\")))
void {symbol}(const struct niello_context *ctx, void *const *buffers, const i64 *dims) {{
    (void)buffers, (void)dims;
{before}    {kernel}(ctx{args});
{after}}}
"
    );
}

fn packed_text(wrapper: &PackedWrapper, text: &mut String) {
    let PackedWrapper { symbol, kernel, tensors, dims, reduced: _, scratch_bytes, flush_denormals } =
        wrapper;
    let [before, after] = denormals_around(*flush_denormals);
    let names = (0..tensors.len()).map(|number| format!("arg{number}"));
    let (mut args, mut declarations) = (String::new(), String::new());
    for (number, name) in names.enumerate() {
        let comment = comment_text(&tensors[number].name);
        let _ =
            writeln!(declarations, "    const struct niello_tensor *{name} = 0; /* {comment} */");
        let _ = write!(args, ", {name}->data");
    }
    let mut sizes = Sizes { tensors: tensors.len(), temporaries: 0 };
    for dim in dims {
        // An extent or an argument: nothing that could fail.
        let _ = write!(args, ", {}", sizes.text(&dim.size, &mut Vec::new()));
    }
    let mut checks = String::new();
    for (condition, message) in wrapper.conditions() {
        if let Condition::Tensor(number) = condition {
            let _ = writeln!(checks, "    arg{number} = value[{number}].v_handle;");
        }
        let _ = writeln!(
            checks,
            "    if (!({}))\n        return niello_refuse(out_ret_value, out_ret_tcode, \"{}\");",
            condition_text(&condition, &mut sizes),
            string_text(&message)
        );
    }
    for number in 0..sizes.temporaries {
        let _ = writeln!(declarations, "    i64 size{number};");
    }
    let _ = write!(
        text,
        "
/* `{kernel}` as a packed function of TVM. */
__attribute__((visibility(\"default\")))
int {symbol}(void *args, int *type_codes, int num_args, void *out_ret_value, int *out_ret_tcode,
    void *resource_handle) {{
    const union niello_value *value = args;
{declarations}    (void)value, (void)type_codes, (void)resource_handle;
"
    );
    text.push_str(&checks);
    if *scratch_bytes == 0 {
        let _ = writeln!(text, "    const struct niello_context ctx = {{0, 0, 0, 0, 0, 0, 1, 0}};");
        let _ = writeln!(text, "{before}    {kernel}(&ctx{args});\n{after}    return 0;\n}}");
        return;
    }
    let _ = write!(
        text,
        "    static u8 scratch[{scratch_bytes}] __attribute__((aligned(64)));
    static u8 busy;
    if (__atomic_exchange_n(&busy, 1, __ATOMIC_ACQUIRE))
        return niello_refuse(out_ret_value, out_ret_tcode, \"{}\");
    const struct niello_context ctx = {{0, 0, scratch, {scratch_bytes}, 0, 0, 1, 0}};
{before}    {kernel}(&ctx{args});
{after}    __atomic_store_n(&busy, 0, __ATOMIC_RELEASE);
    return 0;
}}
",
        string_text(&wrapper.busy_message())
    );
}

/// Writes integers made of arguments.
struct Sizes {
    tensors: usize,
    /// Variables for results that may exceed 64 bits.
    temporaries: usize,
}

impl Sizes {
    /// The value, if all of `conditions`, evaluated in order before it, hold.
    fn text(&mut self, size: &Size, conditions: &mut Vec<String>) -> String {
        let (op, lhs, rhs) = match size {
            Size::Constant(value) => return value.to_string(),
            Size::Extent(number, axis) => return format!("arg{number}->shape[{axis}]"),
            Size::Argument(number) => return format!("value[{}].v_int64", self.tensors + number),
            Size::Binary(op, lhs, rhs) => (op, lhs, rhs),
        };
        let (lhs, rhs) = (self.text(lhs, conditions), self.text(rhs, conditions));
        let builtin = match op {
            SizeOp::Add => "add",
            SizeOp::Sub => "sub",
            SizeOp::Mul => "mul",
            SizeOp::FloorDiv => {
                conditions.push(format!("{rhs} > 0"));
                return format!("({lhs} / {rhs} - ({lhs} % {rhs} < 0))");
            }
            SizeOp::FloorMod => {
                conditions.push(format!("{rhs} > 0"));
                return format!("({lhs} % {rhs} + ({lhs} % {rhs} < 0 ? {rhs} : 0))");
            }
            SizeOp::Min => return format!("({lhs} < {rhs} ? {lhs} : {rhs})"),
            SizeOp::Max => return format!("({lhs} > {rhs} ? {lhs} : {rhs})"),
        };
        let result = format!("size{}", self.temporaries);
        self.temporaries += 1;
        conditions.push(format!("!__builtin_{builtin}_overflow({lhs}, {rhs}, &{result})"));
        result
    }
}

/// `arg0->shape[1] == 0 || ` for each axis.
fn or_empty(number: usize, rank: usize) -> String {
    (0..rank).map(|axis| format!("arg{number}->shape[{axis}] == 0 || ")).collect()
}

fn condition_text(condition: &Condition, sizes: &mut Sizes) -> String {
    match *condition {
        Condition::NotNegative(number, axis) => format!("arg{number}->shape[{axis}] >= 0"),
        Condition::Symbolic(number, axis, ref size) => {
            let mut conditions = Vec::new();
            let value = sizes.text(size, &mut conditions);
            conditions.push(format!("arg{number}->shape[{axis}] == {value}"));
            conditions.join(" && ")
        }
        Condition::DenseStride(number, axis, rank) => {
            let product: String =
                (axis + 1..rank).map(|axis| format!(" * arg{number}->shape[{axis}]")).collect();
            format!(
                "{}!arg{number}->strides || arg{number}->shape[{axis}] == 1 || \
                 (u64)arg{number}->strides[{axis}] == (u64)1{product}",
                or_empty(number, rank)
            )
        }
        Condition::Data(number, rank) => format!("{}arg{number}->data", or_empty(number, rank)),
        Condition::Positive(ref size) => {
            let mut conditions = Vec::new();
            let value = sizes.text(size, &mut conditions);
            conditions.push(format!("{value} > 0"));
            conditions.join(" && ")
        }
        Condition::Count(count) => format!("num_args == {count}"),
        Condition::TypeCode(number, codes) => {
            let codes = codes.iter().map(|code| format!("type_codes[{number}] == {code}"));
            codes.collect::<Vec<_>>().join(" || ")
        }
        Condition::Tensor(number) => format!("arg{number}"),
        Condition::Pointer(number, field) => format!("arg{number}->{}", field_name(field)),
        Condition::Equal(number, field, value) => {
            format!("arg{number}->{} == {value}", field_name(field))
        }
        Condition::Extent(number, axis, extent) => {
            format!("arg{number}->shape[{axis}] == {extent}")
        }
        Condition::Stride(number, axis, stride, true) => {
            format!("!arg{number}->strides || arg{number}->strides[{axis}] == {stride}")
        }
        Condition::Stride(number, axis, stride, false) => {
            format!("arg{number}->strides && arg{number}->strides[{axis}] == {stride}")
        }
    }
}

fn field_name(field: Field) -> &'static str {
    match field {
        Field::Data => "data",
        Field::DeviceType => "device_type",
        Field::Ndim => "ndim",
        Field::DtypeCode => "dtype_code",
        Field::DtypeBits => "dtype_bits",
        Field::DtypeLanes => "dtype_lanes",
        Field::Shape => "shape",
        Field::ByteOffset => "byte_offset",
    }
}

/// What stands between the quotes of a string constant.
fn string_text(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            // `??` would begin a trigraph.
            '"' | '\\' | '?' => escaped.extend(['\\', c]),
            ' '..='~' => escaped.push(c),
            // Three digits, so that none after them is taken for one.
            _ => escaped.extend(c.to_string().bytes().map(|byte| format!("\\{byte:03o}"))),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_hold_anything() {
        assert_eq!(string_text("a \"b\"\\?"), "a \\\"b\\\"\\\\\\?");
        assert_eq!(string_text("ü\n1"), "\\303\\274\\0121");
    }
}
