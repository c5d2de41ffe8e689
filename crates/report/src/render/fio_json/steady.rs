//! How a search for a steady state went, as fio tells it.

use super::{Json, map};
use crate::record::Workload;
use crate::render::merged::spread;

/// Nothing when none of these workloads looked for one.
pub(super) fn steady_state(workloads: &[&Workload]) -> Option<Json> {
    let (asked, found) = workloads
        .iter()
        .find_map(|workload| Some((workload.job.detail.as_ref()?, workload.outcome.steady.as_ref()?)))?;
    let words = asked.steady_state.as_deref()?;
    let (figure, limit) = words.split_once(':')?;
    let percent = if limit.ends_with('%') { "%" } else { "" };
    let limit: f64 = limit.trim_end_matches('%').parse().ok()?;
    let duration_s = asked.steady_duration_s.unwrap_or(0.0);
    let (iops, bytes_per_s) = last_seconds(workloads, duration_s.round() as usize);
    let values = if figure.starts_with("bw") { &bytes_per_s } else { &iops };
    let (mean, _) = spread(values);
    let farthest = values.iter().map(|value| (value - mean).abs()).fold(0.0, f64::max);
    let whole = |values: &[f64]| Json::List(values.iter().map(|&value| Json::Whole(value as u64)).collect());
    let (iops_mean, bytes_mean) = (spread(&iops).0, spread(&bytes_per_s).0);
    let data = vec![
        ("bw_mean", Json::Whole(bytes_mean as u64)),
        ("iops_mean", Json::Whole(iops_mean as u64)),
        ("iops", whole(&iops)),
        ("bw", whole(&bytes_per_s)),
    ];
    Some(map(vec![
        ("ss", Json::Text(format!("{figure}:{limit:.6}{percent}"))),
        ("duration", Json::Whole(duration_s.round() as u64)),
        ("attained", Json::Whole(u64::from(found.attained))),
        ("criterion", Json::Text(format!("{:.6}{percent}", found.criterion))),
        ("max_deviation", Json::Float(farthest)),
        ("slope", Json::Float(if figure.ends_with("_slope") { slope(values, mean) } else { 0.0 })),
        ("data", map(data)),
    ]))
}

/// I/Os and bytes of each of the last whole seconds, at most so many, all workloads together.
fn last_seconds(workloads: &[&Workload], wanted: usize) -> (Vec<f64>, Vec<f64>) {
    let end_s = workloads.iter().map(|workload| workload.outcome.elapsed_s).fold(0.0, f64::max);
    let count = wanted.clamp(1, 1 << 16).min((end_s.round() as usize).max(1));
    let (mut iops, mut bytes) = (vec![0.0; count], vec![0.0; count]);
    for slice in workloads.iter().flat_map(|workload| &workload.outcome.series) {
        // A slice that ends on the border belongs to the second before it.
        let back = ((end_s - slice.at_s).max(0.0) + 1e-6) as usize;
        if back < count {
            iops[count - 1 - back] += slice.ios as f64;
            bytes[count - 1 - back] += slice.bytes as f64;
        }
    }
    (iops, bytes)
}

/// By least squares, for each value.
fn slope(values: &[f64], mean: f64) -> f64 {
    let middle = (values.len() as f64 - 1.0) / 2.0;
    let products = |(index, value): (usize, &f64)| (index as f64 - middle) * (value - mean);
    let squares: f64 = (0..values.len()).map(|index| (index as f64 - middle).powi(2)).sum();
    if squares > 0.0 { values.iter().enumerate().map(products).sum::<f64>() / squares } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use crate::record::{JobDetail, Slice, Steady};

    #[test]
    fn it_has_the_values_of_the_last_seconds() {
        let mut workload = fixtures::optane().workloads[0].clone();
        assert!(steady_state(&[&workload]).is_none());
        workload.job.detail = Some(JobDetail {
            steady_state: Some("iops_slope:0.5%".to_owned()),
            steady_duration_s: Some(2.0),
            ..JobDetail::default()
        });
        workload.outcome.steady = Some(Steady { attained: true, criterion: -0.25, mean: 30.0, values: 3 });
        workload.outcome.elapsed_s = 3.0;
        let slice = |index: u64| Slice {
            at_s: (index + 1) as f64 / 2.0,
            ios: index * 10,
            bytes: index * 5120,
            max_ns: 9,
        };
        workload.outcome.series = (0..6).map(slice).collect();
        let json = serde_json::to_value(steady_state(&[&workload]).unwrap()).unwrap();
        assert_eq!(json["ss"], "iops_slope:0.500000%");
        assert_eq!((json["duration"].as_u64(), json["attained"].as_u64()), (Some(2), Some(1)));
        assert_eq!(json["criterion"], "-0.250000%");
        // Slices of 20 and 30, then of 40 and 50.
        assert_eq!(json["data"]["iops"], serde_json::json!([50, 90]));
        assert_eq!(json["data"]["bw_mean"], 70 * 512);
        assert_eq!((json["slope"].as_f64(), json["max_deviation"].as_f64()), (Some(40.0), Some(20.0)));
    }
}
