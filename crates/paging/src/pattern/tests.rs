//! Distributions against their formulas: chi-square over pages or groups of pages, and how many distinct
//! pages a number of draws reaches.

use super::*;
use overdrive_base::rng::Rng;
use proptest::prelude::*;
use std::collections::HashSet;

const DRAWS: usize = 400_000;

fn draws(pattern: &str, pages: u64, count: usize) -> Vec<u64> {
    let mut sequence = Pages::new(pattern.parse().unwrap(), pages, 0, 1);
    let mut rng = Rng::new(11);
    (0..count).map(|_| sequence.next_page(&mut rng)).collect()
}

/// Chi-square of counts against expected shares, as standard deviations above its mean: below 5 when they fit.
fn misfit(drawn: &[u64], shares: &[f64]) -> f64 {
    let mut counts = vec![0u64; shares.len()];
    drawn.iter().for_each(|&page| counts[page as usize] += 1);
    let total: f64 = shares.iter().sum();
    let (mut chi_square, mut cells) = (0.0, 0.0f64);
    let (mut seen, mut wanted) = (0.0, 0.0);
    for (&count, share) in counts.iter().zip(shares) {
        seen += count as f64;
        wanted += share / total * drawn.len() as f64;
        // Neighbours are joined until each cell expects enough for the test to hold.
        if wanted >= 20.0 {
            chi_square += (seen - wanted).powi(2) / wanted;
            cells += 1.0;
            (seen, wanted) = (0.0, 0.0);
        }
    }
    (chi_square - (cells - 1.0)) / (2.0 * (cells - 1.0)).sqrt()
}

fn zipf_shares(pages: u64, theta: f64) -> Vec<f64> {
    let scatter = coprime_near_golden(pages);
    let mut shares = vec![0.0; pages as usize];
    for rank in 0..pages {
        shares[(rank * scatter % pages) as usize] = ((rank + 1) as f64).powf(-theta);
    }
    shares
}

fn bell(pages: u64, sigma: f64) -> Vec<f64> {
    let density = |x: f64| (-((x - pages as f64 / 2.0) / sigma).powi(2) / 2.0).exp();
    // Simpson's rule over each page.
    (0..pages)
        .map(|page| page as f64)
        .map(|x| (density(x) + 4.0 * density(x + 0.5) + density(x + 1.0)) / 6.0)
        .collect()
}

/// The density of a sum of twelve uniforms, from its formula.
fn irwin_hall(pages: u64) -> Vec<f64> {
    let density = |x: f64| {
        // Symmetric about 6; the lower half is the one that cancels least.
        let x = if x > 6.0 { 12.0 - x } else { x };
        let mut binomial = 1.0;
        let mut sum = 0.0;
        for k in 0..12 {
            if f64::from(k) < x {
                let sign = if k % 2 == 0 { 1.0 } else { -1.0 };
                sum += sign * binomial * (x - f64::from(k)).powi(11);
            }
            binomial *= f64::from(12 - k) / f64::from(k + 1);
        }
        sum
    };
    (0..pages).map(|page| density((page as f64 + 0.5) * 12.0 / pages as f64)).collect()
}

#[test]
fn each_distribution_fits_its_formula() {
    let pareto: Vec<f64> =
        (1..=1000).map(|k| f64::from(k).powf(-1.161) - f64::from(k + 1).powf(-1.161)).collect();
    let hot_cold: Vec<f64> =
        (0..1000).map(|page| if page < 200 { 80.0 / 200.0 } else { 20.0 / 800.0 }).collect();
    let zipf = zipf_shares(1000, 0.99);
    let zipf_sum: f64 = zipf.iter().sum();
    let scan_skew: Vec<f64> = zipf.iter().map(|share| 0.3 / 1000.0 + 0.7 * share / zipf_sum).collect();
    for (pattern, shares) in [
        ("uniform", vec![1.0; 1000]),
        ("normal:100", bell(1000, 100.0)),
        ("normal:600", bell(1000, 600.0)),
        ("normal-ih", irwin_hall(1000)),
        ("pareto:1.161", pareto),
        ("zipf:0.99", zipf),
        ("zipf:1", zipf_shares(1000, 1.0)),
        ("zipf:1.5", zipf_shares(1000, 1.5)),
        ("hot-cold:20/80", hot_cold),
        ("scan+skew:30", scan_skew),
    ] {
        let off = misfit(&draws(pattern, 1000, DRAWS), &shares);
        assert!(off < 5.0, "{pattern}: chi-square is {off:.1} deviations above its mean");
    }
}

