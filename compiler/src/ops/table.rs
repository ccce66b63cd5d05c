//! The table of operators: one line each.

use super::OpDef;
use super::elementwise::RELU;

/// Every operator, by name.
static TABLE: &[&OpDef] = &[&RELU];

/// Every operator, in the order of their names.
pub fn all() -> &'static [&'static OpDef] {
    TABLE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_unique() {
        assert!(TABLE.windows(2).all(|pair| pair[0].name < pair[1].name));
    }
}
