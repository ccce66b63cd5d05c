//! Canonical integer expressions over named symbols, and what is known about them.
