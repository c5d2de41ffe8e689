//! `overdrive cost`: flags and price list in, the cost model's answers out as text, JSON or HTML.

mod show;

use crate::exit::{Ending, Refused, refuse};
use crate::flags::CostFlags;
use crate::output;
use anyhow::Result;
use overdrive_density::cost::endurance::{Rating, per_day};
use overdrive_density::cost::prices::{Drive, EXAMPLE, PriceList};
use overdrive_density::cost::{
    BreakEven, Comparison, CostError, Prices, Server, Sweep, break_even_between, check_ratio, check_share,
    compare, sweep,
};
use overdrive_report::density::DensityRecord;
use overdrive_report::render;
use std::path::Path;

/// Everything that was asked, with its answers.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) a: Server,
    pub(crate) b: Server,
    pub(crate) prices: Prices,
    /// The price list the prices are from.
    pub(crate) list: Option<PriceList>,
    pub(crate) comparison: Comparison,
    pub(crate) sweep: Sweep,
    pub(crate) endurance: Option<Endurance>,
    /// Where the numbers of instances are from, when they were measured.
    pub(crate) source: Option<String>,
    /// The most instances that A and B may hold; none when nothing is known above their numbers.
    pub(crate) most: (Option<u32>, Option<u32>),
    /// The break-even at worst and at best for B, as far as those numbers are known.
    pub(crate) break_even: (BreakEven, BreakEven),
}

impl Answer {
    /// Whether the numbers of A and B are lower bounds: no edge was found right above them.
    pub(crate) fn at_least(&self) -> (bool, bool) {
        (self.a.instances != self.most.0, self.b.instances != self.most.1)
    }
}

/// What a density record says about two backings.
#[derive(Debug)]
struct Density {
    instances_a: u32,
    instances_b: u32,
    most: (Option<u32>, Option<u32>),
    /// To swap, at the number that B holds.
    written_bytes_per_s: f64,
    source: String,
}

impl Density {
    fn load(path: &Path) -> Result<Self> {
        let name = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Refused(format!("--from {name}: {error}; wanted a density.json")))?;
        let record =
            DensityRecord::from_json(&text).map_err(|error| Refused(format!("--from {name}: {error}")))?;
        let (Some(a), Some(b)) = (record.backings.first(), record.backings.get(1..).and_then(<[_]>::last))
        else {
            refuse!("--from {name}: it has one backing; wanted two, such as --backing dram,swap");
        };
        if let Some(none) = [a, b].into_iter().find(|backing| backing.held == 0) {
            refuse!(
                "--from {name}: {} holds no instance inside the objective; wanted both to hold one",
                none.name
            );
        }
        let measured = b.telling().and_then(|trial| trial.measured.as_ref());
        Ok(Self {
            instances_a: a.held,
            instances_b: b.held,
            most: (a.most(), b.most()),
            written_bytes_per_s: measured.map_or(0.0, |measured| measured.swap_out_bytes_per_s),
            source: format!(
                "Instances: A holds {} on {}, B {} on {} ({name})",
                show::number(a.held, a.most()),
                a.name,
                show::number(b.held, b.most()),
                b.name
            ),
        })
    }
}

/// How long the drives last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Endurance {
    pub(crate) rating: Rating,
    pub(crate) drives: u32,
    /// Bytes written a day; none when nothing is known of it.
    pub(crate) bytes_per_day: Option<f64>,
}

/// Computes and prints.
pub(crate) fn cost(flags: &CostFlags) -> Result<Ending> {
    if flags.print_prices {
        output::print(EXAMPLE)?;
        return Ok(Ending::Done);
    }
    flags.html.as_deref().map_or(Ok(()), |path| output::check_replaceable("--html", path))?;
    let answer = answer(flags)?;
    let page = show::page(&answer);
    if let Some(path) = &flags.html {
        output::replace_file(path, &render::html::page(&page)?)?;
    }
    let text = if flags.json {
        format!("{}\n", serde_json::to_string_pretty(&show::json(&answer))?)
    } else {
        render::text::page(&page, output::text_options())
    };
    output::print(&text)?;
    Ok(Ending::Done)
}

fn refused(error: &CostError) -> Refused {
    Refused(error.to_string())
}

