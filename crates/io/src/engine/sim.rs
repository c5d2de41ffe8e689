//! A device in memory and in virtual time, for demonstrations, teaching and tests: a known distribution of
//! latencies, limited parallelism, errors, and death.
//!
//! An operation first takes its turn on a link that all channels share, then is served by the channel that
//! is free first; its service time is drawn from the distribution. Virtual time jumps from completion to
//! completion, so a run costs no waiting, its latencies are exact to the nanosecond, and the same seed gives
//! the same outcome on any machine.

use super::{Completion, Engine, Grants};
use crate::job::Direction;
use crate::pattern::{Io, Place};
use overdrive_base::fault::{Fault, FaultPlan};
use overdrive_base::rng::Rng;
use overdrive_base::size::{GIB, parse_size};
use overdrive_base::time::parse_latency;
use overdrive_sys::Errno;
use overdrive_sys::clock::Clock;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use thiserror::Error;

/// A simulated device. Latencies are service times in nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct SimSpec {
    /// Usual latency of a read.
    pub read_ns: u64,
    /// Usual latency of a write, a trim and a sync.
    pub write_ns: u64,
    /// Latencies vary uniformly by up to this share of themselves, both ways (0 to 1).
    pub jitter: f64,
    /// A share of operations (0 to 1) that take this long instead: the stragglers.
    pub slow: Option<(f64, u64)>,
    /// Operations served at once; more wait their turn.
    pub channels: u32,
    /// Nanoseconds the link, which all channels share, is busy for each KiB moved.
    pub ns_per_kib: u64,
    /// The device does nothing from a moment on for so long, both in nanoseconds of virtual time.
    pub stall: Option<(u64, u64)>,
    /// Share of operations that fail with EIO.
    pub error: f64,
    /// The device is gone after this many operations of a worker.
    pub dies_after: Option<u64>,
    /// Size of the device in bytes.
    pub size: u64,
}

impl Default for SimSpec {
    /// About a P4800X: 10 us, seven channels, 2.5 GB/s, one straggler in 10,000.
    fn default() -> Self {
        Self {
            read_ns: 10_000,
            write_ns: 10_500,
            jitter: 0.08,
            slow: Some((1e-4, 60_000)),
            channels: 7,
            ns_per_kib: 400,
            stall: None,
            error: 0.0,
            dies_after: None,
            size: 4 * GIB,
        }
    }
}

/// A text that describes no simulated device.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "'{item}' in the simulated target: {reason}; wanted sim[:KEY=VALUE,...] with the keys read, write, jitter, \
     slow (SHARE@TIME), channels, per_kib, stall (AT@TIME), \
     error, dies, size, as in sim:read=80us,slow=0.001@2ms,channels=16"
)]
pub struct SimSpecError {
    item: String,
    reason: String,
}

impl SimSpec {
    /// Reads `sim` or `sim:KEY=VALUE,...`; none when the text does not start with `sim`.
    ///
    /// # Errors
    /// [`SimSpecError`] names the item that cannot be read.
    pub fn parse(text: &str) -> Option<Result<Self, SimSpecError>> {
        if text == "sim" {
            return Some(Ok(Self::default()));
        }
        let items = text.strip_prefix("sim:")?;
        let mut spec = Self::default();
        for item in items.split(',') {
            if let Err(reason) = spec.set(item) {
                return Some(Err(SimSpecError { item: item.to_owned(), reason }));
            }
        }
        Some(Ok(spec))
    }

    fn set(&mut self, item: &str) -> Result<(), String> {
        let (key, value) = item.split_once('=').ok_or("no '='")?;
        match key {
            "read" => self.read_ns = nanoseconds(value)?,
            "write" => self.write_ns = nanoseconds(value)?,
            "jitter" => self.jitter = share(value)?,
            "slow" => {
                let (probability, latency) = value.split_once('@').ok_or("no '@'")?;
                self.slow = Some((share(probability)?, nanoseconds(latency)?));
            }
            "channels" => {
                self.channels =
                    value.parse().ok().filter(|n| (1..=4096).contains(n)).ok_or("not 1 to 4096")?;
            }
            "per_kib" => self.ns_per_kib = any_nanoseconds(value)?,
            "stall" => {
                let (at, length) = value.split_once('@').ok_or("no '@'")?;
                self.stall = Some((nanoseconds(at)?, nanoseconds(length)?));
            }
            "error" => self.error = share(value)?,
            "dies" => self.dies_after = Some(value.parse().map_err(|_| "not a count")?),
            "size" => self.size = parse_size(value).map_err(|e| e.to_string())?,
            _ => return Err("unknown key".to_owned()),
        }
        Ok(())
    }
}

/// At least 1 ns, so that virtual time moves.
fn nanoseconds(text: &str) -> Result<u64, String> {
    any_nanoseconds(text).and_then(|ns| if ns == 0 { Err("not over 0ns".to_owned()) } else { Ok(ns) })
}

/// At most an hour, so that no sum overflows.
fn any_nanoseconds(text: &str) -> Result<u64, String> {
    let duration = parse_latency(text).map_err(|error| error.to_string())?;
    let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    if ns > 3_600_000_000_000 { Err("over 1h".to_owned()) } else { Ok(ns) }
}

fn share(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "not between 0 and 1".to_owned())
}

