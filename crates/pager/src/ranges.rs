//! Ranges of addresses, cut by others.

use std::ops::Range;

/// What two ranges have in common.
pub(crate) fn overlap(one: &Range<u64>, other: &Range<u64>) -> Option<Range<u64>> {
    let both = one.start.max(other.start)..one.end.min(other.end);
    (both.start < both.end).then_some(both)
}

/// What a range has in common with others, which are in order and do not overlap.
pub(crate) fn within(range: &Range<u64>, others: &[Range<u64>]) -> impl Iterator<Item = Range<u64>> {
    let first = others.partition_point(|other| other.end <= range.start);
    others[first..].iter().map_while(|other| overlap(range, other))
}

/// What is left of a range.
#[must_use]
pub fn without(range: Range<u64>, holes: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut rest = vec![range];
    for hole in holes {
        rest = rest
            .into_iter()
            .flat_map(|piece| {
                let before = piece.start..piece.end.min(hole.start.max(piece.start));
                let after = piece.start.max(hole.end.min(piece.end))..piece.end;
                [before, after]
            })
            .filter(|piece| piece.start < piece.end)
            .collect();
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_left_out() {
        assert_eq!(without(0..10, std::slice::from_ref(&(3..5))), [0..3, 5..10]);
        assert_eq!(without(0..10, &[0..2, 9..12]), [2..9, 9..9][..1]);
        assert_eq!(without(2..4, std::slice::from_ref(&(0..9))), []);
        assert_eq!(without(2..4, &[5..9, 0..1]), [2..4, 4..4][..1]);
        assert_eq!(without(0..10, &[2..4, 6..20]), [0..2, 4..6]);
    }

    #[test]
    fn what_a_range_has_in_common_with_many() {
        let others = [0..3, 5..7, 7..9, 12..20];
        let common = |range: Range<u64>| within(&range, &others).collect::<Vec<_>>();
        assert_eq!(common(2..13), [2..3, 5..7, 7..9, 12..13]);
        assert_eq!(common(6..8), [6..7, 7..8]);
        assert_eq!(common(3..5), []);
        assert_eq!(common(20..30), []);
    }

    #[test]
    fn what_two_have_in_common() {
        assert_eq!(overlap(&(0..5), &(3..9)), Some(3..5));
        assert_eq!(overlap(&(0..5), &(5..9)), None);
    }
}