fn answer(flags: &CostFlags) -> Result<Answer> {
    let list = flags.prices.as_deref().map(load).transpose()?;
    let prices = match (&list, flags.price_ratio) {
        (Some(list), _) => list.prices(),
        (None, Some(ratio)) => {
            check_ratio("--price-ratio", ratio).map_err(|error| refused(&error))?;
            Prices::of_ratio(ratio)
        }
        (None, None) => {
            refuse!("no prices: wanted --price-ratio RATIO or --prices FILE (--print-prices shows its form)")
        }
    };
    let (Some(dram_a), Some(dram_b)) = (flags.dram_a, flags.dram_b) else {
        refuse!("no servers: wanted --dram-a SIZE and --dram-b SIZE, with --ssd-b SIZE for the memory on SSD")
    };
    if flags.instances_a.is_some() != flags.instances_b.is_some() {
        refuse!("instances of one server alone: wanted --instances-a N and --instances-b N, or neither");
    }
    let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
    let other = list.as_ref().map(|list| list.server).unwrap_or_default();
    let server = |dram, ssd, other_cost, instances| Server {
        dram_gib: gib(dram),
        ssd_gib: gib(ssd),
        other_cost,
        instances,
    };
    let measured = flags.from.as_deref().map(Density::load).transpose()?;
    let (instances_a, instances_b) = match &measured {
        Some(density) => (Some(density.instances_a), Some(density.instances_b)),
        None => (flags.instances_a, flags.instances_b),
    };
    let a = server(dram_a, flags.ssd_a, other.a_other, instances_a);
    let b = server(dram_b, flags.ssd_b, other.b_other, instances_b);
    let comparison = compare(&a, &b, &prices).map_err(|error| refused(&error))?;
    let ratios = flags.sweep_ratio.iter().try_for_each(|ratio| check_ratio("--sweep-ratio", *ratio));
    let shares = flags.sweep_share.iter().try_for_each(|share| check_share("--sweep-share", *share));
    ratios.and(shares).map_err(|error| refused(&error))?;
    let shares: Vec<f64> = flags.sweep_share.iter().map(|percent| percent / 100.0).collect();
    let sweep =
        sweep(&a, &b, prices.ssd_per_gib, &flags.sweep_ratio, &shares).map_err(|error| refused(&error))?;
    let drive = list.as_ref().and_then(|list| list.drive.as_ref());
    let written = measured.as_ref().map(|density| per_day(density.written_bytes_per_s));
    let endurance = endurance(flags, drive, written)?;
    let most = measured.as_ref().map_or((instances_a, instances_b), |density| density.most);
    let source = measured.map(|density| density.source);
    let break_even = break_even_between(&a, &b, &prices, most);
    Ok(Answer { a, b, prices, list, comparison, sweep, endurance, source, most, break_even })
}

fn load(path: &Path) -> Result<PriceList> {
    let name = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Refused(format!("{name}: {error}; wanted a price list")))?;
    Ok(PriceList::parse(&text).map_err(|error| Refused(format!("{name}: {error}")))?)
}

/// `measured` are the bytes a day that a density record says; what was given on the command line goes first.
fn endurance(flags: &CostFlags, drive: Option<&Drive>, measured: Option<f64>) -> Result<Option<Endurance>> {
    if flags.drives == Some(0) {
        refuse!("--drives 0: wanted at least 1");
    }
    let drives = flags.drives.or(drive.map(|drive| drive.drives)).unwrap_or(1);
    let list = flags.prices.as_deref().unwrap_or(Path::new("")).display();
    let rating = match (flags.rating, drive) {
        (Some(bytes), _) => Some(Rating::of_bytes(bytes as f64, drives).map_err(|error| refused(&error))?),
        (None, Some(drive)) => {
            Some(rating_of(drive, drives).map_err(|error| Refused(format!("{list}: {error}")))?)
        }
        (None, None) => None,
    };
    let daily = flags.writes_per_day.map(|bytes| bytes as f64);
    let given = daily.or(flags.write_rate.map(|rate| per_day(rate as f64)));
    match rating {
        Some(rating) => Ok(Some(Endurance { rating, drives, bytes_per_day: given.or(measured) })),
        None if flags.drives.is_some() => {
            refuse!("--drives, but no rating of one: wanted --rating SIZE, or a price list with [drive]")
        }
        None if given.is_some() => {
            refuse!(
                "bytes written, but no rating to hold them against: wanted --rating SIZE, or a price list with [drive]"
            )
        }
        None => Ok(None),
    }
}

fn rating_of(drive: &Drive, drives: u32) -> Result<Rating> {
    let size = |key: &str, text: &str| {
        let bytes = overdrive_base::size::parse_size_with_unit(text);
        bytes.map(|bytes| bytes as f64).map_err(|error| Refused(format!("drive.{key}: {error}")))
    };
    let rating = match (&drive.rating, &drive.capacity, drive.drive_writes_per_day, drive.years) {
        (Some(text), None, None, None) => Rating::of_bytes(size("rating", text)?, drives),
        (None, Some(capacity), Some(per_day), Some(years)) => {
            Rating::of_drive_writes(per_day, size("capacity", capacity)?, years, drives)
        }
        _ => refuse!("[drive]: wanted rating alone, or capacity with drive_writes_per_day and years"),
    };
    Ok(rating.map_err(|error| refused(&error))?)
}
