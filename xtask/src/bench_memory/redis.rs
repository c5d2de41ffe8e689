//! The Redis cell: a server on swap, on the pager and on the backend swap in turn, the same data, requests at
//! a fixed rate, once it is known which keys are wanted; then the same while a child of it saves all data
//! (BGSAVE), from before it is forked until after it has ended.
//!
//! The loop is open: a request counts from when it was due, so that a stall is felt by all that were due
//! in it. Where a hypervisor gave the processors to others, that is all one sees: at a quiet rate the median
//! of one second after the other counts.

use super::{Bar, Options, SIDES};
use crate::stats::Spread;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(super) const NAME: &str = "redis";

const VALUE_BYTES: usize = 1024;
/// What Redis takes for a value of this size, its key and its place in the table, about.
const BYTES_PER_KEY: u64 = 1200;
const CONNECTIONS: u64 = 4;
const REQUESTS_PER_S: u64 = 4000;
/// Between two requests of one connection.
const BETWEEN: Duration = Duration::from_nanos(1_000_000_000 * CONNECTIONS / REQUESTS_PER_S);
const GET_PERCENT: u64 = 70;
const AVERAGE_MIN: f64 = 2.0;
const P99_MIN: f64 = 5.0;
/// At a quiet rate so many seconds are measured at least.
const QUIET_MIN_S: u64 = 10;
/// In quarters of a second.
const SAVING_MOST: u64 = 400;
/// No two parts ask for the same keys in the same order.
const FIRST_SAVING_SEED: u64 = 3;
const FIRST_QUIET_SEED: u64 = SAVING_MOST;
/// What is in swap comes back first.
const ENDS_WITHIN: Duration = Duration::from_secs(60);
/// While all is saved nothing is promised but that it is no worse.
const SAVING_MIN: f64 = 1.0;

#[derive(Debug, Clone, Copy)]
struct Latency {
    mean_us: f64,
    p99_us: f64,
    max_us: f64,
}

impl Latency {
    /// Of latencies in nanoseconds, sorted.
    fn of(latencies: &[u64]) -> Self {
        let at = |index: usize| latencies.get(index).copied().unwrap_or(0) as f64 / 1e3;
        Self {
            mean_us: latencies.iter().sum::<u64>() as f64 / latencies.len().max(1) as f64 / 1e3,
            p99_us: at(latencies.len() * 99 / 100),
            max_us: at(latencies.len().saturating_sub(1)),
        }
    }

    /// The median of several, of their maxima the largest.
    fn typical(of: &[Self]) -> Self {
        let median = |figure: fn(&Self) -> f64| Spread::of(of.iter().map(figure)).median;
        let max_us = of.iter().map(|one| one.max_us).fold(0.0, f64::max);
        Self { mean_us: median(|one| one.mean_us), p99_us: median(|one| one.p99_us), max_us }
    }

    fn show(&self) -> String {
        format!("mean {:>6.0} us  p99 {:>7.0} us  max {:>7.0} us", self.mean_us, self.p99_us, self.max_us)
    }
}

/// What one server did.
#[derive(Debug, Clone, Copy)]
struct Served {
    quiet: Latency,
    saving: Latency,
    /// The most DRAM it was seen to have then with its child, in MiB.
    saving_mib: u64,
    /// How long that took, or was looked at.
    saving_s: f64,
}

type Figure = fn(&Served) -> f64;

impl Served {
    fn show(&self, side: &str) {
        println!("  {side:<12} {}", self.quiet.show());
        let Self { saving, saving_mib, saving_s, .. } = self;
        println!("  {:>12} {}  {saving_s:.1} s  DRAM {saving_mib} MiB", "saving", saving.show());
    }
}

/// The backend swap without all that is more than the kernel's swap alone.
const PLAIN_SWAP: [&str; 4] = ["swap", "--no-room-ahead", "--fill-gaps", "--no-gather"];

/// A server that needs no more than DRAM: what the others can come close to.
const IN_DRAM: &str = "dram";

