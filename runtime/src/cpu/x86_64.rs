//! Detection of the levels of x86-64, by CPUID and XGETBV.

use core::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};

use super::CpuLevel;

/// What x86-64 CPUs and systems say of themselves.
#[derive(Clone, Copy, Default)]
struct Registers {
    /// ECX of CPUID leaf 1.
    leaf_1_ecx: u32,
    /// EBX, ECX and EDX of CPUID leaf 7.
    leaf_7_ebx: u32,
    leaf_7_ecx: u32,
    leaf_7_edx: u32,
    /// ECX of CPUID leaf 8000_0001.
    extended_ecx: u32,
    /// XCR0: the registers that the system saves; 0 if it does not use XSAVE.
    xcr0: u64,
}

/// SSE3, SSSE3, FMA, CX16, SSE4.1, SSE4.2, MOVBE, POPCNT, OSXSAVE, AVX, F16C.
const V3_LEAF_1_ECX: u32 = 1
    | 1 << 9
    | 1 << 12
    | 1 << 13
    | 1 << 19
    | 1 << 20
    | OSXSAVE
    | 1 << 22
    | 1 << 23
    | 1 << 28
    | 1 << 29;
/// The system uses XSAVE.
const OSXSAVE: u32 = 1 << 27;
/// BMI1, AVX2, BMI2.
const V3_LEAF_7_EBX: u32 = 1 << 3 | 1 << 5 | 1 << 8;
/// LZCNT.
const V3_EXTENDED_ECX: u32 = 1 << 5;
/// XMM and YMM registers.
const V3_XCR0: u64 = 1 << 1 | 1 << 2;
/// AVX-512 F, DQ, CD, BW, VL.
const V4_LEAF_7_EBX: u32 = 1 << 16 | 1 << 17 | 1 << 28 | 1 << 30 | 1 << 31;
/// AVX512-VNNI.
const VNNI_LEAF_7_ECX: u32 = 1 << 11;
/// AMX-TILE, AMX-INT8.
const AMX_LEAF_7_EDX: u32 = 1 << 24 | 1 << 25;
/// The configuration of AMX's registers, and what they hold.
const AMX_XCR0: u64 = 1 << 17 | 1 << 18;
/// Mask registers, upper halves of ZMM0 to ZMM15, ZMM16 to ZMM31.
const V4_XCR0: u64 = 1 << 5 | 1 << 6 | 1 << 7;

impl Registers {
    /// The widest level whose instructions the CPU has and whose registers the system saves.
    fn level(self) -> CpuLevel {
        let v3 = self.leaf_1_ecx & V3_LEAF_1_ECX == V3_LEAF_1_ECX
            && self.leaf_7_ebx & V3_LEAF_7_EBX == V3_LEAF_7_EBX
            && self.extended_ecx & V3_EXTENDED_ECX == V3_EXTENDED_ECX
            && self.xcr0 & V3_XCR0 == V3_XCR0;
        let v4 = self.leaf_7_ebx & V4_LEAF_7_EBX == V4_LEAF_7_EBX && self.xcr0 & V4_XCR0 == V4_XCR0;
        let vnni = self.leaf_7_ecx & VNNI_LEAF_7_ECX == VNNI_LEAF_7_ECX;
        let amx =
            self.leaf_7_edx & AMX_LEAF_7_EDX == AMX_LEAF_7_EDX && self.xcr0 & AMX_XCR0 == AMX_XCR0;
        match (v3, v4, vnni, amx) {
            (false, ..) => CpuLevel::Baseline,
            (true, false, ..) => CpuLevel::X86_64V3,
            (true, true, false, _) => CpuLevel::X86_64V4,
            (true, true, true, false) => CpuLevel::X86_64V4Vnni,
            (true, true, true, true) => CpuLevel::X86_64V4Amx,
        }
    }
}

