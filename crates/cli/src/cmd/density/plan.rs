//! What was asked, made whole and checked before anything is started: what cannot be is refused in one line.

use crate::cmd::extend::plan::DRAM_MIN;
use crate::cmd::extend::store::Store;
use crate::cmd::extend::watch::{pages_moved_in, pages_stored_in};
use crate::cmd::page::{Memory, SwapWish};
use crate::exit::{Refused, refuse};
use crate::flags::{DensityBacking, DensityFlags, DensityJudge, DensityKind, each_once, word};
use anyhow::{Context, Result};
use overdrive_base::size::{MIB, format_size};
use overdrive_base::time::format_duration;
use overdrive_density::backing::{Backing, Extended, Moved};
use overdrive_density::cost::check_ratio;
use overdrive_density::fleet::{Class, FleetSpec};
use overdrive_density::instance::Kind;
use overdrive_density::load::LoadSpec;
use overdrive_density::trial::{Judge, TrialSpec};
use overdrive_sys::memory_group::Place;
use overdrive_sys::swap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Everything a run needs.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) kind: Box<dyn Kind>,
    pub(crate) backings: Vec<DensityBacking>,
    pub(crate) load: LoadSpec,
    pub(crate) trial: TrialSpec,
    pub(crate) classes: Vec<Class>,
    pub(crate) dram_bytes: Option<u64>,
    /// How many times as much as SSD the same DRAM costs.
    pub(crate) price_ratio: Option<f64>,
    pub(crate) place: Option<Place>,
    pub(crate) swap: Option<SwapWish>,
    /// Where extended instances keep what is cold.
    pub(crate) store: Option<Store>,
    pub(crate) max: u32,
    /// One number instead of a search.
    pub(crate) instances: Option<u32>,
    pub(crate) notes: Vec<String>,
}

impl Plan {
    pub(crate) fn fleet_spec(&self, backing: Backing) -> FleetSpec {
        FleetSpec {
            backing,
            dram_bytes: self.dram_bytes,
            place: self.place.clone(),
            classes: self.classes.clone(),
            load: self.load.clone(),
        }
    }

    /// A backing as the fleet wants it; `store` is the run's folder on the drive, where it has one.
    pub(crate) fn backing(&self, name: DensityBacking, store: Option<&Path>) -> Result<Backing> {
        Ok(match name {
            DensityBacking::Dram => Backing::Dram,
            DensityBacking::Swap => Backing::Swap,
            DensityBacking::ExtendSwap => Backing::ExtendSwap,
            DensityBacking::Extend => Backing::Extend(Extended {
                program: std::env::current_exe().context("finding this program")?,
                store: store.map(Path::to_path_buf).unwrap_or_default(),
                store_bytes: self.store.as_ref().map_or(0, |store| store.bytes),
                budget_min_bytes: DRAM_MIN,
                moved: |store| {
                    let (read, written) = pages_moved_in(store);
                    Moved { in_bytes: read * 4096, out_bytes: written * 4096 }
                },
                stored: |store| pages_stored_in(store) * 4096,
            }),
        })
    }

    pub(crate) fn class_names(&self) -> Vec<String> {
        self.classes.iter().map(|class| class.name.clone()).collect()
    }
}

/// More instances than this are no plan for one machine.
const INSTANCES_MAX: u32 = 4096;
/// Longer than this the load only keeps a processor busy.
const SPIN_MAX: Duration = Duration::from_secs(1);
/// About one request in the longest run there may be. The time between requests of far smaller rates is no
/// number.
const RATE_MIN: f64 = 0.00001;
/// Redis itself takes no larger value.
const VALUE_MAX: u64 = 512 << 20;

