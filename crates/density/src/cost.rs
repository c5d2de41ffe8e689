//! What a server costs against another one, what each instance on it costs, and when the second one pays.
//!
//! The model is that of the solutions blueprint: only what differs between the servers counts, DRAM and SSD
//! by capacity and price. What else they cost (a chassis, a license) can be added to each. Prices are in
//! any one currency; with a price ratio alone a GiB of SSD is the unit. What this leaves out: power, space,
//! time.

pub mod endurance;
pub mod prices;

use thiserror::Error;

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum CostError {
    /// A price or capacity that no server can have.
    #[error("{name} {value}: wanted {wanted}")]
    Impossible {
        /// Which one, as the user knows it.
        name: String,
        /// What was given.
        value: String,
        /// What would do.
        wanted: &'static str,
    },
}

impl CostError {
    pub(crate) fn new(name: &str, value: f64, wanted: &'static str) -> Self {
        // Written out, the largest number has 309 digits.
        let is_plain = value == 0.0 || !value.is_finite() || (1e-9..1e15).contains(&value.abs());
        let value = if is_plain { value.to_string() } else { format!("{value:e}") };
        Self::Impossible { name: name.to_owned(), value, wanted }
    }
}

/// Whether a price ratio can be; `name` is who gave it.
///
/// # Errors
/// When it is so far off that nobody asks such prices.
pub fn check_ratio(name: &str, ratio: f64) -> Result<(), CostError> {
    // A hair of slack for a ratio that was computed from two prices.
    if !(0.999_999e-6..=1.000_001e6).contains(&ratio) {
        return Err(CostError::new(name, ratio, "a number from 0.000001 to 1000000, such as 4"));
    }
    Ok(())
}

/// Whether DRAM's share in a server's memory can be, in per cent; `name` is who gave it.
///
/// # Errors
/// When it is none.
pub fn check_share(name: &str, percent: f64) -> Result<(), CostError> {
    if !(0.0..=100.0).contains(&percent) {
        return Err(CostError::new(name, percent, "0 to 100"));
    }
    Ok(())
}

/// What one server has, and how many instances it holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Server {
    /// DRAM, in GiB.
    pub dram_gib: f64,
    /// Memory on SSD, in GiB.
    pub ssd_gib: f64,
    /// All else that is not the same in both servers or that shall count, in the prices' currency.
    pub other_cost: f64,
    /// Instances it holds inside the objective; none when nothing is known of them.
    pub instances: Option<u32>,
}

/// What memory costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prices {
    /// One GiB of DRAM.
    pub dram_per_gib: f64,
    /// One GiB of SSD.
    pub ssd_per_gib: f64,
}

impl Prices {
    /// Prices of which only the ratio of DRAM to SSD is known: a GiB of SSD costs 1.
    #[must_use]
    pub fn of_ratio(ratio: f64) -> Self {
        Self { dram_per_gib: ratio, ssd_per_gib: 1.0 }
    }

    /// How much dearer a GiB of DRAM is.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.dram_per_gib / self.ssd_per_gib
    }

    /// Whether such prices can be.
    ///
    /// # Errors
    /// When one is not a positive number, or so far off that no sum can be trusted.
    pub fn check(&self) -> Result<(), CostError> {
        for (name, price) in
            [("price of DRAM per GiB", self.dram_per_gib), ("price of SSD per GiB", self.ssd_per_gib)]
        {
            if !(price > 0.0 && price <= 1e9) {
                return Err(CostError::new(name, price, "a number above 0 and up to a thousand million"));
            }
        }
        check_ratio("price ratio", self.ratio())
    }
}

impl Server {
    /// Whether such a server can be.
    ///
    /// # Errors
    /// When it has no memory, or a part of it is negative or no number.
    pub fn check(&self, name: &str) -> Result<(), CostError> {
        let parts =
            [("DRAM in GiB", self.dram_gib), ("SSD in GiB", self.ssd_gib), ("other cost", self.other_cost)];
        for (part, value) in parts {
            if !(0.0..=1e12).contains(&value) {
                return Err(CostError::new(&format!("server {name}: {part}"), value, "0 or more"));
            }
        }
        if self.dram_gib + self.ssd_gib <= 0.0 {
            return Err(CostError::new(&format!("server {name}: memory in GiB"), 0.0, "some DRAM or SSD"));
        }
        if self.instances == Some(0) {
            return Err(CostError::new(&format!("server {name}: instances"), 0.0, "at least 1"));
        }
        Ok(())
    }

