//! One boot: the command line for QEMU, the line to the guest, the time limit.
//!
//! The guest's second serial port is QEMU's standard output here. Its lines are the scenario's output, but
//! for those that begin with `@`: `@monitor COMMAND` asks for a command of QEMU's monitor, `@end CODE` is the
//! script's exit code. Without acceleration by the processor: the same everywhere, and KVM is often missing
//! where tests run.

use super::packages::Kernel;
use super::progress::Progress;
use super::scenario::Scenario;
use anyhow::{Context, Result, bail};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// QEMU's program for this guest.
pub(super) const PROGRAM: &str = "qemu-system-x86_64";

/// How long a guest may take to power off after its script has ended.
const FAREWELL: Duration = Duration::from_secs(10);

/// What the guest's kernel says when one of its CPUs hangs.
const STALLED: [&str; 2] = ["stall on CPU", "stalls on CPU"];

/// How long a guest whose kernel said so may be silent before it is given up.
const SILENCE_MAX: Duration = Duration::from_secs(150);

/// What a boot gave.
#[derive(Debug, Default)]
pub(super) struct Ran {
    /// The scenario's output.
    pub(super) output: Vec<String>,
    /// What the kernel said on its console.
    pub(super) console: String,
    /// The script's exit code; none when the guest did not get to its end.
    pub(super) code: Option<i32>,
    /// Why there is no exit code.
    pub(super) why: Option<String>,
    /// Its kernel stalled and did not go on: the emulator's fault, not what was tested.
    pub(super) has_stalled: bool,
}

/// A folder for one boot, removed with everything in it.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn make(name: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("overdrive-vm-{}-{name}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("vm: cannot remove {}: {error}", self.0.display());
        }
    }
}

