//! What only the admin queue of an NVMe controller tells: identity, power states, formats, health, features.
//!
//! On the running system the controller is asked; in a capture its answers stand as bytes under the paths
//! that [`path`] names. Parsers take any bytes: a field beyond the end of an answer is no answer.

use super::super::parse::Unexpected;
use super::super::{Fact, FactRow, Rows, describe_errno};
use crate::root::Root;
use crate::root::binary::show_hex;
use overdrive_sys::nvme::{self, ANSWER_BYTES, FEATURE_APST, Query};
use std::fs::File;

/// Feature numbers of the NVMe base specification.
const FEATURE_POWER: u8 = 0x02;
const FEATURE_WRITE_CACHE: u8 = 0x06;
const FEATURE_QUEUES: u8 = 0x07;
const FEATURE_COALESCING: u8 = 0x08;

/// What the controller said.
#[derive(Debug, Clone)]
pub struct AdminFacts {
    /// Identify Controller.
    pub controller: Fact<Controller>,
    /// Identify Namespace, of the one that is looked at.
    pub namespace: Fact<Namespace>,
    /// The health log.
    pub smart: Fact<Smart>,
    /// The power state in force.
    pub power_state: Fact<u32>,
    /// Whether the volatile write cache is on.
    pub write_cache: Fact<bool>,
    /// Submission and completion queues granted.
    pub queues: Fact<(u32, u32)>,
    /// Completions gathered into one interrupt, and the time they may wait in units of 100 us.
    pub coalescing: Fact<(u32, u32)>,
    /// Whether the controller falls asleep by itself, and the idle time of each state that leads to another.
    pub apst: Fact<Apst>,
}

/// Identify Controller, the parts that rules ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    /// Largest transfer as a power of two of the smallest page; 0 is without limit.
    pub transfer_exponent: u8,
    /// Bit 0: a volatile write cache is present.
    pub volatile_cache: bool,
    /// Whether it can fall asleep by itself.
    pub has_apst: bool,
    /// Host memory the drive would like, in 4 KiB units; above 0 it has little memory of its own.
    pub host_memory_wanted: u32,
    /// Temperature at which it warns, in K; 0 is not told.
    pub warning_kelvin: u16,
    /// Temperature at which it is critical, in K.
    pub critical_kelvin: u16,
    /// Its power states.
    pub power_states: Vec<PowerState>,
}

/// One power state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PowerState {
    /// Most power, in mW.
    pub power_mw: u64,
    /// Whether no I/O is done in it.
    pub is_asleep: bool,
    /// Time to enter, in us.
    pub entry_us: u32,
    /// Time to leave, in us.
    pub exit_us: u32,
}

/// Identify Namespace, the formats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    /// Formats the drive offers.
    pub formats: Vec<LbaFormat>,
    /// The one in use.
    pub current: usize,
}

/// One format of logical blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LbaFormat {
    /// Bytes of data in a block.
    pub data_bytes: u64,
    /// Bytes of metadata with it.
    pub metadata_bytes: u16,
    /// Relative performance: 0 best, 3 degraded.
    pub performance: u8,
}

/// The health log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Smart {
    /// Bits: spare low, temperature, reliability, read-only, backup failed.
    pub critical_warning: u8,
    /// Temperature, in K.
    pub kelvin: u16,
    /// Spare blocks left, in per cent, and the level below which it warns.
    pub spare_percent: (u8, u8),
    /// Rated life used, in per cent; may pass 100.
    pub used_percent: u8,
    /// Bytes written by hosts.
    pub written_bytes: u128,
    /// Hours switched on.
    pub power_on_hours: u128,
    /// Errors of data that could not be mended.
    pub media_errors: u128,
    /// Minutes above the warning temperature, and above the critical one.
    pub hot_minutes: (u32, u32),
    /// Times the drive slowed itself down for heat, lightly and heavily.
    pub throttle_counts: (u32, u32),
}

/// The sleep table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Apst {
    /// Whether it is in force.
    pub enabled: bool,
    /// By state: the state it falls to and after how many ms idle; 0 ms is never.
    pub transitions: Vec<(u8, u32)>,
}

impl Apst {
    /// States the drive falls into by itself.
    pub fn targets(&self) -> impl Iterator<Item = usize> + '_ {
        let used = self.transitions.iter().filter(|&&(_, idle_ms)| idle_ms > 0);
        used.map(|&(state, _)| usize::from(state)).filter(|_| self.enabled)
    }
}

