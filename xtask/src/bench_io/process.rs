//! A child process that ends when we are told to stop: its output is collected, its failure is one line.

use anyhow::{Context, Result, bail};
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Runs `command` to its end and gives back its standard output. Killed when `stop` is set.
pub(super) fn output(command: &mut Command, stop: &AtomicBool) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {name}"))?;
    // Read beside the wait: a full pipe would hold the child up for ever.
    let stdout = collect(child.stdout.take().context("no standard output")?);
    let stderr = collect(child.stderr.take().context("no standard error")?);
    let finished = wait(&mut child, stop)?;
    let text = stdout.join().unwrap_or_default();
    let errors = stderr.join().unwrap_or_default();
    if !finished {
        bail!("stopped while {name} ran");
    }
    let status = child.wait().with_context(|| format!("cannot wait for {name}"))?;
    if !status.success() {
        let last = errors.lines().chain(text.lines()).rfind(|line| !line.trim().is_empty());
        bail!("{name} failed ({status}): {}", last.unwrap_or("it said nothing").trim());
    }
    Ok(text)
}

fn collect(mut from: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is still worth showing.
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Whether the child came to its own end.
fn wait(child: &mut Child, stop: &AtomicBool) -> Result<bool> {
    loop {
        if child.try_wait().context("cannot wait")?.is_some() {
            return Ok(!stop.load(Ordering::Relaxed));
        }
        if stop.load(Ordering::Relaxed) {
            child.kill().context("cannot end the child")?;
            child.wait().context("cannot wait")?;
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn shell(script: &str, stop: bool) -> Result<String> {
        output(Command::new("sh").args(["-c", script]), &AtomicBool::new(stop))
    }

    #[test]
    fn output_is_collected_however_long() {
        assert_eq!(shell("echo a; echo b >&2", false).unwrap(), "a\n");
        let long = shell("i=0; while [ $i -lt 20000 ]; do echo 0123456789; i=$((i+1)); done", false).unwrap();
        assert_eq!(long.len(), 220_000);
    }

    #[test]
    fn a_failure_is_told_with_the_last_word() {
        let error = shell("echo one >&2; echo two >&2; exit 3", false).unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.ends_with("two"), "{error}");
        assert!(shell("exit 1", false).unwrap_err().to_string().ends_with("it said nothing"));
    }

    #[test]
    fn stop_ends_the_child() {
        let began = Instant::now();
        assert!(shell("exec sleep 60", true).is_err());
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
