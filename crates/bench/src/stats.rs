//! Medians and percentiles.

fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The middle value; 0 when there is none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let values = sorted(values);
    match values.len() {
        0 => 0.0,
        len if len % 2 == 1 => values[len / 2],
        len => f64::midpoint(values[len / 2 - 1], values[len / 2]),
    }
}

/// The lowest and the highest value of the middle half; 0 when there is none.
pub(crate) fn middle_half(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let values = sorted(values);
    let outside = values.len() / 4;
    let middle = &values[outside..values.len() - outside];
    let end = |value: Option<&f64>| value.copied().unwrap_or(0.0);
    (end(middle.first()), end(middle.last()))
}

/// The value that `percent` of the sorted values do not exceed; 0 when there is none.
pub(crate) fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.max(1) - 1).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert!((median([3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median([4.0, 1.0]) - 2.5).abs() < 1e-9);
        assert!(median([]).abs() < 1e-9);
    }

    #[test]
    fn a_quarter_on_each_side_is_left_out() {
        let values = [8.0, 1.0, 2.0, 7.0, 3.0, 6.0, 5.0, 4.0];
        assert_eq!(middle_half(values), (3.0, 6.0));
        assert_eq!(middle_half([2.0]), (2.0, 2.0));
        assert_eq!(middle_half([]), (0.0, 0.0));
    }

    #[test]
    fn percentiles_are_values_that_were_seen() {
        let values: Vec<u64> = (1..=200).collect();
        assert_eq!(percentile(&values, 50), 100);
        assert_eq!(percentile(&values, 99), 198);
        assert_eq!(percentile(&[7], 99), 7);
        assert_eq!(percentile(&[], 99), 0);
    }
}