#[test]
fn the_test_itself_tells_distributions_apart() {
    assert!(misfit(&draws("zipf:0.99", 1000, DRAWS), &zipf_shares(1000, 0.95)) > 20.0);
    assert!(misfit(&draws("normal:100", 1000, DRAWS), &bell(1000, 106.0)) > 20.0);
    assert!(misfit(&draws("normal-ih", 1000, DRAWS), &bell(1000, 100.0)) > 20.0);
}

#[test]
fn as_many_distinct_pages_are_reached_as_the_formula_says() {
    for (pattern, shares) in [
        ("uniform", vec![1.0; 20_000]),
        ("zipf:0.99", zipf_shares(20_000, 0.99)),
        ("normal-ih", irwin_hall(20_000)),
    ] {
        let drawn = draws(pattern, 20_000, 30_000);
        let total: f64 = shares.iter().sum();
        let wanted: f64 = shares.iter().map(|share| 1.0 - (1.0 - share / total).powi(30_000)).sum();
        let reached = drawn.iter().collect::<HashSet<_>>().len() as f64;
        assert!(
            (reached / wanted - 1.0).abs() < 0.02,
            "{pattern}: {reached} distinct pages, wanted {wanted:.0}"
        );
    }
}

#[test]
fn the_deviation_of_irwin_hall_is_a_twelfth_of_the_set() {
    let drawn = draws("normal-ih", 120_000, DRAWS);
    let mean = drawn.iter().sum::<u64>() as f64 / DRAWS as f64;
    let variance = drawn.iter().map(|&page| (page as f64 - mean).powi(2)).sum::<f64>() / DRAWS as f64;
    assert!((mean - 60_000.0).abs() < 100.0, "{mean}");
    assert!((variance.sqrt() / 10_000.0 - 1.0).abs() < 0.01, "{variance}");
}

#[test]
fn linear_passes_reach_every_page_once() {
    assert_eq!(draws("linear", 4, 6), [0, 1, 2, 3, 0, 1]);
    assert_eq!(draws("linear:3", 7, 8), [0, 3, 6, 1, 4, 2, 5, 0]);
    let apart: Vec<u64> = (0..4)
        .map(|w| Pages::new(Pattern::Linear { stride: 1 }, 100, w, 4).next_page(&mut Rng::new(1)))
        .collect();
    assert_eq!(apart, [0, 25, 50, 75]);
    let whole: HashSet<u64> = draws("linear:5", 23, 23).into_iter().collect();
    assert_eq!(whole.len(), 23);
}

#[test]
fn several_walks_go_in_turn_and_reach_every_page() {
    assert_eq!(draws("walks:2", 8, 9), [0, 7, 1, 6, 2, 5, 3, 4, 0]);
    assert_eq!(draws("walks:3", 7, 9), [0, 3, 4, 1, 2, 5, 0, 3, 6]);
    assert_eq!(draws("walks:9", 2, 4), [0, 1, 0, 1], "no more of them than pages");
    let whole: HashSet<u64> = draws("walks", 1001, 4 * 251).into_iter().collect();
    assert_eq!(whole.len(), 1001);
}

#[test]
fn names_are_read_back_or_refused() {
    for name in [
        "uniform",
        "linear",
        "linear:8",
        "walks:4",
        "normal:64",
        "normal-ih",
        "zipf:0.99",
        "hot-cold:10/90",
        "scan+skew:25",
    ] {
        assert_eq!(name.parse::<Pattern>().unwrap().to_string(), name);
    }
    assert_eq!("hot/cold".parse::<Pattern>().unwrap().to_string(), "hot-cold:20/80");
    for name in [
        "",
        "unifrom",
        "uniform:3",
        "linear:0",
        "linear:x",
        "walks:0",
        "walks:1025",
        "normal",
        "zipf:-1",
        "zipf:nan",
        "hot-cold:50",
        "scan+skew:101",
    ] {
        let error = name.parse::<Pattern>().unwrap_err().to_string();
        assert!(error.contains("wanted uniform"), "{error}");
    }
}

proptest! {
    #[test]
    fn pages_stay_inside_any_set(pages in 1u64..(1 << 40), seed: u64, index in 0usize..10) {
        let name = ["uniform", "linear:7", "walks:7", "normal:9", "normal-ih", "pareto", "zipf", "zipf:3", "hot-cold", "scan+skew"]
            [index];
        let mut sequence = Pages::new(name.parse().unwrap(), pages, 1, 3);
        let mut rng = Rng::new(seed);
        for _ in 0..50 {
            prop_assert!(sequence.next_page(&mut rng) < pages, "{name}");
        }
    }
}
