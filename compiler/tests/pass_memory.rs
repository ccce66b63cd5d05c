//! Memory of passes, in a program with the counting allocator.

use std::sync::{Arc, Mutex};

use niello::ir::IRModule;
use niello::pass::instruments::{CountingAllocator, PassMemory};
use niello::pass::{ModulePass, Pass, PassContext, PassInfo, PassRef, Sequential};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Bytes that the passes allocate: much more than the rest of the program meanwhile.
const BLOCK: usize = 1 << 20;

fn pass(name: &str, body: impl Fn() + Send + Sync + 'static) -> PassRef {
    let info = PassInfo::new(name, 0).unwrap();
    PassRef::new(ModulePass::new(info, move |module: IRModule, _: &PassContext| {
        body();
        module
    }))
}

/// `1048600` of `Keeps: 2 allocations, 1048600 bytes, kept +1048576, peak +1048600`.
fn number(line: &str, before: &str) -> i64 {
    let rest = &line[line.find(before).unwrap() + before.len()..];
    rest.split([',', ' ']).next().unwrap().parse().unwrap()
}

#[test]
fn allocations_growth_and_peak_of_passes_are_measured() {
    let kept: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let to = kept.clone();
    let passes = [
        pass("Drops", || drop(std::hint::black_box(vec![1u8; 3 * BLOCK]))),
        pass("Keeps", move || to.lock().unwrap().push(vec![1u8; BLOCK])),
        pass("Idles", || ()),
    ];
    let memory = Arc::new(PassMemory::new());
    let cx = PassContext::builder().shared_instrument(memory.clone()).build().unwrap();
    cx.scope(|cx| Sequential::new(passes).run(IRModule::new(), cx)).unwrap();
    let text = memory.render();
    let lines: Vec<&str> = text.lines().collect();
    let block = BLOCK as i64;
    let near = |found: i64, expected: i64| {
        assert!((expected - 1000..expected + block / 4).contains(&found), "{found}: {text}");
    };
    for (line, name, allocated, kept, peak) in [
        (lines[0], "sequential: ", 4 * block, block, 3 * block),
        (lines[1], "\tDrops: ", 3 * block, 0, 3 * block),
        (lines[2], "\tKeeps: ", block, block, block),
        (lines[3], "\tIdles: ", 0, 0, 0),
    ] {
        assert!(line.starts_with(name), "{text}");
        near(number(line, "allocations, "), allocated);
        near(number(line, "kept "), kept);
        near(number(line, "peak "), peak);
    }
    assert_eq!((lines.len(), kept.lock().unwrap().len()), (4, 1));
}
