//! The operators of the graph IR: a closed table.