    /// What it costs.
    #[must_use]
    pub fn cost(&self, prices: &Prices) -> f64 {
        self.dram_gib * prices.dram_per_gib + self.ssd_gib * prices.ssd_per_gib + self.other_cost
    }

    /// What one of its instances costs; the whole server when their number is unknown.
    #[must_use]
    pub fn cost_per_instance(&self, prices: &Prices) -> f64 {
        self.cost(prices) / f64::from(self.instances.unwrap_or(1))
    }
}

/// Server B seen from server A.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// Cost of A, in the prices' currency.
    pub cost_a: f64,
    /// Cost of B.
    pub cost_b: f64,
    /// Cost of B over that of A.
    pub relative_cost: f64,
    /// The same for one instance, when both numbers of instances are known.
    pub relative_cost_per_instance: Option<f64>,
    /// From which price ratio on B is the cheaper one, if it depends on it.
    pub break_even: BreakEven,
}

/// When B costs no more than A, for an instance when their numbers are known, else for the server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BreakEven {
    /// From this ratio of the price of DRAM to that of SSD on.
    FromRatio(f64),
    /// Up to this ratio: B is the one with more DRAM.
    UpToRatio(f64),
    /// At any ratio.
    Always,
    /// At no ratio.
    Never,
}

/// Compares two servers.
///
/// # Errors
/// When a server or a price is impossible.
pub fn compare(a: &Server, b: &Server, prices: &Prices) -> Result<Comparison, CostError> {
    prices.check()?;
    a.check("A")?;
    b.check("B")?;
    let (cost_a, cost_b) = (a.cost(prices), b.cost(prices));
    let both = a.instances.is_some() && b.instances.is_some();
    Ok(Comparison {
        cost_a,
        cost_b,
        relative_cost: cost_b / cost_a,
        relative_cost_per_instance: both.then(|| b.cost_per_instance(prices) / a.cost_per_instance(prices)),
        break_even: break_even(a, b, prices.ssd_per_gib),
    })
}

/// What the break-even may be where more instances may hold than are known to: at worst and at best for B.
/// `most_a` and `most_b` are the most that may hold; none when nothing is known of it.
#[must_use]
pub fn break_even_between(
    a: &Server,
    b: &Server,
    prices: &Prices,
    (most_a, most_b): (Option<u32>, Option<u32>),
) -> (BreakEven, BreakEven) {
    let (least_a, least_b) = numbers(a, b);
    if a.instances.is_none() || b.instances.is_none() {
        let exact = break_even(a, b, prices.ssd_per_gib);
        return (exact, exact);
    }
    let most = |most: Option<u32>, least: f64| most.map_or(f64::INFINITY, f64::from).max(least);
    let with = |n_a, n_b| break_even_with((a, n_a), (b, n_b), prices.ssd_per_gib);
    // The more instances a server holds, the less each costs.
    (with(most(most_a, least_a), least_b), with(least_a, most(most_b, least_b)))
}

/// What costs are divided by: the instances of both, or nothing.
fn numbers(a: &Server, b: &Server) -> (f64, f64) {
    match (a.instances, b.instances) {
        (Some(n_a), Some(n_b)) => (f64::from(n_a), f64::from(n_b)),
        _ => (1.0, 1.0),
    }
}

fn break_even(a: &Server, b: &Server, ssd_per_gib: f64) -> BreakEven {
    let (n_a, n_b) = numbers(a, b);
    break_even_with((a, n_a), (b, n_b), ssd_per_gib)
}

/// Solves for the ratio at which both cost the same for each instance, the price of SSD held.
fn break_even_with((a, n_a): (&Server, f64), (b, n_b): (&Server, f64), ssd_per_gib: f64) -> BreakEven {
    // Per instance A must cost at least as much as B: slope x ratio >= offset.
    let slope = ssd_per_gib * (a.dram_gib / n_a - b.dram_gib / n_b);
    let fixed = |server: &Server, n: f64| (server.ssd_gib * ssd_per_gib + server.other_cost) / n;
    let offset = fixed(b, n_b) - fixed(a, n_a);
    let ratio = offset / slope;
    if slope > 0.0 {
        if ratio > 0.0 { BreakEven::FromRatio(ratio) } else { BreakEven::Always }
    } else if slope < 0.0 {
        if ratio > 0.0 { BreakEven::UpToRatio(ratio) } else { BreakEven::Never }
    } else if offset <= 0.0 {
        BreakEven::Always
    } else {
        BreakEven::Never
    }
}

