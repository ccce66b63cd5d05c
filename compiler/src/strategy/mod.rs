//! How each kind of computation is scheduled on each family of targets.
