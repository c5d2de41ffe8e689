//! The words of `overdrive cost`.

use super::help;
use clap::Args;
use overdrive_base::size::parse_size_with_unit;
use std::path::PathBuf;

const COST_EXAMPLES: &str = "\
Examples:
  overdrive cost --dram-a 384GiB --dram-b 192GiB --ssd-b 200GiB --price-ratio 4
        the blueprint's two servers: B costs 0.630 of A
  overdrive cost --dram-a 192GiB --dram-b 192GiB --ssd-b 576GiB \\
      --price-ratio 4 --instances-a 31 --instances-b 108
        per instance
  overdrive cost --print-prices > prices.toml
        a price list to fill in
  overdrive cost --dram-a 384GiB --dram-b 192GiB --ssd-b 200GiB \\
      --prices prices.toml
  overdrive cost ... --from study/density.json
        with the instances and writes that were measured
  overdrive cost ... --write-rate 20MB --rating 20.5PB
        how long the drive lasts";

/// Server A has DRAM alone unless told; server B has less of it and an SSD, or the same and an SSD besides.
#[derive(Debug, Args)]
#[command(after_help = help::sizes_with_unit(COST_EXAMPLES))]
pub(crate) struct CostFlags {
    /// DRAM of server A
    #[arg(long, value_name = "SIZE", value_parser = parse_size_with_unit)]
    pub(crate) dram_a: Option<u64>,
    /// Memory on SSD of server A
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_size_with_unit)]
    pub(crate) ssd_a: u64,
    /// DRAM of server B
    #[arg(long, value_name = "SIZE", value_parser = parse_size_with_unit)]
    pub(crate) dram_b: Option<u64>,
    /// Memory on SSD of server B
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_size_with_unit)]
    pub(crate) ssd_b: u64,
    /// The price of a GiB of DRAM divided by that of a GiB of SSD
    #[arg(long, value_name = "RATIO", conflicts_with = "prices", allow_negative_numbers = true)]
    pub(crate) price_ratio: Option<f64>,
    /// A price list in TOML, as --print-prices shows it
    #[arg(long, value_name = "FILE")]
    pub(crate) prices: Option<PathBuf>,
    /// Print a price list to fill in, and nothing else
    #[arg(long)]
    pub(crate) print_prices: bool,
    /// Instances that server A holds inside the objective
    #[arg(long, value_name = "N")]
    pub(crate) instances_a: Option<u32>,
    /// Instances that server B holds inside the objective
    #[arg(long, value_name = "N")]
    pub(crate) instances_b: Option<u32>,
    /// A density record (density.json): as many instances as its first backing holds for A, its last for B
    #[arg(long, value_name = "RECORD", conflicts_with_all = ["instances_a", "instances_b"])]
    pub(crate) from: Option<PathBuf>,
    /// The price ratios that the table runs through
    #[arg(long, value_name = "RATIO,...", value_delimiter = ',', default_value = "1,2,3,4,6,8,12,16")]
    pub(crate) sweep_ratio: Vec<f64>,
    /// The shares of DRAM in B's memory that the table runs through, in per cent
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', default_value = "100,75,50,25,12.5")]
    pub(crate) sweep_share: Vec<f64>,
    /// Bytes written to the SSD each day
    #[arg(long, value_name = "SIZE", value_parser = parse_size_with_unit, conflicts_with = "write_rate")]
    pub(crate) writes_per_day: Option<u64>,
    /// Bytes written to the SSD each second, on average
    #[arg(long, value_name = "SIZE", value_parser = parse_size_with_unit)]
    pub(crate) write_rate: Option<u64>,
    /// Bytes that one drive may take in its life, as its maker promises [default: from the price list]
    #[arg(long, value_name = "SIZE", value_parser = parse_size_with_unit)]
    pub(crate) rating: Option<u64>,
    /// How many drives share the writes [default: from the price list, else 1]
    #[arg(long, value_name = "N")]
    pub(crate) drives: Option<u32>,
    /// Also write tables and charts as one HTML file
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Print JSON on standard output, and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}
