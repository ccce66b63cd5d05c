//! The tensor expressions of the graph operators, one function for each family.