/// A child that does not outlive this value.
#[derive(Debug)]
struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Boots `scenario` on `kernel` with `initramfs`, until it powers off, its time is up, or `stop` is set.
pub(super) fn boot(kernel: &Kernel, scenario: &Scenario, initramfs: &[u8], stop: &AtomicBool) -> Result<Ran> {
    let folder = Folder::make(&format!("{}-{}", scenario.name, kernel.series))?;
    let place = |name: &str| folder.0.join(name);
    fs::write(place("initramfs"), initramfs).context("cannot write the initial file system")?;
    for drive in &scenario.drives {
        let image = place(&drive.id);
        fill(&image, drive.size_mib, drive.written)
            .with_context(|| format!("cannot write {}", image.display()))?;
    }
    let mut child = Command::new(PROGRAM)
        .args(arguments(kernel, scenario, &folder.0))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(fs::File::create(place("errors")).context("cannot make a file for QEMU's errors")?)
        .spawn()
        .with_context(|| format!("cannot start {PROGRAM}"))?;
    let line = child.stdout.take().context("QEMU has no output")?;
    let guest = Guest(child);
    let mut ran = Ran::default();
    let text = |name: &str| fs::read(place(name)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let is_stalled = || text("console").is_ok_and(|said| STALLED.iter().any(|words| said.contains(words)));
    let mut progress = Progress::of(guest.0.id());
    let look = &mut || progress.look();
    follow(&lines_of(line), scenario.limit, look, &place("monitor"), stop, &is_stalled, &mut ran)?;
    drop(guest);
    ran.has_stalled = ran.code.is_none() && is_stalled();
    ran.console = text("console").unwrap_or_default();
    if ran.code.is_none() && ran.why.is_none() {
        let errors = text("errors").unwrap_or_default();
        let last = errors.lines().last().unwrap_or("the guest powered off before the script's end");
        ran.why = Some(last.to_owned());
    }
    Ok(ran)
}

/// Reads the guest's lines until it is gone. `look` tells how long the guest has run since it was last asked;
/// the limits count that.
fn follow(
    lines: &Receiver<String>,
    limit: Duration,
    look: &mut dyn FnMut() -> Duration,
    monitor: &Path,
    stop: &AtomicBool,
    is_stalled: &dyn Fn() -> bool,
    ran: &mut Ran,
) -> Result<()> {
    let (mut left, mut silent) = (limit, Duration::ZERO);
    loop {
        if stop.load(Ordering::Relaxed) {
            bail!("stopped");
        }
        let passed = look();
        left = left.saturating_sub(passed);
        silent += passed;
        if left.is_zero() {
            if ran.code.is_none() {
                ran.why = Some(format!("not done after {} s of its own", limit.as_secs()));
            }
            return Ok(());
        }
        match lines.recv_timeout(Duration::from_millis(100)) {
            Ok(line) => {
                silent = Duration::ZERO;
                match line.strip_prefix('@').map(|order| order.split_once(' ').unwrap_or((order, ""))) {
                    Some(("end", code)) => {
                        ran.code = code.trim().parse().ok();
                        left = left.min(FAREWELL);
                    }
                    Some(("monitor", command)) => tell(monitor, command)?,
                    _ => ran.output.push(line),
                }
            }
            Err(RecvTimeoutError::Timeout) if silent > SILENCE_MAX => {
                if is_stalled() {
                    ran.why = Some("the guest's kernel stalled".to_owned());
                    return Ok(());
                }
                silent = Duration::ZERO;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// Gives QEMU's monitor one command and waits until it has been carried out: a connection that is closed too
/// early takes its command with it.
fn tell(monitor: &Path, command: &str) -> Result<()> {
    let mut stream = UnixStream::connect(monitor).context("cannot reach QEMU's monitor")?;
    stream.set_read_timeout(Some(FAREWELL)).context("cannot set a time limit for QEMU's monitor")?;
    await_prompt(&mut stream)?;
    stream.write_all(format!("{command}\n").as_bytes()).context("cannot write to QEMU's monitor")?;
    let answer = await_prompt(&mut stream)?;
    // The monitor repeats what it was told, with codes for a terminal, and says more only when something is
    // wrong.
    match answer.lines().skip(1).find(|line| line.contains("Error")) {
        Some(error) => bail!("QEMU's monitor refuses '{command}': {}", error.trim()),
        None => Ok(()),
    }
}

/// Reads up to and with the monitor's next prompt.
fn await_prompt(stream: &mut impl Read) -> Result<String> {
    let mut said = Vec::new();
    let mut byte = [0];
    while !said.ends_with(b"(qemu) ") {
        if stream.read(&mut byte).context("cannot read QEMU's monitor")? == 0 {
            bail!("QEMU's monitor hung up");
        }
        said.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&said).into_owned())
}

/// The lines of the guest, read by a thread of their own so that waiting for one can end.
fn lines_of(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// The image of a drive: sparse, or full of random numbers.
fn fill(image: &Path, size_mib: u64, written: bool) -> Result<()> {
    let mut file = fs::File::create(image)?;
    file.set_len(size_mib << 20)?;
    if written {
        let random = fs::File::open("/dev/urandom")?;
        std::io::copy(&mut random.take(size_mib << 20), &mut file)?;
    }
    Ok(())
}

fn arguments(kernel: &Kernel, scenario: &Scenario, folder: &Path) -> Vec<String> {
    let place = |name: &str| folder.join(name).display().to_string();
    let mut all: Vec<String> = Vec::new();
    let mut add = |words: &[&str]| all.extend(words.iter().map(|&word| word.to_owned()));
    add(&["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    // The guest's CPUs take turns on one thread: side by side one of them hangs now and then, when the
    // guest's kernel rewrites its own code.
    add(&["-machine", "q35", "-accel", "tcg,thread=single"]);
    match scenario.counted {
        // Idle time passes at once.
        true => add(&["-cpu", "max,+invtsc", "-icount", "shift=0,sleep=off"]),
        false => add(&["-cpu", "max"]),
    }
    add(&["-kernel", &kernel.image.display().to_string(), "-initrd", &place("initramfs")]);
    add(&["-append", &command_line(scenario)]);
    add(&["-serial", &format!("file:{}", place("console"))]);
    add(&["-chardev", "stdio,id=line,signal=off", "-serial", "chardev:line"]);
    add(&["-monitor", &format!("unix:{},server=on,wait=off", place("monitor"))]);
    add(&[
        "-smp",
        &format!(
            "{cpus},sockets={},cores={}",
            scenario.nodes,
            scenario.cpus / scenario.nodes,
            cpus = scenario.cpus
        ),
    ]);
    add(&["-m", &format!("{}M", scenario.memory_mib)]);
    if scenario.nodes > 1 {
        let (cpus, memory) = (scenario.cpus / scenario.nodes, scenario.memory_mib / scenario.nodes);
        for node in 0..scenario.nodes {
            let (first, last) = (node * cpus, (node + 1) * cpus - 1);
            add(&["-object", &format!("memory-backend-ram,id=memory{node},size={memory}M")]);
            add(&["-numa", &format!("node,nodeid={node},cpus={first}-{last},memdev=memory{node}")]);
        }
    }
    for device in &scenario.devices {
        add(&["-device", device]);
    }
    for drive in &scenario.drives {
        let id = &drive.id;
        let properties: String = drive.properties.iter().map(|property| format!(",{property}")).collect();
        add(&["-drive", &format!("if=none,id=image-{id},format=raw,cache=unsafe,file={}", place(id))]);
        add(&["-device", &format!("nvme,id={id},serial={id},drive=image-{id}{properties}")]);
    }
    all
}

fn command_line(scenario: &Scenario) -> String {
    // A kernel that panics restarts at once, which QEMU takes for its end (-no-reboot). On a busy host an
    // emulated timer is late, which the kernel would take for a broken one, and a pause of the host for a
    // CPU that hangs, which taints it.
    let fixed = ["console=ttyS0", "loglevel=6", "panic=-1", "no_timer_check", "nosoftlockup", "rdinit=/init"];
    let words: Vec<&str> = fixed.into_iter().chain(scenario.boot.iter().map(String::as_str)).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow_text(text: &str) -> Ran {
        let mut ran = Ran::default();
        let lines = lines_of(std::io::Cursor::new(text.to_owned()));
        let (limit, look) = (Duration::from_secs(5), &mut || Duration::ZERO);
        follow(&lines, limit, look, Path::new("/none"), &AtomicBool::new(false), &|| false, &mut ran)
            .unwrap();
        ran
    }

    #[test]
    fn output_and_exit_code_come_back() {
        let ran = follow_text("ok one\r\nnot ok two\n@end 1\n");
        assert_eq!(ran.output, ["ok one", "not ok two"]);
        assert_eq!((ran.code, ran.why), (Some(1), None));
    }

    #[test]
    fn a_guest_that_says_nothing_more_has_no_code() {
        let ran = follow_text("ok one\n");
        assert_eq!(ran.code, None);
    }

    #[test]
    fn time_runs_out() {
        let (_sender, lines) = channel();
        let follow = |limit: u64, is_stopped: bool, is_stalled: bool| {
            let mut ran = Ran::default();
            let (limit, stop) = (Duration::from_secs(limit), AtomicBool::new(is_stopped));
            let look = &mut || Duration::from_secs(60);
            follow(&lines, limit, look, Path::new("/none"), &stop, &|| is_stalled, &mut ran).map(|()| ran)
        };
        let ran = follow(120, false, false).unwrap();
        assert!(ran.code.is_none() && ran.why.unwrap().starts_with("not done after 120 s"));
        let ran = follow(6000, false, true).unwrap();
        assert_eq!(ran.why.as_deref(), Some("the guest's kernel stalled"));
        assert!(follow(120, true, false).is_err());
    }

    #[test]
    fn a_command_is_carried_out_before_the_line_is_closed() {
        let folder = Folder::make("monitor-test").unwrap();
        let path = folder.0.join("monitor");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let answers = ["", "device_del x\r\nError: Device 'x' not found\r\n"];
            answers.map(|answer| {
                let (stream, _) = listener.accept().unwrap();
                (&stream).write_all(b"QEMU 7.2 monitor\r\n(qemu) ").unwrap();
                let mut command = String::new();
                BufReader::new(&stream).read_line(&mut command).unwrap();
                (&stream).write_all(format!("{answer}(qemu) ").as_bytes()).unwrap();
                command
            })
        });
        tell(&path, "device_del a").unwrap();
        let error = tell(&path, "device_del x").unwrap_err().to_string();
        assert!(error.contains("not found"), "{error}");
        assert_eq!(server.join().unwrap(), ["device_del a\n", "device_del x\n"]);
    }

    #[test]
    fn what_a_scenario_wants_stands_on_the_command_line() {
        let text = "# T\n#: cpus 4\n#: nodes 2\n#: boot mitigations=off\n#: device pcie-root-port,id=p\n\
                    #: nvme a bus=p\n#: nvme b\n";
        let scenario = Scenario::parse("x", text).unwrap();
        let kernel = Kernel {
            series: "6.12".to_owned(),
            release: "6.12.1".to_owned(),
            image: "/k/vmlinuz".into(),
            modules: "/k/modules".into(),
        };
        let line = arguments(&kernel, &scenario, Path::new("/run")).join(" ");
        for piece in [
            "-kernel /k/vmlinuz -initrd /run/initramfs",
            "rdinit=/init mitigations=off",
            "-smp 4,sockets=2,cores=2 -m 512M",
            "-object memory-backend-ram,id=memory1,size=256M -numa node,nodeid=1,cpus=2-3,memdev=memory1",
            "-device pcie-root-port,id=p -drive if=none,id=image-a",
            "-device nvme,id=a,serial=a,drive=image-a,bus=p",
            "-device nvme,id=b,serial=b,drive=image-b",
        ] {
            assert!(line.contains(piece), "{piece} is not in {line}");
        }
    }
}
