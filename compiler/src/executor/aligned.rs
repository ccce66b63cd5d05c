//! Memory that begins where generated code wants buffers to begin.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::ir::BUFFER_ALIGNMENT;

/// Bytes that begin at a multiple of [`BUFFER_ALIGNMENT`].
pub(crate) struct AlignedBytes {
    pointer: NonNull<u8>,
    len: usize,
    layout: Layout,
}

// SAFETY: the memory is owned, and changed through exclusive references alone.
unsafe impl Send for AlignedBytes {}
// SAFETY: as above.
unsafe impl Sync for AlignedBytes {}

impl AlignedBytes {
    /// `len` bytes that are zero. Ends the process if there is no memory for them, as a `Vec` does.
    pub(crate) fn zeroed(len: usize) -> AlignedBytes {
        AlignedBytes::try_zeroed(len).unwrap_or_else(|| {
            let layout = Layout::from_size_align(len, BUFFER_ALIGNMENT);
            handle_alloc_error(layout.unwrap_or(Layout::new::<u8>()))
        })
    }

    /// The same; `None` if there is no memory for them.
    pub(crate) fn try_zeroed(len: usize) -> Option<AlignedBytes> {
        let layout = Layout::from_size_align(len.max(1), BUFFER_ALIGNMENT).ok()?;
        // SAFETY: the size is not zero.
        let pointer = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(AlignedBytes { pointer, len, layout })
    }

    /// Where the bytes begin, for code that reads and writes them.
    pub(crate) fn as_mut_ptr(&self) -> *mut u8 {
        self.pointer.as_ptr()
    }
}

impl From<&[u8]> for AlignedBytes {
    fn from(bytes: &[u8]) -> Self {
        let mut memory = AlignedBytes::zeroed(bytes.len());
        memory.copy_from_slice(bytes);
        memory
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: so many bytes were allocated, and all are initialised.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; the owner is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.len) }
    }
}

impl Clone for AlignedBytes {
    fn clone(&self) -> Self {
        AlignedBytes::from(&**self)
    }
}

impl fmt::Debug for AlignedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBytes({} bytes)", self.len)
    }
}

impl Drop for AlignedBytes {
    fn drop(&mut self) {
        // SAFETY: `zeroed` allocated it with this layout.
        unsafe { dealloc(self.pointer.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_memory_has_room_for_is_none() {
        assert!(AlignedBytes::try_zeroed(usize::MAX / 4).is_none());
        assert!(AlignedBytes::try_zeroed(usize::MAX).is_none());
        let bytes = AlignedBytes::try_zeroed(100).unwrap();
        assert_eq!(bytes.as_ptr().align_offset(BUFFER_ALIGNMENT), 0);
        assert_eq!(*bytes, [0; 100]);
    }
}
