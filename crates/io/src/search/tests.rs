//! Searches against what queueing theory says of a simulated server.

use super::*;
use crate::engine::EngineKind;
use crate::engine::sim::SimSpec;
use crate::job::{Access, JobSpec};
use crate::pace::Arrivals;
use crate::run::{Setting, run};
use crate::target::Target;
use overdrive_sys::clock::Clock;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A queue of one server with constant service time, without anything that blurs it.
fn server(service_ns: u64) -> SimSpec {
    SimSpec { read_ns: service_ns, jitter: 0.0, slow: None, channels: 1, ns_per_kib: 0, ..SimSpec::default() }
}

fn measure(device: &SimSpec, arrivals: Option<Arrivals>, depth: u32, seconds: u64) -> Outcome {
    let job = JobSpec {
        access: Access::Random,
        engine: EngineKind::Sim(device.clone()),
        queue_depth: depth,
        runtime: Duration::from_secs(seconds),
        arrivals,
        ..JobSpec::default()
    };
    let setting = Setting {
        cpus: Vec::new(),
        clock: Clock::calibrate(Duration::from_millis(1)),
        stop: Arc::new(AtomicBool::new(false)),
        live: false,
    };
    let job = job.check(device.size).unwrap();
    run(&job, &[Target::simulated(device.clone())], &setting, |_, _| {}).unwrap()
}

fn search(device: &SimSpec, objective: Objective, depth: u32, law: fn(f64) -> Arrivals) -> (f64, Judgement) {
    let ceiling = measure(device, None, depth, 2).iops();
    let mut search = RateSearch::below(ceiling);
    let mut edge = Judgement::Rate;
    while let Some(rate) = search.next_rate() {
        let judgement = objective.judge(&measure(device, Some(law(rate)), depth, 20));
        search.tell(rate, judgement.holds());
        if !judgement.holds() {
            edge = judgement;
        }
    }
    (search.found().unwrap_or(0.0), edge)
}

/// P(wait <= t) in a queue with Poisson arrivals and constant service (Crommelin, 1932), summed in the form
/// that is stable for moderate loads.
fn share_within(wait: f64, service: f64, load: f64) -> f64 {
    let rate = load / service;
    let mut sum = 0.0;
    for k in 0..=(wait / service).floor() as i32 {
        let x = rate * (f64::from(k) * service - wait);
        let mut term = (-x).exp();
        for n in 1..=k {
            term *= x / f64::from(n);
        }
        sum += term;
    }
    (1.0 - load) * sum
}

#[test]
fn the_rate_found_is_the_one_that_theory_gives() {
    let (service, limit) = (100e-6, 350e-6);
    let objective: Objective = "p99=350us".parse().unwrap();
    let (found, edge) = search(&server(100_000), objective, 64, |per_s| Arrivals::Poisson { per_s });
    // At the true edge 99 % wait at most 250 us. One per cent of bisection, and the noise of 100,000 samples.
    let mut edge_load = 0.05;
    while share_within(limit - service, service, edge_load) > 0.99 {
        edge_load += 0.0005;
    }
    let wanted = edge_load / service;
    assert!((found / wanted - 1.0).abs() < 0.03, "{found} instead of {wanted}");
    assert!(matches!(edge, Judgement::Service { .. } | Judgement::Waiting { .. }), "{edge:?}");
}

#[test]
fn evenly_spaced_arrivals_hold_up_to_the_ceiling() {
    let objective: Objective = "p99.9=150us".parse().unwrap();
    let (found, edge) = search(&server(100_000), objective, 32, |per_s| Arrivals::Constant { per_s });
    assert!((found / 10_000.0 - 1.0).abs() < 0.012, "{found}");
    assert!(!edge.holds());
}

#[test]
fn an_objective_below_the_service_time_is_never_held() {
    let objective: Objective = "p50=50us".parse().unwrap();
    let (found, edge) = search(&server(100_000), objective, 8, |per_s| Arrivals::Constant { per_s });
    assert_eq!(found, 0.0);
    assert!(matches!(edge, Judgement::Service { service_ns, .. } if service_ns >= 100_000), "{edge:?}");
}

#[test]
fn a_short_queue_is_told_from_a_slow_target() {
    let mut device = server(100_000);
    device.channels = 8;
    let objective: Objective = "p99=300us".parse().unwrap();
    // One slot on eight channels: 10,000 a second at most, and everything else waits for the slot.
    let outcome = measure(&device, Some(Arrivals::Poisson { per_s: 9_000.0 }), 1, 5);
    assert!(matches!(objective.judge(&outcome), Judgement::Waiting { service_ns: ..=101_000, .. }));
    let outcome = measure(&device, Some(Arrivals::Poisson { per_s: 20_000.0 }), 1, 5);
    assert_eq!(objective.judge(&outcome), Judgement::Rate);
}