/// Where an answer stands in a capture, and how it is called as evidence: `/dev/nvme0/smart-log`.
#[must_use]
pub fn path(controller: &str, query: Query) -> String {
    let name = match query {
        Query::IdentifyController => "identify-controller".to_owned(),
        Query::IdentifyNamespace { namespace } => format!("identify-namespace-{namespace}"),
        Query::SmartLog => "smart-log".to_owned(),
        Query::Feature { id } => format!("feature-{id:#04x}"),
    };
    format!("/dev/{controller}/{name}")
}

impl AdminFacts {
    /// Asks a controller; `namespace` is the number of the one that is looked at.
    pub(crate) fn read(root: &Root, controller: &str, namespace: u32) -> AdminFacts {
        let node = Node::open(root, controller);
        let data = |query| node.ask(root, query);
        let feature = |id| node.ask(root, Query::Feature { id }).and_then(|bytes| dword(bytes, 0));
        AdminFacts {
            controller: data(Query::IdentifyController).and_then(|bytes| Controller::parse(bytes)),
            namespace: data(Query::IdentifyNamespace { namespace }).and_then(|bytes| Namespace::parse(bytes)),
            smart: data(Query::SmartLog).and_then(|bytes| Smart::parse(bytes)),
            power_state: feature(FEATURE_POWER).map(|value| value & 0x1f),
            write_cache: feature(FEATURE_WRITE_CACHE).map(|value| value & 1 == 1),
            queues: feature(FEATURE_QUEUES).map(|value| ((value & 0xffff) + 1, (value >> 16) + 1)),
            coalescing: feature(FEATURE_COALESCING).map(|value| (value & 0xff, value >> 8 & 0xff)),
            apst: data(Query::Feature { id: FEATURE_APST }).and_then(|bytes| Apst::parse(bytes)),
        }
    }

    pub(crate) fn rows(&self, prefix: &str) -> Vec<FactRow> {
        let mut rows = Rows::new(prefix);
        rows.add("power_states", "Power states", &self.controller, |controller| {
            let show = |state: &PowerState| {
                let kind = if state.is_asleep { "asleep" } else { "awake" };
                format!("{:.2} W {kind}, {} us to leave", state.power_mw as f64 / 1000.0, state.exit_us)
            };
            controller.power_states.iter().map(show).collect::<Vec<_>>().join("; ")
        });
        rows.add("formats", "Block formats (current marked)", &self.namespace, |namespace| {
            let show = |(index, format): (usize, &LbaFormat)| {
                let mark = if index == namespace.current { "*" } else { "" };
                format!("{}+{} B{mark}", format.data_bytes, format.metadata_bytes)
            };
            namespace.formats.iter().enumerate().map(show).collect::<Vec<_>>().join(", ")
        });
        rows.add("temperature", "Temperature", &self.smart, |smart| {
            format!("{} °C", i32::from(smart.kelvin) - 273)
        });
        rows.add("health", "Rated life used, spare left, written", &self.smart, |smart| {
            let written =
                overdrive_base::size::format_size(u64::try_from(smart.written_bytes).unwrap_or(u64::MAX));
            format!("{} %, {} %, {written}", smart.used_percent, smart.spare_percent.0)
        });
        rows.plain("power_state", "Power state", &self.power_state, "");
        rows.yes_no("volatile_cache", "Volatile write cache on", &self.write_cache);
        rows.add("queues_granted", "Queues granted", &self.queues, |(out, back)| format!("{out} and {back}"));
        rows.into_vec()
    }
}

/// The open device node of a controller, or why there is none; captures need none.
struct Node {
    controller: String,
    file: Option<Result<File, std::io::Error>>,
}

impl Node {
    fn open(root: &Root, controller: &str) -> Node {
        let file = root.is_live().then(|| File::open(format!("/dev/{controller}")));
        Node { controller: controller.to_owned(), file }
    }

    /// The answer; of a feature its value in the first four bytes, the data after it.
    fn ask(&self, root: &Root, query: Query) -> Fact<Vec<u8>> {
        let path = path(&self.controller, query);
        let refused = |error: &std::io::Error| {
            let errno = error.raw_os_error();
            Fact::Unreadable {
                path: path.clone(),
                errno,
                why: errno.map_or_else(|| error.to_string(), describe_errno),
            }
        };
        match &self.file {
            None => root.bytes(&path, ANSWER_BYTES + 4),
            Some(Err(error)) => {
                root.keep_bytes(&path, Err(error));
                refused(error)
            }
            Some(Ok(file)) => match nvme::ask(file, query) {
                Err(error) => {
                    root.keep_bytes(&path, Err(&error));
                    refused(&error)
                }
                Ok(answer) => {
                    let mut bytes = Vec::new();
                    if matches!(query, Query::Feature { .. }) {
                        bytes.extend(answer.result.to_le_bytes());
                    }
                    bytes.extend(answer.data);
                    root.keep_bytes(&path, Ok(&bytes));
                    Fact::known(bytes.clone(), show_hex(&bytes), path)
                }
            },
        }
    }
}

