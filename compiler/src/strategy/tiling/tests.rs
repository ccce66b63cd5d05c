//! The choices at the shapes of the experiments.

use super::*;

const AVX512: Machine = Machine {
    vector_bits: 512,
    registers: 32,
    caches: [48 << 10, 2 << 20],
    dot: false,
    words: false,
    matrix: false,
    halves: false,
};
const AVX2: Machine = Machine {
    vector_bits: 256,
    registers: 16,
    caches: [32 << 10, 512 << 10],
    dot: false,
    words: false,
    matrix: false,
    halves: false,
};

fn matrix(m: i64, k: i64, n: i64) -> Work {
    Work::product(m, n, k, k * 4)
}

/// A square image that keeps its extent, but for the stride.
fn conv(extent: i64, channels: i64, filters: i64, kernel: i64, stride: i64) -> Work {
    let out = (extent - 1) / stride + 1;
    Work {
        rows: [out, out],
        columns: filters,
        depth: channels * kernel * kernel,
        sum: DType::F32,
        fours: false,
        window: Window { strides: [stride; 2], extents: [kernel; 2], pixel: channels.max(16) * 4 },
        scattered: false,
        stride: None,
        weights: 0,
    }
}

fn chosen(work: Work) -> (i64, Order, bool) {
    let Tiling { vectors, order, next, .. } = Tiling::choose(AVX512, AVX512, &work);
    (vectors, order, next)
}

const PANELS: Order = Order::Panels { blocks: 1 };

#[test]
fn weights_beyond_the_second_level_are_swept_once_and_fetched_ahead() {
    for work in [
        matrix(128, 384, 1536),
        matrix(128, 1536, 384),
        matrix(197, 768, 3072),
        matrix(49, 512, 2048),
        conv(14, 256, 256, 3, 1),
        conv(14, 512, 512, 3, 1),
        conv(7, 512, 512, 3, 1),
        conv(14, 1024, 256, 1, 1),
        conv(14, 256, 1024, 1, 1),
        conv(7, 2048, 512, 1, 1),
    ] {
        assert_eq!(chosen(work), (2, PANELS, true), "{work:?}");
    }
}

#[test]
fn rows_whose_lines_compete_for_a_set_have_lower_and_wider_tiles() {
    for work in [
        matrix(49, 2048, 512),
        matrix(32, 1024, 1024),
        matrix(196, 1024, 256),
        matrix(64, 3072, 768),
    ] {
        assert_eq!(chosen(work), (4, PANELS, true), "{work:?}");
    }
    // Half of the rows, a quarter.
    for work in [matrix(128, 1536, 384), matrix(197, 768, 3072), matrix(128, 512, 2048)] {
        assert_eq!(chosen(work), (2, PANELS, true), "{work:?}");
    }
    // Few columns have no wider ones.
    for (terms, rows) in [(1024, 7), (2048, 7), (1000, 14), (512, 14), (1032, 14)] {
        assert_eq!(matrix(400, terms, 8).rows_in_ways(14), rows, "{terms} terms");
    }
}

#[test]
fn weights_that_stay_are_swept_for_each_tile() {
    for work in [matrix(784, 128, 512), matrix(784, 512, 128), conv(56, 64, 64, 3, 1)] {
        assert_eq!(chosen(work), (2, Order::Rows, false), "{work:?}");
    }
    // An image that does not stay is read once.
    for work in [conv(56, 256, 64, 1, 1), conv(112, 128, 128, 3, 1), conv(224, 64, 64, 3, 1)] {
        assert_eq!(chosen(work).1, Order::Rows, "{work:?}");
    }
}

#[test]
fn a_large_matrix_is_multiplied_in_blocks_of_rows() {
    let (_, order, next) = chosen(matrix(1024, 1024, 1024));
    assert_eq!((order, next), (Order::Panels { blocks: 8 }, true));
}

#[test]
fn an_image_that_does_not_stay_is_gone_through_in_blocks_of_lines() {
    let of = |machine, work: Work| Tiling::choose(machine, machine, &work).order;
    assert_eq!(of(AVX512, conv(28, 512, 512, 3, 1)), Order::Panels { blocks: 4 });
    // The second level of such machines is smaller.
    assert_eq!(of(AVX512, conv(14, 1024, 256, 1, 1)), PANELS);
    assert_eq!(of(AVX2, conv(14, 1024, 256, 1, 1)), Order::Panels { blocks: 7 });
}

