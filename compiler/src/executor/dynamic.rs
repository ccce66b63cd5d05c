//! Shared libraries that this process opens.

pub(crate) use system::{DynamicLibrary, symbol_of_process};

#[cfg(unix)]
mod system {
    //! The dynamic linker of Unix systems.

    use std::ffi::{CStr, CString, c_char, c_int, c_void};
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    // The standard library links what has these functions.
    unsafe extern "C" {
        fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
        fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
        fn dlclose(library: *mut c_void) -> c_int;
        fn dlerror() -> *const c_char;
    }

    const RTLD_NOW: c_int = 2;

    /// An open library.
    #[derive(Debug)]
    pub(crate) struct DynamicLibrary(*mut c_void);

    // SAFETY: the handle belongs to the process, and the dynamic linker has locks of its own.
    unsafe impl Send for DynamicLibrary {}
    // SAFETY: as above; looking for a symbol changes nothing.
    unsafe impl Sync for DynamicLibrary {}

    impl DynamicLibrary {
        /// Opens a library, whose file may be deleted afterwards.
        pub(crate) fn open(path: &Path) -> Result<DynamicLibrary, String> {
            // A name without a slash would be looked for in the system's folders.
            let path = std::path::absolute(path).map_err(|error| error.to_string())?;
            let path = CString::new(path.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
            // SAFETY: the path is NUL-terminated; the library has no initialisers.
            let library = unsafe { dlopen(path.as_ptr(), RTLD_NOW) };
            if library.is_null() { Err(last_error()) } else { Ok(DynamicLibrary(library)) }
        }

        /// The address of an exported symbol, valid as long as the library is open.
        pub(crate) fn symbol(&self, name: &str) -> Result<*mut c_void, String> {
            let name = CString::new(name).map_err(|error| error.to_string())?;
            // SAFETY: the library is open and the name NUL-terminated.
            let symbol = unsafe { dlsym(self.0, name.as_ptr()) };
            if symbol.is_null() { Err(last_error()) } else { Ok(symbol) }
        }
    }

    impl Drop for DynamicLibrary {
        fn drop(&mut self) {
            // SAFETY: the library was opened by `open`; its owner holds the only pointers into it.
            unsafe { dlclose(self.0) };
        }
    }

    /// Stands for all libraries that the process began with.
    #[cfg(target_vendor = "apple")]
    const RTLD_DEFAULT: *mut c_void = -2isize as *mut c_void;
    #[cfg(not(target_vendor = "apple"))]
    const RTLD_DEFAULT: *mut c_void = std::ptr::null_mut();

    /// The address of a function that some library of this process has.
    pub(crate) fn symbol_of_process(name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the name is NUL-terminated.
        let symbol = unsafe { dlsym(RTLD_DEFAULT, name.as_ptr()) };
        (!symbol.is_null()).then_some(symbol)
    }

    fn last_error() -> String {
        // SAFETY: the function takes nothing.
        let text = unsafe { dlerror() };
        if text.is_null() {
            return "unknown error".to_owned();
        }
        // SAFETY: a pointer that is not null is a NUL-terminated string until the next call.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

#[cfg(not(unix))]
mod system {
    //! Systems on which libraries cannot be loaded yet.

    use std::ffi::{CStr, c_void};
    use std::path::Path;

    /// Finds nothing.
    pub(crate) fn symbol_of_process(_: &CStr) -> Option<*mut c_void> {
        None
    }

    /// An open library; there is none.
    #[derive(Debug)]
    pub(crate) enum DynamicLibrary {}

    impl DynamicLibrary {
        /// Says that there is no such thing.
        pub(crate) fn open(_: &Path) -> Result<DynamicLibrary, String> {
            Err("this system's libraries are not supported".to_owned())
        }

        /// Is never called.
        pub(crate) fn symbol(&self, _: &str) -> Result<*mut c_void, String> {
            match *self {}
        }
    }
}