/// One worker's view of a simulated device: its own virtual clock and its share of the channels.
#[derive(Debug)]
pub(crate) struct SimEngine {
    spec: SimSpec,
    rng: Rng,
    faults: FaultPlan,
    clock: Clock,
    now: u64,
    /// When each channel is free again.
    channels: BinaryHeap<Reverse<u64>>,
    /// When the link is free again, and its nanoseconds for each KiB as one of several workers has it.
    link_free: u64,
    link_ns_per_kib: u64,
    /// Operations in service: (when done, slot, result).
    in_service: BinaryHeap<Reverse<(u64, u32, i32)>>,
}

impl SimEngine {
    /// The device as one of the workers on it sees it.
    pub(crate) fn new(spec: &SimSpec, place: Place, seed: u64) -> Self {
        let channels = (spec.channels / place.of + u32::from(place.number < spec.channels % place.of)).max(1);
        let seed = Rng::for_stream(seed, place.stream << 32 | 0x51).next_u64();
        Self {
            rng: Rng::new(seed),
            faults: FaultPlan::new(seed, spec.error, spec.dies_after),
            spec: spec.clone(),
            clock: Clock::of_nanoseconds(),
            now: 0,
            link_free: 0,
            link_ns_per_kib: spec.ns_per_kib * u64::from(place.of),
            channels: (0..channels).map(|_| Reverse(0)).collect(),
            in_service: BinaryHeap::new(),
        }
    }

    fn service_ns(&mut self, io: Io) -> u64 {
        if let Some((probability, latency)) = self.spec.slow
            && self.rng.unit() < probability
        {
            return latency;
        }
        let usual = match io.direction {
            Direction::Read => self.spec.read_ns,
            // Trims and syncs have no distribution of their own.
            _ => self.spec.write_ns,
        };
        let swing = 1.0 + self.spec.jitter * (2.0 * self.rng.unit() - 1.0);
        ((usual as f64 * swing).round() as u64).max(1)
    }
}

impl SimEngine {
    /// When an operation that starts at `start` is done: what the stall interrupts goes on after it.
    fn after_stall(&self, start: u64, service: u64) -> u64 {
        match self.spec.stall {
            Some((at, length)) if start < at + length && start + service > at => {
                start + service + length - start.saturating_sub(at)
            }
            _ => start + service,
        }
    }
}

impl Engine for SimEngine {
    fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Virtual time: nanoseconds that pass from completion to completion.
    fn now(&self) -> u64 {
        self.now
    }

    fn queue(&mut self, slot: u32, io: Io) {
        let (service, result) = match self.faults.next_fault() {
            Fault::None => (self.service_ns(io), i32::try_from(io.length).unwrap_or(i32::MAX)),
            Fault::Error(errno) => (self.spec.read_ns, -errno),
        };
        let free = self.channels.pop().map_or(0, |Reverse(free)| free);
        let moved_bytes = if io.direction == Direction::Trim { 0 } else { u64::from(io.length) };
        self.link_free = self.link_free.max(self.now) + moved_bytes * self.link_ns_per_kib / 1024;
        let done = self.after_stall(free.max(self.link_free), service);
        self.channels.push(Reverse(done));
        self.in_service.push(Reverse((done, slot, result)));
    }

    fn pass_until(&mut self, tick: u64) {
        let next = self.in_service.peek().map_or(tick, |&Reverse((when, ..))| when.min(tick));
        self.now = self.now.max(next);
    }

    fn submit_and_reap(&mut self, wait_for: u32, done: &mut Vec<Completion>) -> Result<(), Errno> {
        done.clear();
        while let Some(&Reverse((when, slot, result))) = self.in_service.peek() {
            if when > self.now {
                if done.len() >= wait_for as usize {
                    break;
                }
                self.now = when;
            }
            self.in_service.pop();
            done.push(Completion { slot, result });
        }
        Ok(())
    }

    /// A simulated device has no content.
    fn write_buffer_mut(&mut self, _slot: u32) -> &mut [u8] {
        &mut []
    }

    fn read_buffer_mut(&mut self, _slot: u32) -> &mut [u8] {
        &mut []
    }

    fn grants(&self) -> Grants {
        Grants { granted: vec!["virtual time".to_owned()], refused: Vec::new() }
    }

    fn is_real_time(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_a_device_from_a_line() {
        let spec = SimSpec::parse("sim:read=80us,slow=0.001@2ms,channels=16,size=1GiB").unwrap().unwrap();
        assert_eq!(
            (spec.read_ns, spec.slow, spec.channels, spec.size),
            (80_000, Some((0.001, 2_000_000)), 16, GIB)
        );
        assert_eq!(SimSpec::parse("sim"), Some(Ok(SimSpec::default())));
        assert_eq!(SimSpec::parse("/dev/sda"), None);
    }

    #[test]
    fn names_the_item_it_cannot_read() {
        for text in
            ["sim:", "sim:speed=1", "sim:read=fast", "sim:slow=2@1ms", "sim:channels=0", "sim:read=0ns"]
        {
            let error = SimSpec::parse(text).unwrap().unwrap_err().to_string();
            assert!(error.contains("wanted sim"), "{error}");
        }
        let error = SimSpec::parse("sim:read=80").unwrap().unwrap_err().to_string();
        assert!(error.contains("wanted a unit, such as 80us"), "{error}");
        assert_eq!(SimSpec::parse("sim:per_kib=0"), SimSpec::parse("sim:per_kib=0ns"), "nothing has no unit");
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in ".*") {
            let _ = SimSpec::parse(&format!("sim:{text}"));
        }
    }
}