/// The relative cost of B over a grid of price ratios and of DRAM's share in B's memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    /// The price ratios: one row each.
    pub ratios: Vec<f64>,
    /// DRAM's share in B's memory, 0 to 1: one column each. The sum of B's memory is kept.
    pub shares: Vec<f64>,
    /// Cost of B over that of A, rows of columns; for an instance when their numbers are known.
    pub relative_cost: Vec<Vec<f64>>,
}

/// Sweeps price ratio and DRAM's share. The numbers of instances stay as they are: what other shares do to
/// them is for a measurement to say.
///
/// # Errors
/// When a server, a ratio or a share is impossible.
pub fn sweep(
    a: &Server,
    b: &Server,
    ssd_per_gib: f64,
    ratios: &[f64],
    shares: &[f64],
) -> Result<Sweep, CostError> {
    let memory_gib = b.dram_gib + b.ssd_gib;
    let cell = |&ratio: &f64, &share: &f64| {
        check_share("DRAM share in per cent", share * 100.0)?;
        check_ratio("price ratio", ratio)?;
        let split = Server { dram_gib: memory_gib * share, ssd_gib: memory_gib * (1.0 - share), ..*b };
        let prices = Prices { dram_per_gib: ratio * ssd_per_gib, ssd_per_gib };
        let compared = compare(a, &split, &prices)?;
        Ok(compared.relative_cost_per_instance.unwrap_or(compared.relative_cost))
    };
    let row = |ratio| shares.iter().map(|share| cell(ratio, share)).collect::<Result<Vec<f64>, _>>();
    let relative_cost = ratios.iter().map(row).collect::<Result<_, _>>()?;
    Ok(Sweep { ratios: ratios.to_vec(), shares: shares.to_vec(), relative_cost })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(dram_gib: f64, ssd_gib: f64) -> Server {
        Server { dram_gib, ssd_gib, other_cost: 0.0, instances: None }
    }

    #[test]
    fn the_blueprints_servers_cost_what_its_formula_says() {
        // 24 and 12 modules of 16 GiB, two SSDs of 100 GiB, DRAM four times as dear: 968 over 1536.
        let (a, b) = (server(384.0, 0.0), server(192.0, 200.0));
        let compared = compare(&a, &b, &Prices::of_ratio(4.0)).unwrap();
        assert!((compared.relative_cost - 968.0 / 1536.0).abs() < 1e-12);
        assert_eq!(format!("{:.3}", compared.relative_cost), "0.630");
        assert_eq!(compared.relative_cost_per_instance, None);
        // The formula solved for a relative cost of 1.
        let BreakEven::FromRatio(ratio) = compared.break_even else { panic!("{compared:?}") };
        assert!((ratio - 200.0 / 192.0).abs() < 1e-12);
        let there = compare(&a, &b, &Prices::of_ratio(ratio)).unwrap();
        assert!((there.relative_cost - 1.0).abs() < 1e-12);
    }

    #[test]
    fn the_redis_studys_figures_hold_together() {
        // 31 machines on DRAM alone, 108 with memory on SSD: "3.5 times". Its "up to 60 %" less for each then
        // means a server 1.39 times as dear; the study's text gives no prices.
        let a = Server { other_cost: 1.0, instances: Some(31), ..server(0.0, 0.0) };
        let a = Server { dram_gib: 1e-9, ..a };
        let b = Server { other_cost: 0.4 * 108.0 / 31.0, instances: Some(108), ..a };
        let compared = compare(&a, &b, &Prices::of_ratio(1.0)).unwrap();
        assert!((compared.relative_cost - 1.3935).abs() < 1e-4, "{compared:?}");
        let saving = 1.0 - compared.relative_cost_per_instance.unwrap();
        assert!((saving - 0.60).abs() < 1e-6);
        assert_eq!(format!("{:.1}", 108.0 / 31.0), "3.5");
    }

    #[test]
    fn instances_move_the_break_even() {
        // Twice the instances for the same DRAM: worth it while the SSD costs less than the DRAM.
        let a = Server { instances: Some(10), ..server(100.0, 0.0) };
        let b = Server { instances: Some(20), ..server(100.0, 300.0) };
        let compared = compare(&a, &b, &Prices::of_ratio(3.0)).unwrap();
        assert_eq!(compared.break_even, BreakEven::FromRatio(3.0));
        assert_eq!(compared.relative_cost_per_instance, Some(1.0));
    }

    #[test]
    fn what_is_not_known_of_the_numbers_is_not_known_of_the_break_even() {
        // At n instances on B against 10 on A it pays from 300 / (10 n - 100) on.
        let a = Server { instances: Some(10), ..server(100.0, 0.0) };
        let b = Server { instances: Some(20), ..server(100.0, 300.0) };
        let prices = Prices::of_ratio(4.0);
        let between = |most_a, most_b| break_even_between(&a, &b, &prices, (most_a, most_b));
        let from = BreakEven::FromRatio;
        assert_eq!(between(Some(10), Some(20)), (from(3.0), from(3.0)));
        assert_eq!(between(Some(10), Some(40)), (from(3.0), from(1.0)));
        assert_eq!(between(Some(10), None), (from(3.0), BreakEven::Always));
        assert_eq!(between(Some(16), Some(20)), (from(12.0), from(3.0)));
        assert_eq!(between(Some(20), Some(20)), (BreakEven::Never, from(3.0)));
        assert_eq!(between(None, Some(20)), (BreakEven::Never, from(3.0)));
        assert_eq!(between(None, None), (BreakEven::Never, BreakEven::Always));
        // B is the one with more DRAM.
        let (a, b) = (server(100.0, 50.0), server(150.0, 0.0));
        let (a, b) = (Server { instances: Some(1), ..a }, Server { instances: Some(1), ..b });
        let found = break_even_between(&a, &b, &prices, (Some(1), None));
        assert_eq!(found, (BreakEven::UpToRatio(1.0), BreakEven::Always));
        // Without numbers there is nothing to be uncertain of.
        let (a, b) = (server(100.0, 0.0), server(50.0, 100.0));
        assert_eq!(break_even_between(&a, &b, &prices, (None, None)), (from(2.0), from(2.0)));
    }

    #[test]
    fn some_never_pay_and_some_always_do() {
        let prices = Prices::of_ratio(4.0);
        let of = |a: Server, b: Server| compare(&a, &b, &prices).unwrap().break_even;
        assert_eq!(of(server(100.0, 0.0), server(100.0, 1.0)), BreakEven::Never);
        assert_eq!(of(server(100.0, 0.0), server(100.0, 0.0)), BreakEven::Always);
        assert_eq!(of(server(100.0, 50.0), server(90.0, 50.0)), BreakEven::Always);
        assert_eq!(of(server(100.0, 50.0), server(150.0, 0.0)), BreakEven::UpToRatio(1.0));
        assert_eq!(of(server(100.0, 0.0), server(150.0, 10.0)), BreakEven::Never);
    }

    #[test]
    fn a_sweep_keeps_the_sum_of_memory() {
        let (a, b) = (server(384.0, 0.0), server(192.0, 192.0));
        let swept = sweep(&a, &b, 1.0, &[1.0, 4.0], &[1.0, 0.5, 0.25]).unwrap();
        assert_eq!(swept.relative_cost[0], [1.0, 1.0, 1.0], "equal prices: no difference");
        assert_eq!(swept.relative_cost[1], [1.0, 0.625, 0.4375]);
        assert!(sweep(&a, &b, 1.0, &[1.0], &[1.5]).is_err());
        assert!(sweep(&a, &b, 1.0, &[0.0], &[0.5]).is_err());
        assert!(sweep(&a, &b, 1.0, &[1e-320], &[0.5]).is_err(), "it would come out infinite");
    }

    #[test]
    fn impossible_prices_and_servers_are_refused() {
        let good = server(1.0, 0.0);
        for ratio in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-300, 1e8] {
            assert!(compare(&good, &good, &Prices::of_ratio(ratio)).is_err(), "{ratio}");
        }
        for bad in [server(0.0, 0.0), server(-1.0, 5.0), Server { instances: Some(0), ..good }] {
            let error = compare(&good, &bad, &Prices::of_ratio(1.0)).unwrap_err().to_string();
            assert!(error.contains("server B") && error.contains("wanted"), "{error}");
        }
    }
}