pub(crate) fn plan(flags: &DensityFlags) -> Result<Plan> {
    check_load(flags)?;
    let memory = Memory::now()?;
    let swaps = flags.backing.iter().any(|backing| backing.swaps());
    let extends = flags.backing.contains(&DensityBacking::Extend);
    let classes = classes(&flags.classes, swaps || extends)?;
    let swap = swap_wish(flags, swaps)?;
    let swap_bytes = swap.as_ref().map_or(memory.swap_free_bytes, |wish| wish.bytes);
    let store = store_wish(flags, extends, swap.as_ref())?;
    check_memory(flags, &memory, swaps.then_some(swap_bytes), store.as_ref())?;
    // Asked last of all that can be refused: it starts a program.
    let kind = super::kind_of(flags)?;
    let grouped = flags.dram.is_some() || !classes.is_empty();
    let place = match Place::find() {
        Ok(place) => Some(place),
        Err(error) if grouped => return Err(Refused(format!("--dram and --classes: {error}")).into()),
        Err(_) => None,
    };
    let mut notes = Vec::new();
    if place.is_none() {
        notes.push("No memory groups are to be had here: memory is neither limited nor counted.".to_owned());
    }
    if let (Some(place), true, Some(dram)) = (&place, swaps, flags.dram) {
        // Of swap that is on nobody asked for a part: any will do.
        let fits = place.check_swap(dram, swap.as_ref().map_or(1, |wish| wish.bytes));
        fits.map_err(|why| Refused(format!("--backing {}: {why}", on_swap(flags))))?;
    }
    let disk = disk(swap.as_ref(), store.as_ref(), swaps)?;
    notes.extend(store.as_ref().map(store_note));
    let cpus = overdrive_sys::affinity::allowed_cpus()?.len();
    let load = LoadSpec {
        records: flags.records,
        value_bytes: flags.value_size as usize,
        rate_per_s: flags.rate,
        get_percent: flags.mix,
        influence: flags.influence,
        seed: flags.seed,
        threads: flags.load_threads.unwrap_or(cpus / 4).max(1),
        spin: flags.spin,
    };
    let trial = TrialSpec {
        warmup: flags.warmup.unwrap_or(flags.runtime),
        runtime: flags.runtime,
        iterations: flags.iterations,
        objective: flags.objective.clone(),
        judge: match flags.judge {
            DensityJudge::Each => Judge::Each,
            DensityJudge::Fleet => Judge::Fleet,
        },
        disk,
        swap_bytes,
    };
    notes.extend(sample_note(flags));
    Ok(Plan {
        kind,
        backings: flags.backing.clone(),
        load,
        trial,
        classes,
        dram_bytes: flags.dram,
        price_ratio: flags.price_ratio,
        place,
        swap,
        store,
        max: flags.max,
        instances: flags.instances,
        notes,
    })
}

fn check_load(flags: &DensityFlags) -> Result<()> {
    if flags.records == 0 || flags.records > u64::from(u32::MAX) {
        refuse!("--records {}: wanted 1 to {}", flags.records, u32::MAX);
    }
    if flags.value_size == 0 || flags.value_size > VALUE_MAX {
        let size = flags.value_size;
        let size = if size > 0 && size.is_multiple_of(MIB) { format_size(size) } else { size.to_string() };
        refuse!("--value-size {size}: wanted 1 to {}", format_size(VALUE_MAX));
    }
    if !(RATE_MIN..=1e6).contains(&flags.rate) {
        refuse!("--rate {}: wanted {RATE_MIN} to 1000000 requests/s", flags.rate);
    }
    if flags.mix > 100 {
        refuse!("--mix {}: wanted per cent of GETs, 0 to 100", flags.mix);
    }
    if !(0.0..=1e6).contains(&flags.influence) {
        refuse!("--influence {}: wanted the width of a bell in per cent, 0 for none", flags.influence);
    }
    for (name, number) in [("--max", flags.max), ("--instances", flags.instances.unwrap_or(1))] {
        if number == 0 || number > INSTANCES_MAX {
            refuse!("{name} {number}: wanted 1 to {INSTANCES_MAX}");
        }
    }
    let ratio = flags.price_ratio.map_or(Ok(()), |ratio| check_ratio("--price-ratio", ratio));
    ratio.map_err(|error| Refused(error.to_string()))?;
    if flags.port == Some(0) {
        refuse!("--port 0: wanted 1 to 65535");
    }
    if flags.load_threads == Some(0) {
        refuse!("--load-threads 0: wanted at least 1");
    }
    if flags.spin > SPIN_MAX {
        let (spin, most) = (format_duration(flags.spin), format_duration(SPIN_MAX));
        refuse!("--spin {spin}: wanted at most {most}, about as long as a processor takes to wake up");
    }
    if flags.iterations == 0 || flags.iterations > 1000 {
        refuse!("--iterations {}: wanted 1 to 1000", flags.iterations);
    }
    if flags.runtime.is_zero() || flags.runtime.as_secs() > 86_400 {
        refuse!("--runtime: wanted more than nothing and at most a day");
    }
    if flags.warmup.is_some_and(|warmup| warmup.as_secs() > 86_400) {
        refuse!("--warmup: wanted at most a day");
    }
    let for_guests = flags.kernel.is_some() || flags.modules.is_some() || flags.vm_memory.is_some();
    if for_guests && flags.kind != DensityKind::Vm {
        refuse!("--kernel, --modules and --vm-memory are for --kind vm: wanted that, or none of them");
    }
    if flags.port.is_some() && flags.kind == DensityKind::Vm {
        refuse!("--port is for --kind process: guests are reached through a virtio port");
    }
    each_once("--backing", flags.backing.iter().map(word))
}

