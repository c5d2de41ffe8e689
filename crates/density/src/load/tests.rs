//! The load on servers with known delays: rates, stalls, overload, refusals. No Redis is needed.

use super::*;
use crate::connection::Endpoint;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Instant;

/// A server of our own with known delays: SET and GET on a map, one connection.
struct Fake {
    folder: tempfile::TempDir,
}

/// How the fake behaves.
#[derive(Clone, Copy, Default)]
struct Manner {
    /// Before every answer.
    delay: Duration,
    /// Once, this long after the first GET or SET of a run with GETs.
    stall: Option<(Duration, Duration)>,
    /// Answers SETs like a Redis without memory.
    full: bool,
}

impl Fake {
    fn start(manner: Manner) -> (Self, Connection) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || serve(listener.accept().unwrap().0, manner));
        let endpoint = Endpoint::Unix(path);
        let connection = Connection::open(&endpoint, Duration::from_secs(5), || None).unwrap();
        (Self { folder }, connection)
    }
}

fn serve(stream: UnixStream, manner: Manner) {
    let mut out = stream.try_clone().unwrap();
    let mut input = BufReader::new(stream);
    let mut store: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
    let mut first_get: Option<Instant> = None;
    let mut stalled = false;
    while let Some(words) = request(&mut input) {
        if words[0] == b"GET" {
            first_get.get_or_insert_with(Instant::now);
        }
        if let (Some((after, length)), Some(start), false) = (manner.stall, first_get, stalled)
            && start.elapsed() >= after
        {
            stalled = true;
            std::thread::sleep(length);
        }
        if !manner.delay.is_zero() {
            std::thread::sleep(manner.delay);
        }
        let answer = match words[0].as_slice() {
            b"PING" => b"+PONG\r\n".to_vec(),
            b"SET" if manner.full => b"-OOM command not allowed\r\n".to_vec(),
            b"SET" => {
                store.insert(words[1].clone(), words[2].clone());
                b"+OK\r\n".to_vec()
            }
            _ => match store.get(&words[1]) {
                Some(value) => [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat(),
                None => b"$-1\r\n".to_vec(),
            },
        };
        if out.write_all(&answer).is_err() {
            return;
        }
    }
}

fn request(input: &mut impl BufRead) -> Option<Vec<Vec<u8>>> {
    let number = |line: &str| line.trim()[1..].parse::<usize>().unwrap();
    let mut line = String::new();
    if input.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let mut words = Vec::new();
    for _ in 0..number(&line) {
        line.clear();
        input.read_line(&mut line).ok()?;
        let mut word = vec![0; number(&line) + 2];
        input.read_exact(&mut word).ok()?;
        word.truncate(word.len() - 2);
        words.push(word);
    }
    Some(words)
}

fn spec() -> LoadSpec {
    LoadSpec {
        records: 500,
        value_bytes: 100,
        rate_per_s: 1000.0,
        get_percent: 70,
        influence: 10.0,
        seed: 1,
        threads: 1,
        spin: Duration::ZERO,
    }
}

fn never() -> AtomicBool {
    AtomicBool::new(false)
}

#[test]
fn nothing_is_sent_before_the_start() {
    // The first request of the first instance is due at the start itself, 5 ms after the threads began.
    let (fake, connection) = Fake::start(Manner::default());
    let mut connections = [connection];
    let spec = LoadSpec { records: 20, spin: Duration::from_millis(20), ..spec() };
    fill(&mut connections, &spec, &never(), &mut |_| {}).unwrap();
    let measured = run(&mut connections, &spec, Duration::from_millis(20), 1, &never(), &mut |_| {}).unwrap();
    let least = measured.served[0].latency.min().unwrap();
    assert!(least > 0 && measured.service.min() > Some(0), "an answer takes time: {least} ns");
    drop(fake);
}

#[test]
fn a_run_ends_with_its_window_whatever_is_due_later() {
    let (fake, connection) = Fake::start(Manner::default());
    let mut connections = [connection];
    let spec = LoadSpec { records: 20, rate_per_s: 0.1, ..spec() };
    fill(&mut connections, &spec, &never(), &mut |_| {}).unwrap();
    let began = Instant::now();
    let window = Duration::from_millis(50);
    let measured = run(&mut connections, &spec, window, 1, &never(), &mut |_| {}).unwrap();
    // The second request is due after ten seconds.
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!((measured.served[0].answered, measured.window_ns), (1, 50_000_000));
    drop(fake);
}

#[test]
fn the_rate_is_kept_whatever_the_server_does() {
    // Two threads, three servers, one of them slower than its requests come.
    let slow = Manner { delay: Duration::from_millis(2), ..Manner::default() };
    let (fakes, mut connections): (Vec<_>, Vec<_>) =
        [Manner::default(), slow, Manner::default()].map(Fake::start).into_iter().unzip();
    let spec = LoadSpec { threads: 2, ..spec() };
    fill(&mut connections, &LoadSpec { records: 20, ..spec.clone() }, &never(), &mut |_| {}).unwrap();
    let spec = LoadSpec { records: 20, ..spec };
    let measured = run(&mut connections, &spec, Duration::from_secs(1), 1, &never(), &mut |_| {}).unwrap();
    for served in &measured.served {
        assert!(served.due.abs_diff(1000) <= 1, "{}", served.due);
        assert_eq!(served.answered + served.unanswered, served.due);
        assert_eq!(served.latency.count(), served.due);
        assert_eq!(served.errors, 0, "{:?}", measured.first_error);
    }
    assert!((measured.sent_per_s() / 3000.0 - 1.0).abs() < 0.005, "{}", measured.sent_per_s());
    let share = measured.gets.count() as f64 / measured.fleet().count() as f64;
    assert!((share - 0.7).abs() < 0.05, "{share}");
    // Half the requests of the slow one queue up; the last to be answered waited for about as long as the
    // run.
    let slow = measured.served[1].latency.value_at(0.9).unwrap();
    assert!(slow > 500_000_000, "{slow}");
    assert!(measured.answered_per_s() < 2900.0);
    assert_eq!(fakes.len(), 3);
}

#[test]
fn a_stall_is_charged_to_every_request_it_held_up() {
    // A busy machine stalls on its own too: then it is tried again.
    let mut seen = Vec::new();
    while !seen.last().is_some_and(|long| (90..=115).contains(long)) {
        assert!(seen.len() < 20, "{seen:?}");
        seen.push(charged_to_a_stall());
    }
}

/// How many requests waited longer than half of a stall.
fn charged_to_a_stall() -> u64 {
    let stall = Some((Duration::from_millis(100), Duration::from_millis(200)));
    let (fake, connection) = Fake::start(Manner { stall, ..Manner::default() });
    let mut connections = [connection];
    fill(&mut connections, &spec(), &never(), &mut |_| {}).unwrap();
    let measured =
        run(&mut connections, &spec(), Duration::from_millis(600), 1, &never(), &mut |_| {}).unwrap();
    // 1000 a second for 200 ms: 200 requests wait, evenly between 0 and 200 ms; half of them longer than 100.
    let long: u64 =
        measured.served[0].latency.buckets().filter(|one| one.low > 100_000_000).map(|one| one.count).sum();
    // A loop that waits for an answer before it sends would have seen one.
    assert!(measured.served[0].latency.max().unwrap() >= 195_000_000);
    drop(fake.folder);
    long
}

#[test]
fn a_server_that_falls_too_far_behind_ends_the_run() {
    let (_fake, connection) = Fake::start(Manner { delay: Duration::from_millis(300), ..Manner::default() });
    let mut connections = [connection];
    let start = Instant::now();
    let measured = run(&mut connections, &spec(), Duration::from_secs(60), 1, &never(), &mut |_| {}).unwrap();
    assert!(measured.overloaded && start.elapsed() < Duration::from_secs(20));
    assert!(measured.served[0].unanswered > 1000);
    assert!(measured.served[0].latency.max().unwrap() >= 2_000_000_000);
    assert!(!settle(&mut connections, Duration::from_millis(100), &never()).unwrap());
}

#[test]
fn what_is_wrong_is_counted_or_told() {
    let (_fake, connection) = Fake::start(Manner::default());
    let mut connections = [connection];
    // Nothing was filled: every GET misses until a SET has been there.
    let measured =
        run(&mut connections, &spec(), Duration::from_millis(200), 1, &never(), &mut |_| {}).unwrap();
    assert!(measured.served[0].errors > 50);
    assert_eq!(measured.first_error.as_deref(), Some("a key is missing"));
    assert!(settle(&mut connections, Duration::from_secs(5), &never()).unwrap());
    let (_full, connection) = Fake::start(Manner { full: true, ..Manner::default() });
    let error = fill(&mut [connection], &spec(), &never(), &mut |_| {}).unwrap_err();
    assert_eq!(error.to_string(), "instance 0 refused a value: OOM command not allowed");
}

#[test]
fn a_run_is_as_long_as_its_longest_part() {
    let part = |window_ns, answered_in_window| Measured {
        served: vec![Served { due: answered_in_window, ..Served::default() }],
        window_ns,
        answered_in_window,
        ..Measured::default()
    };
    // One thread fell behind and gave up after a second; the other went on.
    let measured =
        together(vec![part(1_000_000_000, 100), part(10_000_000_000, 1000)], Duration::from_secs(10));
    assert_eq!((measured.window_ns, measured.served.len()), (10_000_000_000, 2));
    assert!((measured.answered_per_s() - 110.0).abs() < 1e-9);
    assert_eq!(together(Vec::new(), Duration::from_secs(1)).window_ns, 1_000_000_000);
}

#[test]
fn a_wish_to_stop_is_heard() {
    let (_fake, connection) = Fake::start(Manner::default());
    let (mut connections, start) = ([connection], Instant::now());
    let stop = never();
    let mut tick = |_| stop.store(true, Ordering::Relaxed);
    let measured = run(&mut connections, &spec(), Duration::from_secs(60), 1, &stop, &mut tick).unwrap();
    assert!(measured.stopped && start.elapsed() < Duration::from_secs(10));
    assert!(measured.window_ns < 5_000_000_000);
}

#[test]
fn nobody_there_is_told_with_its_place() {
    let endpoint = Endpoint::Unix("/no/such/socket".into());
    let error = Connection::open(&endpoint, Duration::ZERO, || None).unwrap_err().to_string();
    assert!(error.contains("/no/such/socket"), "{error}");
    let gone = Connection::open(&endpoint, Duration::from_secs(60), || Some("it ended".to_owned()));
    assert_eq!(gone.unwrap_err().to_string(), "it ended");
}