#[test]
fn arrivals_that_a_stall_at_the_end_keeps_from_starting_have_waited() {
    let mut device = server(10_000);
    device.stall = Some((994_500_000, 30_000_000));
    let outcome = measure(&device, Some(Arrivals::Constant { per_s: 10_000.0 }), 1, 1);
    assert!(keeps_rate(&outcome));
    // 55 of 10,000 wait up to 5.5 ms and more: 99 % are answered in time, 99.9 % are not.
    let judge = |text: &str| text.parse::<Objective>().unwrap().judge(&outcome);
    assert!(judge("p99=200us").holds());
    let late = judge("p99.9=200us");
    assert!(matches!(late, Judgement::Waiting { value_ns: 4_000_000.., service_ns: ..=11_000 }), "{late:?}");
}

#[test]
fn errors_and_few_samples_are_no_success() {
    let objective: Objective = "p99.99=1s".parse().unwrap();
    let arrivals = || Some(Arrivals::Constant { per_s: 100.0 });
    assert!(matches!(objective.judge(&measure(&server(1000), arrivals(), 4, 1)), Judgement::TooFew(100)));
    let mut device = server(1000);
    device.error = 0.05;
    assert!(matches!(objective.judge(&measure(&device, arrivals(), 4, 1)), Judgement::Errors(_)));
}

#[test]
fn objectives_are_read_or_refused() {
    assert_eq!("p99.9=200us".parse(), Ok(Objective { percentile: 99.9, limit_ns: 200_000 }));
    let error = |text: &str| text.parse::<Objective>().unwrap_err().to_string();
    assert!(
        error("p99.9=0us").contains("nothing takes no time; wanted a limit above 0"),
        "{}",
        error("p99.9=0us")
    );
    for text in ["", "99=1ms", "p99", "p0=1ms", "p100=1ms", "p99=0us", "pNaN=1ms"] {
        assert!(error(text).contains("p99.9=200us"), "{text}");
    }
    assert!(error("p99=fast").contains("'fast' is not a duration"), "{}", error("p99=fast"));
    assert_eq!(error("p99=200"), "'p99=200': '200' has no unit; wanted a unit, such as 200us");
}

#[test]
fn bisection_ends_whatever_it_is_told() {
    let edges = [0.0, 0.3, 17.0, 5_000.0, 99_999.0, 1e9];
    for edge in edges {
        let mut search = RateSearch::below(100_000.0);
        let mut steps = 0;
        while let Some(rate) = search.next_rate() {
            search.tell(rate, rate <= edge);
            steps += 1;
        }
        assert!(steps <= 16, "{edge}: {steps}");
        match search.found() {
            Some(found) => assert!(found <= edge && found >= edge.min(100_000.0) * 0.98, "{edge}: {found}"),
            None => assert!(edge < 110.0, "{edge}"),
        }
        assert_eq!(search.at_ceiling(), edge > 99_000.0, "{edge}");
    }
    let mut noisy = RateSearch::below(1000.0);
    noisy.tell(900.0, true);
    noisy.tell(400.0, false);
    assert_eq!(noisy.found(), None, "what failed below what held is not promised");
}

/// Mean response of a queue with constant service, in units of it (Pollaczek and Khinchine).
fn response_at(load: f64) -> f64 {
    1e5 * (1.0 + load / (2.0 * (1.0 - load)))
}

#[test]
fn points_gather_where_the_curve_bends() {
    let mut points: Vec<(f64, f64)> = Vec::new();
    while points.len() < 12 {
        let load = next_load(&points).unwrap();
        points.push((load, response_at(load)));
    }
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let even: Vec<(f64, f64)> =
        (0..12).map(|n| 0.1 + 0.85 * f64::from(n) / 11.0).map(|load| (load, response_at(load))).collect();
    // How far a line through the points strays from the curve at worst, in per cent of the latency.
    let stray = |points: &[(f64, f64)]| {
        let between = |load: f64| {
            let at = points.partition_point(|p| p.0 < load).clamp(1, points.len() - 1);
            let (a, b) = (points[at - 1], points[at]);
            a.1 + (b.1 - a.1) * (load - a.0) / (b.0 - a.0)
        };
        let off = |load: f64| (between(load) / response_at(load) - 1.0).abs();
        (10..95).map(|percent| off(f64::from(percent) / 100.0)).fold(0.0, f64::max)
    };
    assert!(stray(&points) < stray(&even) / 2.0, "{} and {}", stray(&points), stray(&even));
    let at = knee(&points).unwrap();
    assert!((0.6..0.93).contains(&points[at].0), "{:?}", points[at]);
}

#[test]
fn a_curve_without_a_bend_has_no_knee() {
    let flat: Vec<(f64, f64)> = (1..10).map(|n| (f64::from(n) / 10.0, 1e5)).collect();
    assert_eq!(knee(&flat), None);
    assert_eq!(knee(&flat[..2]), None);
    // Narrow gaps bear no more points.
    let dense: Vec<(f64, f64)> = (0..=250).map(|n| (f64::from(n) / 250.0, 1e5)).collect();
    assert_eq!(next_load(&dense), None);
}
