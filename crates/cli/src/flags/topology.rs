//! The words of `overdrive topology`.

use super::help;
use clap::Args;
use overdrive_base::size::parse_size_with_unit;
use std::path::PathBuf;

const TOPOLOGY_EXAMPLES: &str = "\
Examples:
  overdrive topology                             every drive of this host
  overdrive topology /dev/nvme0n1 /dev/nvme1n1   these two
  overdrive topology --bridge-limit 40GB         when you know this of the host
  overdrive topology --from-capture host.tree    as audit --capture wrote it

Figures are GB/s in one direction after packet headers, with all drives reading
at once.";

/// Only reads. Figures are GB/s in one direction after packet headers, all drives reading at once.
#[derive(Debug, Args)]
#[command(after_help = help::sizes_with_unit(TOPOLOGY_EXAMPLES))]
pub(crate) struct TopologyFlags {
    /// Block devices, files or folders [default: every disk on a PCI device]
    #[arg(value_name = "TARGET")]
    pub(crate) targets: Vec<String>,
    /// Read this directory in place of /: a copy of another host's files
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
    /// Draw the host that this file was captured on, by overdrive audit --capture
    #[arg(long, value_name = "FILE", conflicts_with = "root")]
    pub(crate) from_capture: Option<PathBuf>,
    /// How much each host bridge carries in a second, which the kernel does not know [default: as published
    /// for this processor, where it is]
    #[arg(long, value_name = "SIZE", value_parser = above_zero)]
    pub(crate) bridge_limit: Option<u64>,
    /// Print JSON on standard output, and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}

fn above_zero(text: &str) -> Result<u64, String> {
    match parse_size_with_unit(text).map_err(|error| error.to_string())? {
        0 => Err("a bridge that carries nothing; wanted what it carries in a second, such as 16g".to_owned()),
        bytes => Ok(bytes),
    }
}