fn classes(texts: &[String], has_drive: bool) -> Result<Vec<Class>> {
    let mut classes: Vec<Class> = Vec::new();
    for text in texts {
        let (name, ratio) = text.split_once(':').unwrap_or((text, ""));
        let wanted = "wanted NAME:RATIO such as bronze:4, for four bytes of memory on each of DRAM";
        let Some(ratio) = ratio.parse::<f64>().ok().filter(|ratio| (1.0..=1000.0).contains(ratio)) else {
            refuse!("--classes {text}: '{ratio}' is no ratio of 1 or more; {wanted}");
        };
        // The name becomes a folder of the control-group hierarchy.
        if name.is_empty() || !name.chars().all(|one| one.is_ascii_alphanumeric() || one == '-') {
            refuse!("--classes {text}: '{name}' is no name of letters and digits; {wanted}");
        }
        if classes.iter().any(|class| class.name == name) {
            refuse!("--classes: {name} is there twice; wanted each once");
        }
        classes.push(Class { name: name.to_owned(), ratio });
    }
    if classes.iter().any(|class| class.ratio > 1.0) && !has_drive {
        refuse!("--classes: more memory than DRAM needs a drive behind it; wanted --backing swap or extend");
    }
    Ok(classes)
}

fn swap_wish(flags: &DensityFlags, swaps: bool) -> Result<Option<SwapWish>> {
    let Some(text) = flags.swap.as_deref() else { return Ok(None) };
    if !swaps {
        refuse!(
            "--swap is for the backings swap and extend-swap, which are not measured: wanted --backing dram,swap"
        );
    }
    // As much as the study had: memory of four times the DRAM, here in swap.
    let bytes = flags.dram.map_or(1 << 30, |dram| dram.saturating_mul(4));
    SwapWish::parse(text, bytes).map(Some)
}

/// Where extended instances keep what is cold: as given, or where the swap file goes, so that both use one
/// disk.
fn store_wish(flags: &DensityFlags, extends: bool, swap: Option<&SwapWish>) -> Result<Option<Store>> {
    if !extends {
        if flags.store.is_some() {
            refuse!("--store is for the backing extend, which is not measured: wanted --backing dram,extend");
        }
        return Ok(None);
    }
    let Some(dram) = flags.dram else {
        refuse!("--backing extend: its instances get their parts of the DRAM; wanted --dram SIZE");
    };
    // Of a share a thirty-second and 2 MiB are left to what is beside the instance.
    let least = (DRAM_MIN + 2 * MIB) * 32 / 31 + MIB;
    if dram < least {
        refuse!(
            "--dram {}: not one extended instance fits; wanted at least {}",
            format_size(dram),
            format_size(least)
        );
    }
    let beside = swap.map_or_else(|| OsString::from("."), |wish| wish.folder.clone().into_os_string());
    let wish = flags.store.clone().unwrap_or(beside);
    // Without a size a store holds eight times the DRAM named here: twice an instance's memory.
    Store::check(&wish, (instance_bytes(flags) / 4).max(8 * MIB)).map(Some)
}