#[test]
fn levels_share_panels_and_have_orders_of_their_own() {
    let work = conv(14, 1024, 256, 1, 1);
    let (wide, narrow) =
        (Tiling::choose(AVX512, AVX512, &work), Tiling::choose(AVX512, AVX2, &work));
    assert_eq!(wide.vectors, narrow.vectors);
    assert_ne!(wide.order, narrow.order);
}

#[test]
fn few_rows_have_more_columns_and_fetch_no_panel_that_is_near() {
    assert_eq!(chosen(matrix(1, 4096, 4096)).0, 8);
    assert_eq!(chosen(matrix(4, 1024, 1024)).0, 4);
    for rows in [1, 4, 8] {
        assert!(!chosen(matrix(rows, 512, 512)).2, "{rows}");
    }
    // What comes from afar is asked for, however few rows need it.
    let far = |rows| Work { weights: 16 << 20, ..matrix(rows, 512, 512) };
    for rows in [1, 2, 3, 4] {
        let Tiling { order, next, ahead, .. } = Tiling::choose(AVX512, AVX512, &far(rows));
        assert_eq!((order, next, ahead), (PANELS, true, 0), "{rows}");
    }
}

#[test]
fn panels_waste_no_registers() {
    // Nine vectors are three panels, not four and a half.
    assert_eq!(chosen(conv(56, 24, 144, 1, 1)).0, 3);
    assert_eq!(chosen(conv(112, 16, 16, 1, 1)).0, 1);
    for columns in 1..300 {
        for machine in [AVX512, AVX2] {
            let tiling = Tiling::choose(machine, machine, &conv(14, 64, columns, 1, 1));
            let lanes = machine.lanes(DType::F32);
            assert!((tiling.vectors - 1) * lanes < columns, "{columns}: {tiling:?}");
        }
    }
}

#[test]
fn nothing_is_asked_for_that_is_in_the_first_level() {
    assert_eq!(Tiling::choose(AVX512, AVX512, &conv(224, 3, 32, 3, 2)).ahead, 0);
    assert_eq!(Tiling::choose(AVX512, AVX512, &conv(14, 256, 256, 3, 1)).ahead, STEPS_AHEAD);
}

#[test]
fn a_window_reads_what_is_between_its_taps_but_not_between_windows() {
    let window =
        |stride: i64, extent: i64| Window { strides: [stride; 2], extents: [extent; 2], pixel: 64 };
    assert_eq!(window(1, 3).bytes([1, 14]), 3 * 16 * 64);
    assert_eq!(window(2, 3).bytes([1, 14]), 3 * 29 * 64);
    assert_eq!(window(2, 1).bytes([2, 7]), 14 * 64);
}

#[test]
fn tiles_cover_an_image() {
    let sizes = |lines, pixels| -> Vec<[(i64, i64); 2]> {
        let of = |run: Run| (run.count, run.size);
        tile_runs([lines, pixels], 14).into_iter().map(|[y, x]| [of(y), of(x)]).collect()
    };
    assert_eq!(sizes(7, 7), [[(3, 2), (1, 7)], [(1, 1), (1, 7)]]);
    assert_eq!(sizes(13, 13), [[(13, 1), (1, 13)]]);
    assert_eq!(sizes(27, 27), [[(27, 1), (1, 14)], [(27, 1), (1, 13)]]);
}

#[test]
fn the_cheapest_candidate_is_the_choice_and_none_is_there_twice() {
    for work in [matrix(128, 384, 1536), matrix(1, 64, 64), conv(56, 64, 256, 1, 1)] {
        for (packing, machine) in [(AVX512, AVX512), (AVX512, AVX2), (AVX2, AVX2)] {
            let chosen = Tiling::choose(packing, machine, &work);
            let widths = (machine != packing).then_some(chosen.vectors);
            let all = Tiling::candidates(packing, machine, &work, widths, true);
            assert_eq!(all[0], chosen);
            let texts: std::collections::BTreeSet<String> =
                all.iter().map(Tiling::to_string).collect();
            assert_eq!(texts.len(), all.len(), "{texts:#?}");
            let copied = Tiling::candidates(packing, machine, &work, widths, false);
            assert!(copied.iter().all(|tiling| tiling.ahead == 0 && !tiling.next));
        }
    }
}
