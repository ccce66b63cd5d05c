//! How many instructions a compiled loop of multiplications has: what can be told of speed without the machine.

/// How floating-point multiplications begin, alone or with an addition, of one number or of a vector.
const MULTIPLICATIONS: &[&str] = &[
    // Arm
    "fmadd", "fmla", "fmul", "vfma.f", "vmla.f", "vmul.f",
    // RISC-V, of which the scalar ones are called as Arm's
    "vfmacc", "vfmadd", "vfmul", // POWER
    "xsmadd", "xsmul", "xvmadd", "xvmul", // s390x
    "maeb", "meeb", // x86
    "mulps", "mulss", "vmulps", "vmulss",
];

/// An instruction of a disassembly.
struct Instruction<'a> {
    address: u64,
    mnemonic: &'a str,
    operands: &'a str,
}

/// Instructions and multiplications of the loop that has most of these, of those without a loop inside, in what
/// `objdump -d` prints.
pub(super) fn of_disassembly(text: &str) -> Option<(usize, usize)> {
    let mut found = None;
    // A function's name begins it; addresses begin again with each object file.
    for function in text.split(">:\n") {
        let code: Vec<Instruction<'_>> = function.lines().filter_map(instruction).collect();
        let mut inner_start = 0;
        for (end, jump) in code.iter().enumerate() {
            let Some(target) = target(jump) else { continue };
            let start = code[..=end].partition_point(|other| other.address < target);
            if code[start].address != target {
                continue;
            }
            // What begins before the last loop has it inside.
            if start >= inner_start {
                let count = code[start..=end].iter().filter(|one| is_multiplication(one)).count();
                found = found.max(Some((count, end + 1 - start)));
            }
            inner_start = end + 1;
        }
    }
    let (multiplications, instructions) = found.filter(|&(count, _)| count > 0)?;
    Some((instructions, multiplications))
}

fn is_multiplication(instruction: &Instruction<'_>) -> bool {
    MULTIPLICATIONS.iter().any(|start| instruction.mnemonic.starts_with(start))
}

/// A line of address, bytes, mnemonic and operands, with tabs between these.
fn instruction(line: &str) -> Option<Instruction<'_>> {
    let mut parts = line.split('\t');
    let address = u64::from_str_radix(parts.next()?.trim().strip_suffix(':')?, 16).ok()?;
    // The second part is bytes; a line of bytes alone goes on with an instruction before it.
    let text = parts.nth(1)?.trim_end();
    let (mnemonic, rest) = text.split_once(' ').unwrap_or((text, ""));
    let operands = parts.next().unwrap_or(rest);
    Some(Instruction { address, mnemonic, operands })
}

/// Where an instruction jumps back to, if it does: `300: bcc 1b0 <kernel+0x1b0>`.
fn target(instruction: &Instruction<'_>) -> Option<u64> {
    let (before, _) = instruction.operands.split_once(" <")?;
    let last = before.rsplit([',', ' ']).next()?.trim_start_matches("0x");
    let target = u64::from_str_radix(last, 16).ok()?;
    (target <= instruction.address).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_loop_with_most_multiplications_counts() {
        let text = "\
00000000 <kernel>:
   0:\te3a00000 \tmov\tr0, #0
   4:\tf4e70cbd \tvld1.32\t{d16}, [r7]!
   8:\tf240ecd2 \tvfma.f32\tq15, q8, q1
   c:\tf240ecd2 \tvfma.f32\tq14, q8, q2
  10:\t3affffaa \tbcc\t4 <kernel+0x4>
  14:\te2911001 \tadds\tr1, r1, #1
  18:\t1affffaa \tbne\t0 <kernel>

00000000 <other>:
   0:\t0f 59 c8             \tmulps  %xmm0,%xmm1
   3:\tff c0                \tinc    %eax
   5:\t75 f9                \tjne    0 <other>
";
        assert_eq!(of_disassembly(text), Some((4, 2)));
        assert_eq!(of_disassembly(text.split("\n\n").nth(1).unwrap()), Some((3, 1)));
        assert_eq!(of_disassembly("00000000 <f>:\n   0:\te12fff1e \tbx\tlr\n"), None);
    }
}