/// What this machine can run.
#[allow(unused_unsafe, reason = "CPUID became a safe function after Rust 1.88")]
pub(super) fn detect() -> CpuLevel {
    /// XGETBV without the promise that the caller was compiled for it.
    ///
    /// # Safety
    ///
    /// CPUID has OSXSAVE.
    #[target_feature(enable = "xsave")]
    unsafe fn xcr0() -> u64 {
        // SAFETY: the instruction exists where OSXSAVE is set.
        unsafe { _xgetbv(0) }
    }

    let mut registers = Registers::default();
    // SAFETY: every x86-64 CPU has CPUID.
    unsafe {
        let most = __cpuid(0).eax;
        if most >= 1 {
            registers.leaf_1_ecx = __cpuid(1).ecx;
        }
        if most >= 7 {
            let leaf = __cpuid_count(7, 0);
            registers.leaf_7_ebx = leaf.ebx;
            registers.leaf_7_ecx = leaf.ecx;
            registers.leaf_7_edx = leaf.edx;
        }
        if __cpuid(0x8000_0000).eax > 0x8000_0000 {
            registers.extended_ecx = __cpuid(0x8000_0001).ecx;
        }
    }
    if registers.leaf_1_ecx & OSXSAVE != 0 {
        // SAFETY: OSXSAVE is set.
        registers.xcr0 = unsafe { xcr0() };
    }
    match registers.level() {
        CpuLevel::X86_64V4Amx if !may_use_amx() => CpuLevel::X86_64V4Vnni,
        level => level,
    }
}

/// Asks Linux for the registers of AMX, which this process and its threads then have.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn may_use_amx() -> bool {
    /// `arch_prctl`, `ARCH_REQ_XCOMP_PERM` and the number of what the registers hold.
    const CALL: i64 = 158;
    const REQUEST: i64 = 0x1023;
    const TILE_DATA: i64 = 18;

    let result: i64;
    // SAFETY: the call changes what the system saves of this process, and no memory of it. It is one of
    // a kernel that does not know it as well, where it fails.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") CALL => result,
            in("rdi") REQUEST,
            in("rsi") TILE_DATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result == 0
}

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
fn may_use_amx() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERYTHING: Registers = Registers {
        leaf_1_ecx: !0,
        leaf_7_ebx: !0,
        leaf_7_ecx: !0,
        leaf_7_edx: !0,
        extended_ecx: !0,
        xcr0: !0,
    };

    #[test]
    fn a_level_needs_the_cpu_and_the_system() {
        assert_eq!(EVERYTHING.level(), CpuLevel::X86_64V4Amx);
        let without_amx = [
            Registers { leaf_7_edx: !(1 << 25), ..EVERYTHING },
            // The system saves none of its registers.
            Registers { xcr0: 0xff, ..EVERYTHING },
        ];
        assert_eq!(without_amx.map(Registers::level), [CpuLevel::X86_64V4Vnni; 2]);
        let without_vnni = Registers { leaf_7_ecx: !(1 << 11), ..EVERYTHING };
        assert_eq!(without_vnni.level(), CpuLevel::X86_64V4);
        assert_eq!(Registers::default().level(), CpuLevel::Baseline);
        // The system saves YMM, but not ZMM.
        assert_eq!(Registers { xcr0: 0b111, ..EVERYTHING }.level(), CpuLevel::X86_64V3);
        // An old system on a new CPU.
        assert_eq!(Registers { xcr0: 0b011, ..EVERYTHING }.level(), CpuLevel::Baseline);
        assert_eq!(Registers { xcr0: 0, ..EVERYTHING }.level(), CpuLevel::Baseline);
        // A CPU with AVX-512 F alone, and one with AVX2 but no FMA.
        let foundation = (!V4_LEAF_7_EBX) | 1 << 16;
        assert_eq!(Registers { leaf_7_ebx: foundation, ..EVERYTHING }.level(), CpuLevel::X86_64V3);
        let without_fma = Registers { leaf_1_ecx: !(1 << 12), ..EVERYTHING };
        assert_eq!(without_fma.level(), CpuLevel::Baseline);
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the processor, which Miri has not")]
    fn detection_agrees_with_the_standard_librarys() {
        let detected = detect();
        let v3 = std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma");
        let v4 = v3
            && std::is_x86_feature_detected!("avx512f")
            && std::is_x86_feature_detected!("avx512bw")
            && std::is_x86_feature_detected!("avx512vl");
        assert_eq!(detected >= CpuLevel::X86_64V3, v3);
        assert_eq!(detected >= CpuLevel::X86_64V4, v4);
        let vnni = v4 && std::is_x86_feature_detected!("avx512vnni");
        assert_eq!(detected >= CpuLevel::X86_64V4Vnni, vnni);
    }
}
