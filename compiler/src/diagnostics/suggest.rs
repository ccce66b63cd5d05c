//! Guessing what a misspelt name was meant to be.

/// The candidate nearest to `name`, if one is near enough to be worth naming: at most a third of
/// its letters differ. Of equally near ones the first.
pub fn suggest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let length = name.chars().count();
    let limit = (length / 3).max(1);
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        // The distance is at least the difference of the lengths: a very long name costs nothing.
        let candidate_lower = candidate.to_lowercase();
        if candidate_lower.chars().count().abs_diff(length) > limit {
            continue;
        }
        let distance = edit_distance(&name, &candidate_lower);
        if distance <= limit && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// The least number of letters to insert, delete, replace or swap with their neighbour.
fn edit_distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before_last[j - 2] + 1);
            }
            row.push(least);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested_and_a_far_one_is_not() {
        let names = ["FoldConstant", "FoldScaleAxis", "FuseOps"];
        assert_eq!(suggest("FoldConstnat", names), Some("FoldConstant"));
        assert_eq!(suggest("fuseop", names), Some("FuseOps"));
        assert_eq!(suggest("Vectorize", names), None);
    }

    #[test]
    fn names_of_very_different_lengths_are_not_compared() {
        let names = ["FoldConstant", "FuseOps"];
        // Comparing the letters of these would take minutes.
        assert_eq!(suggest(&"x".repeat(1 << 20), names.into_iter().cycle().take(1000)), None);
        assert_eq!(suggest("F", names), None);
        assert_eq!(suggest("FuseO", names), None);
        assert_eq!(suggest("FuseOpss", names), Some("FuseOps"));
    }

    #[test]
    fn distances_count_a_swap_as_one() {
        assert_eq!(edit_distance("abcd", "acbd"), 1);
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
    }
}
