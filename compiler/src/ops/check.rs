//! Macros that turn a condition that does not hold into a type error.

/// Returns a [`TypeError`](crate::graph::TypeError) of that formatted message.
macro_rules! bail {
    ($($message:tt)*) => {
        return Err($crate::graph::TypeError::new(format!($($message)*)))
    };
}

/// Returns a [`TypeError`](crate::graph::TypeError) of that message unless the condition holds.
macro_rules! ensure {
    ($cond:expr, $($message:tt)*) => {
        if !$cond {
            bail!($($message)*);
        }
    };
}
