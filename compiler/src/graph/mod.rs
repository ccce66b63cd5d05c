//! The graph IR: functions over one arena of expressions.
