//! Filling: every key once, a window of requests on the way to each instance. And settling: waiting for
//! answers that a run no longer counts.

use super::LoadError;
use super::LoadSpec;
use crate::connection::{Connection, Pending};
use crate::resp::{Reply, set};
use overdrive_base::rng::Rng;
use overdrive_sys::poll::Poller;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Requests on the way to one instance: enough to keep it busy, little enough to fit its socket's buffer.
const WINDOW: usize = 32;

pub(super) fn fill(
    connections: &mut [Connection],
    spec: &LoadSpec,
    first: usize,
    stop: &AtomicBool,
    done: &AtomicU64,
) -> Result<(), LoadError> {
    let mut poller = Poller::new(connections.len())?;
    let mut next = vec![0u64; connections.len()];
    let mut rngs: Vec<Rng> = Vec::with_capacity(connections.len());
    for (at, connection) in connections.iter().enumerate() {
        poller.add(connection, at as u64)?;
        rngs.push(Rng::for_stream(spec.seed, (first + at) as u64));
    }
    let mut buffer = vec![0; 1 << 16];
    let mut ready: Vec<usize> = (0..connections.len()).collect();
    let mut open = connections.len();
    while open > 0 && !stop.load(Ordering::Relaxed) {
        for &at in &ready {
            let connection = &mut connections[at];
            let fail = |error| LoadError::Instance { instance: first + at, error };
            let (mut answers, mut refusal) = (0, None);
            connection
                .receive(
                    &mut buffer,
                    || 0,
                    |_, reply, _| {
                        answers += 1;
                        if let Reply::Refused(reason) = reply {
                            refusal.get_or_insert(reason);
                        }
                    },
                )
                .map_err(fail)?;
            if let Some(reason) = refusal {
                return Err(LoadError::Refused { instance: first + at, reason });
            }
            done.fetch_add(answers, Ordering::Relaxed);
            while next[at] < spec.records && connection.waiting.len() < WINDOW {
                let pending = Pending { intended_ns: 0, sent_ns: 0, is_get: false };
                let out = connection.queue(pending);
                set(out, next[at], spec.value_bytes, |value| rngs[at].fill(value));
                next[at] += 1;
            }
            connection.flush().map_err(fail)?;
            if answers > 0 && next[at] == spec.records && connection.waiting.is_empty() {
                open -= 1;
            }
        }
        ready.clear();
        poller.wait(Duration::from_millis(100), |one| ready.push(one.token as usize))?;
    }
    Ok(())
}

/// Reads and drops the answers that are still to come; says whether all came.
pub(super) fn settle(
    connections: &mut [Connection],
    patience: Duration,
    stop: &AtomicBool,
) -> Result<bool, LoadError> {
    let mut poller = Poller::new(connections.len())?;
    for (at, connection) in connections.iter().enumerate() {
        poller.add(connection, at as u64)?;
    }
    let (start, mut buffer) = (Instant::now(), vec![0; 1 << 16]);
    while connections.iter().any(|one| !one.waiting.is_empty()) {
        if start.elapsed() > patience || stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        poller.wait(Duration::from_millis(50), |_| {})?;
        for (instance, connection) in connections.iter_mut().enumerate() {
            let fail = |error| LoadError::Instance { instance, error };
            connection.flush().map_err(fail)?;
            connection.receive(&mut buffer, || 0, |_, _, _| {}).map_err(fail)?;
        }
    }
    Ok(true)
}