fn short(bytes: &[u8]) -> Unexpected {
    Unexpected::new(&format!("{} bytes", bytes.len()), "a longer answer")
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Unexpected> {
    let part = at.checked_add(N).and_then(|end| bytes.get(at..end));
    part.and_then(|part| part.try_into().ok()).ok_or_else(|| short(bytes))
}

fn byte(bytes: &[u8], at: usize) -> Result<u8, Unexpected> {
    field::<1>(bytes, at).map(|[byte]| byte)
}

fn word(bytes: &[u8], at: usize) -> Result<u16, Unexpected> {
    field(bytes, at).map(u16::from_le_bytes)
}

fn dword(bytes: &[u8], at: usize) -> Result<u32, Unexpected> {
    field(bytes, at).map(u32::from_le_bytes)
}

fn wide(bytes: &[u8], at: usize) -> Result<u128, Unexpected> {
    field(bytes, at).map(u128::from_le_bytes)
}

impl Controller {
    /// Reads the 4096 bytes of Identify Controller.
    fn parse(bytes: &[u8]) -> Result<Controller, Unexpected> {
        const STATES_AT: usize = 2048;
        const STATE_BYTES: usize = 32;
        let count = usize::from(byte(bytes, 263)?.min(31)) + 1;
        let states = (0..count).map(|index| PowerState::parse(bytes, STATES_AT + index * STATE_BYTES));
        Ok(Controller {
            transfer_exponent: byte(bytes, 77)?,
            volatile_cache: byte(bytes, 525)? & 1 == 1,
            has_apst: byte(bytes, 265)? & 1 == 1,
            host_memory_wanted: dword(bytes, 272)?,
            warning_kelvin: word(bytes, 266)?,
            critical_kelvin: word(bytes, 268)?,
            power_states: states.collect::<Result<_, _>>()?,
        })
    }
}

impl PowerState {
    fn parse(bytes: &[u8], at: usize) -> Result<PowerState, Unexpected> {
        let flags = byte(bytes, at + 3)?;
        // Power counts in 10 mW, or in 0.1 mW where the first flag is set.
        let power = u64::from(word(bytes, at)?);
        Ok(PowerState {
            power_mw: if flags & 1 == 1 { power / 10 } else { power * 10 },
            is_asleep: flags & 2 == 2,
            entry_us: dword(bytes, at + 4)?,
            exit_us: dword(bytes, at + 8)?,
        })
    }
}

impl Namespace {
    /// Reads the 4096 bytes of Identify Namespace.
    fn parse(bytes: &[u8]) -> Result<Namespace, Unexpected> {
        const FORMATS_AT: usize = 128;
        let count = usize::from(byte(bytes, 25)?.min(63)) + 1;
        let flags = byte(bytes, 26)?;
        // The index has two more bits, above the four first ones.
        let current = usize::from(flags & 0x0f) | usize::from(flags >> 5 & 3) << 4;
        let mut formats = Vec::new();
        for index in 0..count {
            let entry = dword(bytes, FORMATS_AT + index * 4)?;
            let exponent = entry >> 16 & 0xff;
            formats.push(LbaFormat {
                // A format that is not available has exponent 0.
                data_bytes: if (9..=24).contains(&exponent) { 1 << exponent } else { 0 },
                metadata_bytes: entry as u16,
                performance: (entry >> 24 & 3) as u8,
            });
        }
        if current >= formats.len() {
            return Err(Unexpected::new(
                &format!("format {current} of {count}"),
                "one of the formats listed",
            ));
        }
        Ok(Namespace { formats, current })
    }
}

impl Smart {
    /// Reads the 512 bytes of the health log.
    fn parse(bytes: &[u8]) -> Result<Smart, Unexpected> {
        // A unit of data is a thousand blocks of 512 bytes.
        const UNIT_BYTES: u128 = 512_000;
        Ok(Smart {
            critical_warning: byte(bytes, 0)?,
            kelvin: word(bytes, 1)?,
            spare_percent: (byte(bytes, 3)?, byte(bytes, 4)?),
            used_percent: byte(bytes, 5)?,
            written_bytes: wide(bytes, 48)?.saturating_mul(UNIT_BYTES),
            power_on_hours: wide(bytes, 128)?,
            media_errors: wide(bytes, 160)?,
            hot_minutes: (dword(bytes, 192)?, dword(bytes, 196)?),
            throttle_counts: (dword(bytes, 216)?, dword(bytes, 220)?),
        })
    }

    /// The temperature in degrees Celsius.
    #[must_use]
    pub fn celsius(&self) -> i32 {
        i32::from(self.kelvin) - 273
    }
}

impl Apst {
    /// Reads the feature's value and its 256 bytes.
    fn parse(bytes: &[u8]) -> Result<Apst, Unexpected> {
        let enabled = dword(bytes, 0)? & 1 == 1;
        let entries = bytes.get(4..).unwrap_or_default().chunks_exact(8);
        let transitions = entries
            .map(|entry| {
                let state = entry[0] >> 3;
                (state, u32::from_le_bytes([entry[1], entry[2], entry[3], 0]))
            })
            .collect();
        Ok(Apst { enabled, transitions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn put(bytes: &mut [u8], at: usize, part: &[u8]) {
        bytes[at..at + part.len()].copy_from_slice(part);
    }

    #[test]
    fn reads_an_identity_with_its_power_states() {
        let mut page = vec![0; 4096];
        put(&mut page, 263, &[4]);
        put(&mut page, 265, &[1]);
        put(&mut page, 266, &353_u16.to_le_bytes());
        put(&mut page, 272, &16_384_u32.to_le_bytes());
        put(&mut page, 525, &[7]);
        put(&mut page, 2048, &849_u16.to_le_bytes());
        // State 4: 5 mW in units of 0.1 mW, asleep, 2 ms in and 8 ms out.
        let asleep = 2048 + 4 * 32;
        put(&mut page, asleep, &50_u16.to_le_bytes());
        put(&mut page, asleep + 3, &[3]);
        put(&mut page, asleep + 4, &2_000_u32.to_le_bytes());
        put(&mut page, asleep + 8, &8_000_u32.to_le_bytes());
        let controller = Controller::parse(&page).unwrap();
        assert!(controller.volatile_cache && controller.has_apst);
        assert_eq!((controller.host_memory_wanted, controller.warning_kelvin), (16_384, 353));
        assert_eq!(controller.power_states.len(), 5);
        assert_eq!(controller.power_states[0].power_mw, 8_490);
        let deep = controller.power_states[4];
        assert_eq!(deep, PowerState { power_mw: 5, is_asleep: true, entry_us: 2_000, exit_us: 8_000 });
        assert!(Controller::parse(&page[..2100]).is_err(), "a state beyond the end is no state");
    }

    #[test]
    fn reads_block_formats() {
        let mut page = vec![0; 4096];
        put(&mut page, 25, &[1]);
        put(&mut page, 26, &[0]);
        put(&mut page, 128, &[0, 0, 9, 2]);
        put(&mut page, 132, &[8, 0, 12, 1]);
        let namespace = Namespace::parse(&page).unwrap();
        assert_eq!(namespace.formats[0], LbaFormat { data_bytes: 512, metadata_bytes: 0, performance: 2 });
        assert_eq!(namespace.formats[1], LbaFormat { data_bytes: 4096, metadata_bytes: 8, performance: 1 });
        put(&mut page, 26, &[0x21]);
        assert!(Namespace::parse(&page).is_err(), "17 is none of the two");
    }

    #[test]
    fn reads_the_health_log_and_the_sleep_table() {
        let mut log = vec![0; 512];
        put(&mut log, 1, &[0x39, 0x01, 100, 10, 3]);
        put(&mut log, 48, &1_000_u128.to_le_bytes());
        put(&mut log, 216, &7_u32.to_le_bytes());
        let smart = Smart::parse(&log).unwrap();
        assert_eq!((smart.celsius(), smart.spare_percent, smart.used_percent), (40, (100, 10), 3));
        assert_eq!((smart.written_bytes, smart.throttle_counts), (512_000_000, (7, 0)));
        // State 0 falls to state 4 after 100 ms.
        let apst = Apst::parse(&[1, 0, 0, 0, 4 << 3, 100, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        assert_eq!(apst.targets().collect::<Vec<_>>(), [4]);
    }

    #[test]
    fn a_capture_answers_under_the_path_of_the_question() {
        let root = Root::from_capture("/dev/nvme0/feature-0x07 = 1e001e00\n/dev/nvme0/smart-log ! EACCES\n")
            .unwrap();
        let facts = AdminFacts::read(&root, "nvme0", 1);
        assert_eq!(facts.queues.get(), Some((31, 31)));
        assert_eq!(facts.smart.errno(), Some(13));
        assert!(facts.controller.is_absent());
    }

    proptest! {
        #[test]
        fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..4200)) {
            let _ = (Controller::parse(&bytes), Namespace::parse(&bytes), Smart::parse(&bytes), Apst::parse(&bytes));
        }
    }
}
