//! The pass infrastructure: no pass lives here.