/// How extended instances share the DRAM.
fn store_note(store: &Store) -> String {
    format!(
        "Extended memory: each instance has its part of the DRAM less a thirty-second and 2 MiB as its pager's budget, \
         and up to {} in {}; another number of instances is started anew.",
        format_size(store.bytes),
        store.folder.display()
    )
}

/// Memory of one instance, about.
fn instance_bytes(flags: &DensityFlags) -> u64 {
    let data = super::data_bytes(flags);
    match flags.kind {
        DensityKind::Process => data,
        DensityKind::Vm => flags.vm_memory.unwrap_or(data.saturating_add(512 * MIB)),
    }
}

/// What is looked at for how busy the drive is.
fn disk(swap: Option<&SwapWish>, store: Option<&Store>, swaps: bool) -> Result<Option<PathBuf>> {
    let folder = swap.map(|wish| wish.folder.clone()).or(store.map(|store| store.folder.clone()));
    if folder.is_some() || !swaps {
        return Ok(folder);
    }
    Ok(swap::areas()?.into_iter().max_by_key(|area| area.priority).map(|area| area.path))
}

/// The first backing on swap, as it was named.
fn on_swap(flags: &DensityFlags) -> String {
    flags.backing.iter().find(|backing| backing.swaps()).map(word).unwrap_or_default()
}

/// Refuses a fleet of which not even one instance can be held; `swap_bytes` when swap is among the backings.
fn check_memory(
    flags: &DensityFlags,
    memory: &Memory,
    swap_bytes: Option<u64>,
    store: Option<&Store>,
) -> Result<()> {
    let available = memory.available_bytes;
    if let Some(dram) = flags.dram {
        if dram > available {
            refuse!(
                "--dram {}: only {} of memory is available; wanted less",
                format_size(dram),
                format_size(available)
            );
        }
    } else if swap_bytes.is_some() {
        refuse!("--backing {}: without a limit nothing goes to swap; wanted --dram SIZE", on_swap(flags));
    }
    if swap_bytes == Some(0) {
        let name = on_swap(flags);
        refuse!("--backing {name}: no swap is on; wanted --swap DIR[:SIZE], or swap that is on");
    }
    let dram = flags.dram.unwrap_or(available);
    if let Some(guest) = flags.vm_memory.filter(|guest| *guest > available) {
        refuse!(
            "--vm-memory {}: not one guest fits, {} of memory is available; wanted less",
            format_size(guest),
            format_size(available)
        );
    }
    let values = flags.records.saturating_mul(flags.value_size);
    let behind = flags.backing.iter().map(|backing| match backing {
        DensityBacking::Dram => 0,
        DensityBacking::Swap | DensityBacking::ExtendSwap => swap_bytes.unwrap_or(0),
        DensityBacking::Extend => store.map_or(0, |store| store.bytes),
    });
    let room = dram.saturating_add(behind.min().unwrap_or(0));
    if values > room {
        refuse!(
            "not one instance fits: {} values of {} are {}, there is {}; wanted fewer --records, smaller ones or more --dram",
            flags.records,
            format_size(flags.value_size),
            format_size(values),
            format_size(room)
        );
    }
    Ok(())
}

/// A percentile needs samples beyond it.
fn sample_note(flags: &DensityFlags) -> Option<String> {
    use overdrive_density::objective::Figure;
    let samples = flags.rate * flags.runtime.as_secs_f64() * f64::from(flags.iterations);
    let thin = flags.objective.limits.iter().find(|(figure, _)| match figure {
        Figure::Percentile(percentile) => samples * (1.0 - percentile / 100.0) < 10.0,
        Figure::Average | Figure::Max => false,
    })?;
    Some(format!(
        "An instance gets {samples:.0} requests: too few for its {}; wanted a longer --runtime.",
        thin.0
    ))
}

/// Swap behind the backings that use it.
pub(crate) fn swap_bytes(plan: &Plan) -> Option<u64> {
    plan.backings.iter().any(|backing| backing.swaps()).then_some(plan.trial.swap_bytes)
}