/// All sides in turn, as often as asked for; nothing when Redis is not installed.
pub(super) fn measure(options: &Options, stop: &AtomicBool) -> Result<Vec<Bar>> {
    if Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("\n{NAME}: redis-server is not installed (make setup installs it); not measured");
        return Ok(Vec::new());
    }
    println!(
        "\n{NAME}: {VALUE_BYTES} B values, data 2 x DRAM, Gaussian keys, {GET_PERCENT} % gets, {REQUESTS_PER_S} requests a second"
    );
    // A thread that sleeps until a request is due shall not oversleep by the usual 50 us; where that cannot
    // be had, all sides get the same on top.
    let _ = std::fs::write("/proc/self/timerslack_ns", "1");
    serve(options, IN_DRAM)?.show(IN_DRAM);
    let mut sides: [Vec<Served>; 3] = Default::default();
    for repeat in 0..options.repeats {
        let mut order = [0, 1, 2];
        order.rotate_left(repeat % 3);
        for side in order {
            if stop.load(Ordering::Relaxed) {
                bail!("stopped");
            }
            let name = SIDES[side];
            let served = serve(options, name).with_context(|| format!("redis on {name}"))?;
            served.show(name);
            sides[side].push(served);
        }
    }
    let [swap, extend, ahead] = &sides;
    let mut bars = judge("extend", swap, extend);
    bars.extend(judge("swap-backend", swap, ahead));
    Ok(bars)
}

/// One side against swap. While it saved it is compared only if it made do with as much DRAM.
fn judge(name: &str, swap: &[Served], other: &[Served]) -> Vec<Bar> {
    let quiet: [(&str, f64, Figure); 2] = [
        ("average", AVERAGE_MIN, |served| served.quiet.mean_us),
        ("p99", P99_MIN, |served| served.quiet.p99_us),
    ];
    let saving: [(&str, f64, Figure); 4] = [
        ("saving-average", SAVING_MIN, |served| served.saving.mean_us),
        ("saving-p99", SAVING_MIN, |served| served.saving.p99_us),
        ("saving-max", SAVING_MIN, |served| served.saving.max_us),
        ("saving-time", SAVING_MIN, |served| served.saving_s),
    ];
    let most_mib = |side: &[Served]| side.iter().map(|served| served.saving_mib).max().unwrap_or(0);
    let is_fair = most_mib(other) <= most_mib(swap) + most_mib(swap) / 10;
    if !is_fair {
        println!("  {name} had more DRAM than swap while it saved: not compared then");
    }
    let figures = quiet.into_iter().chain(saving.into_iter().filter(|_| is_fair));
    let bar = |(what, limit, figure): (&str, f64, Figure)| {
        let ratios = swap.iter().zip(other).map(|(swap, other)| figure(swap) / figure(other));
        let value = Spread::of(ratios).median;
        Bar { name: format!("memory-{NAME}-{what}-swap-vs-{name}"), value, limit }
    };
    figures.map(bar).collect()
}

/// One server, filled, warmed, measured, ended.
fn serve(options: &Options, side: &str) -> Result<Served> {
    let server = Server::start(options, side)?;
    let keys = options.set_mib * (1 << 20) / BYTES_PER_KEY;
    fill(&server.socket, keys)?;
    // As many as there are keys, as fast as it goes: which of them are wanted is known then.
    load(&server.socket, keys, keys / CONNECTIONS, None, 1)?;
    let seconds = (0..options.runtime_s.max(QUIET_MIN_S)).map(|second| {
        let seed = FIRST_QUIET_SEED + second;
        load(&server.socket, keys, REQUESTS_PER_S / CONNECTIONS, Some(BETWEEN), seed)
            .map(|all| Latency::of(&all))
    });
    let quiet = Latency::typical(&seconds.collect::<Result<Vec<_>>>()?);
    let (mut saving, mut saving_mib, mut saving_s) = (Vec::new(), 0, 0.0);
    let began = Instant::now();
    Connection::open(&server.socket)?.ask(&[b"BGSAVE"])?;
    // A part of a second at a time, and one more after the child has ended.
    for seed in FIRST_SAVING_SEED..SAVING_MOST {
        let is_over = !server.is_saving()?;
        saving_s = began.elapsed().as_secs_f64();
        saving_mib = saving_mib.max(server.dram_mib()?);
        saving.extend(load(&server.socket, keys, REQUESTS_PER_S / CONNECTIONS / 4, Some(BETWEEN), seed)?);
        if is_over {
            break;
        }
        if seed + 1 == SAVING_MOST {
            println!("  {side:<12} saving takes more than {} s: measured until then", SAVING_MOST / 4);
        }
    }
    saving.sort_unstable();
    server.end()?;
    Ok(Served { quiet, saving: Latency::of(&saving), saving_mib, saving_s })
}

/// A server of redis under `overdrive extend`; ended when dropped.
struct Server {
    child: Child,
    socket: PathBuf,
    dump: PathBuf,
}

