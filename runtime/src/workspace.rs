//! The memory that one inference works in.

use core::fmt;

/// Types whose value may be all zero bytes.
///
/// # Safety
///
/// Memory filled with zero bytes is a valid value of the type.
#[doc(hidden)]
pub unsafe trait Zeroable {}

// SAFETY: a type without bytes has nothing that could be invalid.
unsafe impl Zeroable for () {}

/// `N` bytes of working memory aligned to 64, and the buffers in which `run` leaves its outputs.
///
/// Bindings name the one of their model `Workspace`; its type keeps the workspaces of two models
/// apart. It begins as zeros, and a model may rely on parts that it does not write staying zero, so
/// it may be used by one model after another of the same type, but its bytes cannot be reached.
///
/// It can be large, so it should not be a local variable; a `static` costs nothing in the binary:
///
/// ```
/// use std::sync::Mutex;
///
/// // `digits::Workspace` in place of `niello_runtime::Workspace<1024>`.
/// static WORKSPACE: Mutex<niello_runtime::Workspace<1024>> =
///     Mutex::new(niello_runtime::Workspace::new());
/// assert_eq!(std::mem::align_of_val(&*WORKSPACE.lock().unwrap()), 64);
/// ```
#[repr(C, align(64))]
pub struct Workspace<const N: usize, O = ()> {
    memory: [u8; N],
    outputs: O,
}

impl<const N: usize, O: Zeroable> Workspace<N, O> {
    /// A workspace of zeros.
    #[must_use]
    pub const fn new() -> Self {
        // SAFETY: bytes may be zero, and `O` may because it is `Zeroable`.
        unsafe { core::mem::MaybeUninit::zeroed().assume_init() }
    }

    /// The memory of the kernels, and the outputs.
    #[doc(hidden)]
    pub fn split(&mut self) -> (&mut [u8; N], &mut O) {
        (&mut self.memory, &mut self.outputs)
    }
}

impl<const N: usize, O: Zeroable> Default for Workspace<N, O> {
    fn default() -> Self {
        Workspace::new()
    }
}

impl<const N: usize, O> AsMut<Self> for Workspace<N, O> {
    fn as_mut(&mut self) -> &mut Self {
        self
    }
}

impl<const N: usize, O> fmt::Debug for Workspace<N, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workspace").field("bytes", &size_of::<Self>()).finish_non_exhaustive()
    }
}

/// A workspace on the heap, which a model owns: what `Model::new()` makes.
///
/// Without the feature `alloc` there is the type, so that `Model` can have it as the default of its
/// parameter, but no value of it.
pub struct Heap<T> {
    #[cfg(feature = "alloc")]
    value: alloc::boxed::Box<T>,
    #[cfg(not(feature = "alloc"))]
    never: core::convert::Infallible,
    #[cfg(not(feature = "alloc"))]
    value: core::marker::PhantomData<T>,
}

#[cfg(feature = "alloc")]
impl<const N: usize, O: Zeroable> Heap<Workspace<N, O>> {
    /// Zeroed memory straight from the allocator: the workspace is never on the stack, also not in
    /// unoptimised builds.
    #[must_use]
    pub fn zeroed() -> Self {
        use alloc::alloc::{Layout, alloc_zeroed, handle_alloc_error};
        use core::ptr::NonNull;

        let layout = Layout::new::<Workspace<N, O>>();
        let mut pointer = NonNull::<Workspace<N, O>>::dangling().as_ptr();
        if layout.size() > 0 {
            // SAFETY: the layout has a size other than zero.
            pointer = unsafe { alloc_zeroed(layout) }.cast();
            if pointer.is_null() {
                handle_alloc_error(layout);
            }
        }
        // SAFETY: the global allocator has just given this memory with the type's own layout, and
        // zeros are a valid workspace, as in `Workspace::new`; a workspace without bytes has no
        // memory, and any aligned address will do.
        let value = unsafe { alloc::boxed::Box::from_raw(pointer) };
        Heap { value }
    }
}

impl<T> AsMut<T> for Heap<T> {
    #[cfg(feature = "alloc")]
    fn as_mut(&mut self) -> &mut T {
        &mut self.value
    }

    #[cfg(not(feature = "alloc"))]
    fn as_mut(&mut self) -> &mut T {
        let _ = self.value;
        match self.never {}
    }
}

impl<T> fmt::Debug for Heap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heap").field("bytes", &size_of::<T>()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    struct Outputs {
        scores: [f64; 3],
        flags: [bool; 2],
        none: [u64; 0],
    }

    // SAFETY: zero is a value of `f64` and of `bool`.
    unsafe impl Zeroable for Outputs {}

    static SHARED: Workspace<100, Outputs> = Workspace::new();

    #[test]
    fn a_workspace_is_zero_and_aligned_to_64() {
        assert_eq!(SHARED.memory.as_ptr() as usize % 64, 0);
        let mut workspace = Workspace::<100, Outputs>::default();
        let (memory, outputs) = workspace.split();
        assert!(memory.iter().all(|byte| *byte == 0));
        assert_eq!((outputs.scores, outputs.flags, outputs.none), ([0.0; 3], [false; 2], []));
        assert_eq!(memory.as_ptr() as usize % 64, 0);
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn the_heap_gives_the_same_without_the_stack() {
        let run = || {
            let mut heap = Heap::<Workspace<{ 64 << 20 }, Outputs>>::zeroed();
            let (memory, outputs) = heap.as_mut().split();
            assert_eq!(memory.as_ptr() as usize % 64, 0);
            memory[(64 << 20) - 1] = 7;
            assert_eq!(memory[0], 0);
            outputs.scores[2] = 1.5;
            assert_eq!(heap.as_mut().split().1.scores, [0.0, 0.0, 1.5]);
        };
        // An unoptimised test build would overflow this stack if the workspace passed over it.
        std::thread::Builder::new().stack_size(256 << 10).spawn(run).unwrap().join().unwrap();
        assert_eq!(Heap::<Workspace<0>>::zeroed().as_mut().split().0.len(), 0);
    }

    #[test]
    fn debug_does_not_print_the_bytes() {
        let text = std::format!("{SHARED:?}");
        assert_eq!(text, "Workspace { bytes: 192, .. }");
    }
}
