//! Loops that are split, and loops that are not.

use super::*;
use crate::pass::Pass;
use crate::tir::{parse, verify};

const ALL: LoopPartitionConfig = LoopPartitionConfig {
    partition_const_loop: true,
    no_unroll_loop_with_extent_one: false,
    unroll_loop_with_partition_hint_no_interval: false,
};

#[track_caller]
fn becomes(config: LoopPartitionConfig, before: &str, after: &str) {
    let head = "prim_func @f(x: input float32[1024], y: output float32[1024], n: dim) {\n";
    let text = |body: &str| format!("{head}{body}}}\n");
    let func = parse(&text(before)).unwrap_or_else(|error| panic!("{error}\n{before}"));
    verify(&func).unwrap();
    let cx = PassContext::builder().config(&LOOP_PARTITION, config).build().unwrap();
    let func = LoopPartition.run_on_prim_func(func, &cx).unwrap();
    verify(&func).unwrap();
    assert_eq!(func.to_string(), text(after), "\n{func}");
}

#[test]
fn an_even_split_becomes_two_loops_without_conditions() {
    becomes(
        ALL,
        "for io in serial(22) {
            for ii in unrolled(6) {
                if io < 18 | ii < 5 {
                    y[io * 5 + min(io, 18) + ii] = x[io * 5 + min(io, 18) + ii]
                }
            }
        }",
        "  for io in serial(18) {
    for ii in unrolled(6) {
      y[io * 6 + ii] = x[io * 6 + ii]
    }
  }
  for io_1 in serial(18, 4) {
    for ii_1 in unrolled(5) {
      y[io_1 * 5 + ii_1 + 18] = x[io_1 * 5 + ii_1 + 18]
    }
  }
",
    );
}

#[test]
fn lanes_that_do_nothing_are_cut_off() {
    becomes(
        ALL,
        "for v in vectorized(16) { if v < 8 { y[v] = 1.0 } }
        for v in vectorized(16) { if v < 8 { y[v] = 1.0 } else { y[v] = 2.0 } }",
        "  for v in vectorized(8) {
    y[v] = 1.0
  }
  for v_1 in vectorized(16) {
    if v_1 < 8 {
      y[v_1] = 1.0
    } else {
      y[v_1] = 2.0
    }
  }
",
    );
}

#[test]
fn the_last_panel_alone_has_conditions() {
    becomes(
        ALL,
        "for j0 in serial(16) {
            for j1 in unrolled(4) {
                for j2 in vectorized(16) {
                    if j0 * 64 + j1 * 16 + j2 < 1000 { y[j0 * 64 + j1 * 16 + j2] = 1.0 }
                }
            }
        }",
        "  for j0 in serial(15) {
    for j1 in unrolled(4) {
      for j2 in vectorized(16) {
        y[j0 * 64 + j1 * 16 + j2] = 1.0
      }
    }
  }
  for j1_1 in unrolled(2) {
    for j2_1 in vectorized(16) {
      y[j1_1 * 16 + j2_1 + 960] = 1.0
    }
  }
  for j2_2 in vectorized(8) {
    y[j2_2 + 992] = 1.0
  }
",
    );
}

#[test]
fn a_loop_of_symbolic_extent_is_split_without_being_asked() {
    becomes(
        LoopPartitionConfig::default(),
        "for io in parallel(floordiv(n + 15, 16)) {
            for ii in vectorized(16) {
                if io * 16 + ii < n { y[io * 16 + ii] = 1.0 }
            }
        }
        for i in serial(8) { if i < 4 { y[i] = 2.0 } }",
        "  for io in parallel(floordiv(n, 16)) {
    for ii in vectorized(16) {
      y[io * 16 + ii] = 1.0
    }
  }
  for io_1 in parallel(floordiv(n, 16), floordiv(n + 15, 16) - floordiv(n, 16)) {
    for ii_1 in vectorized(16) {
      if io_1 * 16 + ii_1 < n {
        y[io_1 * 16 + ii_1] = 1.0
      }
    }
  }
  for i in serial(8) {
    if i < 4 {
      y[i] = 2.0
    }
  }
",
    );
}

#[test]
fn symbolic_parts_in_which_nothing_is_decided_are_one_loop() {
    becomes(
        LoopPartitionConfig::default(),
        "for g in serial(floordiv(n + 15, 16) - floordiv(n, 64) * 4) {
            y[min(floordiv(n, 64) * 64 + g * 16, 112)] = 1.0
        }",
        "  for g in serial(floordiv(n + 15, 16) - floordiv(n, 64) * 4) {
    y[min(floordiv(n, 64) * 64 + g * 16, 112)] = 1.0
  }
",
    );
}

#[test]
fn a_border_leaves_the_inside_alone() {
    becomes(
        LoopPartitionConfig::default(),
        "for i in serial(30) [\"pragma_loop_partition_hint\" = \"1\"] {
            for k in unrolled(3) {
                y[i] = y[i] + select(i + k >= 1 & i + k < 31, x[i + k - 1], 0.0)
            }
        }",
        "  for k in unrolled(3) {
    y[0] = y[0] + select(k >= 1, x[k - 1], 0.0)
  }
  for i in serial(1, 28) {
    for k_1 in unrolled(3) {
      y[i] = y[i] + x[i + k_1 - 1]
    }
  }
  for k_2 in unrolled(3) {
    y[29] = y[29] + select(k_2 < 2, x[k_2 + 28], 0.0)
  }
",
    );
}

#[test]
fn options_decide_on_hints_and_single_iterations() {
    let options = LoopPartitionConfig {
        no_unroll_loop_with_extent_one: true,
        unroll_loop_with_partition_hint_no_interval: true,
        partition_const_loop: false,
    };
    becomes(
        options,
        "for i in serial(4) [\"pragma_loop_partition_hint\" = \"1\"] {
            if i < 3 { y[i] = 1.0 } else { y[i] = 2.0 }
        }
        for i in serial(4) [\"pragma_loop_partition_hint\" = \"1\"] { y[i] = 1.0 }",
        "  for i in serial(3) {
    y[i] = 1.0
  }
  for i_1 in serial(3, 1) {
    y[3] = 2.0
  }
  for i_2 in unrolled(4) {
    y[i_2] = 1.0
  }
",
    );
}