fn dump_name() -> String {
    format!("overdrive-bench-{}.rdb", std::process::id())
}

impl Server {
    fn start(options: &Options, side: &str) -> Result<Self> {
        let socket = std::env::temp_dir().join(format!("overdrive-bench-{}.socket", std::process::id()));
        let mut command = Command::new(&options.overdrive);
        let (backend, dram_mib): (&[&str], u64) = match side {
            IN_DRAM => (&PLAIN_SWAP, options.set_mib * 2),
            "swap" => (&PLAIN_SWAP, options.set_mib / 2),
            "extend" => (&["pager"], options.set_mib / 2),
            _ => (&["swap"], options.set_mib / 2),
        };
        command.args(["extend", "--quiet", "--backend"]).args(backend).arg("--dram");
        command.arg(format!("{dram_mib}MiB")).arg("--store");
        command.arg(format!("{}:{}MiB", options.dir.display(), options.set_mib * 3));
        command.args(["--", "redis-server", "--port", "0", "--save", "", "--appendonly", "no", "--dir"]);
        command.arg(&options.dir).arg("--dbfilename").arg(dump_name()).arg("--unixsocket");
        let child = command.arg(&socket).stdout(Stdio::null()).spawn().context("starting it")?;
        let server = Self { child, socket, dump: options.dir.join(dump_name()) };
        let start = Instant::now();
        while UnixStream::connect(&server.socket).is_err() {
            if start.elapsed() > Duration::from_secs(30) {
                bail!("it does not listen");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Whether its child has yet to end, which must end well.
    fn is_saving(&self) -> Result<bool> {
        let told = Connection::open(&self.socket)?.ask(&[b"INFO", b"persistence"])?;
        let has = |line: &str| told.lines().any(|other| other == line);
        if !has("rdb_last_bgsave_status:ok") {
            bail!("saving failed");
        }
        Ok(has("rdb_bgsave_in_progress:1"))
    }

    /// The DRAM that it has with its children, what they share counted once.
    fn dram_mib(&self) -> Result<u64> {
        let told = Connection::open(&self.socket)?.ask(&[b"INFO", b"server"])?;
        let own = told.lines().find_map(|line| line.strip_prefix("process_id:"));
        let own = own.context("redis does not tell its process")?;
        let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children"))?;
        let share_kib = |process: &str| {
            // A child may end meanwhile.
            let rollup = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap_or_default();
            let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
            line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        Ok(children.split_ascii_whitespace().chain([own]).map(share_kib).sum::<u64>() / 1024)
    }

    fn end(mut self) -> Result<()> {
        UnixStream::connect(&self.socket)?.write_all(&request(&[b"SHUTDOWN", b"NOSAVE"]))?;
        let status = self.child.wait()?;
        if !status.success() {
            bail!("it ended with {status}");
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let asked = Instant::now();
        let runs = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        if runs(&mut self.child) {
            // Killed, it would leave its swap area behind.
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
        while runs(&mut self.child) && asked.elapsed() < ENDS_WITHIN {
            std::thread::sleep(Duration::from_millis(20));
        }
        if runs(&mut self.child) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        let _ = std::fs::remove_file(&self.socket);
        let _ = std::fs::remove_file(&self.dump);
    }
}

/// Sets every key once, a batch at a time.
fn fill(socket: &Path, keys: u64) -> Result<()> {
    let mut connection = Connection::open(socket)?;
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for batch in (0..keys).step_by(64) {
        let batch = batch..(batch + 64).min(keys);
        let mut text = Vec::new();
        for key in batch.clone() {
            text.extend(request(&[b"SET", format!("key:{key}").as_bytes(), &random.value()]));
        }
        connection.stream.write_all(&text)?;
        batch.clone().try_for_each(|_| connection.answer().map(drop))?;
    }
    Ok(())
}

/// `each` requests by each connection, the time `between` two of one, or as fast as they are answered;
/// latencies in nanoseconds, sorted.
fn load(socket: &Path, keys: u64, each: u64, between: Option<Duration>, seed: u64) -> Result<Vec<u64>> {
    let start = Instant::now() + Duration::from_millis(20);
    let workers: Vec<_> = (0..CONNECTIONS)
        .map(|worker| {
            let socket = socket.to_path_buf();
            std::thread::spawn(move || -> Result<Vec<u64>> {
                let mut connection = Connection::open(&socket)?;
                let mut random = Random(seed << 32 | (worker + 1) << 8 | 1);
                let mut latencies = Vec::with_capacity(each as usize);
                for number in 0..each {
                    let due = between.map_or_else(Instant::now, |between| {
                        start + between * number as u32 + between * worker as u32 / CONNECTIONS as u32
                    });
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    let key = format!("key:{}", random.gaussian(keys));
                    let is_get = random.next() % 100 < GET_PERCENT;
                    let text = match is_get {
                        true => request(&[b"GET", key.as_bytes()]),
                        false => request(&[b"SET", key.as_bytes(), &random.value()]),
                    };
                    connection.stream.write_all(&text)?;
                    connection.answer()?;
                    latencies.push(due.elapsed().as_nanos() as u64);
                }
                Ok(latencies)
            })
        })
        .collect();
    let mut all = Vec::new();
    for worker in workers {
        let Ok(latencies) = worker.join() else { bail!("a connection's thread failed") };
        all.extend(latencies?);
    }
    all.sort_unstable();
    Ok(all)
}

/// A request in Redis' protocol.
fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut text = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        text.extend(format!("${}\r\n", word.len()).bytes());
        text.extend(*word);
        text.extend(b"\r\n");
    }
    text
}

struct Connection {
    stream: UnixStream,
    answers: BufReader<UnixStream>,
}

impl Connection {
    fn open(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let answers = BufReader::new(stream.try_clone()?);
        Ok(Self { stream, answers })
    }

    /// Asks something and gives the answer.
    fn ask(&mut self, words: &[&[u8]]) -> Result<String> {
        self.stream.write_all(&request(words))?;
        let answer = self.answer()?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// Reads one answer; an error or a key that is not there ends the run.
    fn answer(&mut self) -> Result<Vec<u8>> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        match line.split_at_checked(1) {
            Some(("+", text)) => Ok(text.into()),
            Some(("$", length)) => {
                let length: i64 = length.trim().parse().context("a length in an answer")?;
                let bytes = usize::try_from(length).context("a key that was set is not there")?;
                let mut value = vec![0; bytes + 2];
                self.answers.read_exact(&mut value)?;
                Ok(value)
            }
            _ => bail!("redis answers {line:?}"),
        }
    }
}

/// Marsaglia's xorshift: the same requests on both sides.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Around the middle, a twelfth wide, as in the page cells; what falls outside is drawn again.
    fn gaussian(&mut self, keys: u64) -> u64 {
        loop {
            let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
            let value = radius * (self.unit() * std::f64::consts::TAU).cos();
            let key = keys as f64 * (0.5 + value / 12.0);
            if key >= 0.0 && key < keys as f64 {
                return key as u64;
            }
        }
    }

    fn value(&mut self) -> Vec<u8> {
        (0..VALUE_BYTES / 8).flat_map(|_| self.next().to_le_bytes()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_as_redis_wants_them() {
        assert_eq!(request(&[b"GET", b"key:1"]), b"*2\r\n$3\r\nGET\r\n$5\r\nkey:1\r\n");
    }

    #[test]
    fn who_had_more_dram_while_it_saved_is_not_compared_then() {
        let served = |us: f64, saving_mib| {
            let latency = Latency { mean_us: us, p99_us: us, max_us: us };
            Served { quiet: latency, saving: latency, saving_mib, saving_s: us / 5.0 }
        };
        let swap = [served(100.0, 250), served(100.0, 260)];
        let lines = |other: &[Served]| judge("x", &swap, other).iter().map(Bar::line).collect::<Vec<_>>();
        assert_eq!(lines(&[served(10.0, 100), served(10.0, 287)]).len(), 2);
        let fair = lines(&[served(10.0, 100), served(10.0, 286)]);
        assert_eq!(fair.len(), 6);
        assert_eq!(fair[5], "bar memory-redis-saving-time-swap-vs-x 10.000 >= 1.00 ok");
        assert_eq!(fair[4], "bar memory-redis-saving-max-swap-vs-x 10.000 >= 1.00 ok");
    }

    #[test]
    fn keys_lie_around_the_middle() {
        let mut random = Random(7);
        let keys: Vec<u64> = (0..10_000).map(|_| random.gaussian(1200)).collect();
        let mean = keys.iter().sum::<u64>() as f64 / 10_000.0;
        let within = keys.iter().filter(|&&key| key.abs_diff(600) <= 100).count();
        assert!((mean - 600.0).abs() < 10.0 && (6_500..7_200).contains(&within), "{mean} {within}");
        assert_eq!(random.value().len(), VALUE_BYTES);
    }
}
