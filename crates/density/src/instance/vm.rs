//! A Redis server in a virtual machine of its own: QEMU, a kernel booted directly, an initial file system
//! with the server and this program in it, a virtio port for the requests.
//!
//! QEMU is the process that is charged and limited: its memory is the guest's. KVM is used where a guest
//! really runs under it, which is tried once; else the processor is emulated, and latencies say little.
//! Nothing is installed.

mod archive;
mod modules;

use super::folder::mark;
use super::served::Served;
use super::{Instance, InstanceError, Kind, Seat};
use crate::connection::Endpoint;
use archive::Archive;
use overdrive_sys::child;
use std::cell::Cell;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The guest's list of modules, one path a line, in the order they are loaded.
pub(crate) const MODULES: &str = "modules.list";
/// The server's program in the guest.
pub(crate) const GUEST_REDIS: &str = "/redis-server";
/// Where the server keeps its socket in the guest.
pub(crate) const GUEST_FOLDER: &str = "/run";
/// What the guest says on its console when the server answers.
pub(crate) const READY: &str = "overdrive guest: ready";
/// This program in the guest.
const GUEST_PROGRAM: &str = "/overdrive";
/// The command of this program that is [`super::guest::run`].
pub const GUEST_COMMAND: &str = "density-guest";

/// How long a guest may take to come up when its processor is emulated, and when it is not.
const PATIENCE: Duration = Duration::from_secs(180);
const PATIENCE_KVM: Duration = Duration::from_secs(30);

/// What a guest is made of.
#[derive(Debug, Clone)]
pub struct VmSpec {
    /// QEMU's program.
    pub qemu: PathBuf,
    /// The kernel, as it is booted.
    pub kernel: PathBuf,
    /// The folder of its modules, such as `/lib/modules/6.1.0-13-amd64`.
    pub modules: PathBuf,
    /// The server's program on this machine.
    pub redis: PathBuf,
    /// This program.
    pub program: PathBuf,
    /// Memory that the data of one instance needs, in bytes.
    pub data_bytes: u64,
    /// Memory of a guest, in bytes; none for what the data and the system need.
    pub memory_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Accelerator {
    Kvm,
    Emulation,
}

/// Virtual machines.
#[derive(Debug)]
pub struct RedisVm {
    spec: VmSpec,
    initramfs: Vec<u8>,
    memory_bytes: u64,
    /// Found out with the first guest.
    accelerator: Cell<Option<Accelerator>>,
}

impl RedisVm {
    /// Puts a guest together.
    ///
    /// # Errors
    /// When QEMU, the kernel, one of its modules, the server or a library of it is missing; the message
    /// says which.
    pub fn find(spec: VmSpec) -> Result<Self, InstanceError> {
        let missing = InstanceError::Missing;
        let version = Command::new(&spec.qemu).arg("--version").stdin(Stdio::null()).output();
        if !version.as_ref().is_ok_and(|output| output.status.success()) {
            let name = spec.qemu.display();
            return Err(missing(format!("no QEMU: {name} does not run; wanted the package qemu-system-x86")));
        }
        if !spec.kernel.is_file() {
            return Err(missing(format!(
                "no kernel for the guests at {}; wanted --kernel VMLINUZ with --modules DIR, such as those of the package \
                 linux-image-amd64",
                spec.kernel.display()
            )));
        }
        let initramfs = initramfs(&spec).map_err(missing)?;
        // While it is unpacked the archive is there twice; the kernel and the server take some 128 MiB.
        let system = (128 << 20) + 2 * initramfs.len() as u64;
        let memory_bytes = spec.memory_bytes.unwrap_or(system + spec.data_bytes);
        Ok(Self { spec, initramfs, memory_bytes, accelerator: Cell::new(None) })
    }

    fn arguments(&self, seat: &Seat<'_>, accelerator: Accelerator, initramfs: &Path) -> Vec<OsString> {
        let place = |name: &str| seat.folder.join(format!("{}.{name}", seat.number)).display().to_string();
        let (accelerator, cpu) = match accelerator {
            Accelerator::Kvm => ("kvm", "host"),
            // One thread for a guest of one processor.
            Accelerator::Emulation => ("tcg,thread=single", "max"),
        };
        // A tmpfs, which it would be otherwise, takes no more than half of what the archive leaves.
        let command_line = format!(
            "console=ttyS0 loglevel=4 panic=-1 no_timer_check rootfstype=ramfs rdinit={GUEST_PROGRAM} -- {GUEST_COMMAND}"
        );
        let mut words: Vec<OsString> = vec![self.spec.qemu.clone().into()];
        let mut add = |all: &[&str]| words.extend(all.iter().map(OsString::from));
        add(&["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-machine", "q35"]);
        add(&["-accel", accelerator, "-cpu", cpu, "-smp", "1", "-m"]);
        add(&[&format!("{}M", self.memory_bytes.div_ceil(1 << 20))]);
        add(&["-kernel", &self.spec.kernel.display().to_string()]);
        add(&["-initrd", &initramfs.display().to_string(), "-append", &command_line]);
        add(&["-serial", &format!("file:{}", place("console")), "-device", "virtio-serial-pci"]);
        add(&["-chardev", &format!("socket,id=redis,path={},server=on,wait=off", place("sock"))]);
        add(&["-device", "virtserialport,chardev=redis,name=redis,nr=1"]);
        words
    }

    /// Starts a guest and waits until its server answers inside it.
    fn boot(&self, seat: &Seat<'_>, accelerator: Accelerator) -> Result<Served, InstanceError> {
        let fail = |reason: String| InstanceError::Start { number: seat.number, reason };
        let initramfs = seat.folder.join("initramfs");
        if !initramfs.exists() {
            fs::write(&initramfs, &self.initramfs).map_err(|error| fail(error.to_string()))?;
        }
        let log = seat.folder.join(format!("{}.log", seat.number));
        let console = seat.folder.join(format!("{}.console", seat.number));
        let words = seat.backing.command(self.arguments(seat, accelerator, &initramfs), seat.budget_bytes);
        let mut command = Command::new(&words[0]);
        let output = File::create(&log).map_err(|error| fail(error.to_string()))?;
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
        let child = child::spawn(&mut command, seat.group)?;
        let endpoint = Endpoint::Unix(seat.folder.join(format!("{}.sock", seat.number)));
        let mut vm = Served::new(child, endpoint, log);
        mark(seat.folder, vm.id()).map_err(|error| fail(error.to_string()))?;
        let patience = if accelerator == Accelerator::Kvm { PATIENCE_KVM } else { PATIENCE };
        let start = Instant::now();
        loop {
            let said = fs::read(&console).map(|text| String::from_utf8_lossy(&text).into_owned());
            let said = said.unwrap_or_default();
            if said.contains(READY) {
                return Ok(vm);
            }
            let last = said
                .lines()
                .rev()
                .find(|line| !line.trim().is_empty())
                .unwrap_or("nothing")
                .trim()
                .to_owned();
            if let Some(reason) = vm.ended() {
                return Err(fail(format!("{reason}; its console's last line: {last}")));
            }
            if start.elapsed() > patience {
                let seconds = patience.as_secs();
                return Err(fail(format!(
                    "no server in the guest after {seconds} s; its console's last line: {last}"
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Kind for RedisVm {
    fn name(&self) -> &'static str {
        "vm"
    }

    fn describe(&self) -> String {
        let how = match self.accelerator.get() {
            Some(Accelerator::Kvm) => "under KVM",
            Some(Accelerator::Emulation) => "under software emulation",
            None => "not started",
        };
        let mebibytes = self.memory_bytes.div_ceil(1 << 20);
        let kernel = self.spec.kernel.file_name().unwrap_or_default().to_string_lossy().into_owned();
        format!("redis-server in a QEMU guest of {mebibytes} MiB {how}, kernel {kernel}")
    }

    fn patience(&self) -> Duration {
        // The guest has said that its server answers; this is the way through the port.
        Duration::from_secs(60)
    }

    fn start(&self, seat: &Seat<'_>) -> Result<Box<dyn Instance>, InstanceError> {
        if let Some(accelerator) = self.accelerator.get() {
            return Ok(Box::new(self.boot(seat, accelerator)?));
        }
        // A device file alone says little: in many guests it is there and no guest of it runs.
        if File::options().read(true).write(true).open("/dev/kvm").is_ok()
            && let Ok(vm) = self.boot(seat, Accelerator::Kvm)
        {
            self.accelerator.set(Some(Accelerator::Kvm));
            return Ok(Box::new(vm));
        }
        let _ = fs::remove_file(seat.folder.join(format!("{}.console", seat.number)));
        let vm = self.boot(seat, Accelerator::Emulation)?;
        self.accelerator.set(Some(Accelerator::Emulation));
        Ok(Box::new(vm))
    }
}

/// The guest's file system: this program, the server, their libraries, the modules of the port.
fn initramfs(spec: &VmSpec) -> Result<Vec<u8>, String> {
    let mut archive = Archive::default();
    for folder in ["dev", "proc", "sys", "run", "tmp"] {
        archive.folder(folder);
    }
    // Before anything is mounted the kernel looks for this one to give the first program its output.
    archive.device("dev/console", 5, 1);
    let redis = on_path(&spec.redis).ok_or_else(|| {
        let name = spec.redis.display();
        format!("no Redis server: {name} is not there; wanted the package redis-server (as root: apt-get install redis-server)")
    })?;
    let read = |path: &Path| fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    archive.program(GUEST_PROGRAM, &read(&spec.program)?);
    archive.program(GUEST_REDIS, &read(&redis)?);
    for program in [&spec.program, &redis] {
        for library in libraries(program)? {
            archive.program(&library.display().to_string(), &read(&library)?);
        }
    }
    let mut list = String::new();
    for (name, content) in modules::for_port(&spec.modules)? {
        let path = format!("modules/{name}.ko");
        archive.file(&path, &content);
        list += &format!("{path}\n");
    }
    archive.file(MODULES, list.as_bytes());
    Ok(archive.finish())
}

/// A program by its path, or by its name in the places where programs are.
fn on_path(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_owned());
    }
    let places = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&places).map(|place| place.join(program)).find(|path| path.is_file())
}

/// The libraries and the loader of a program, where it looks for them.
fn libraries(program: &Path) -> Result<Vec<PathBuf>, String> {
    let output = Command::new("ldd").arg(program).output().map_err(|error| format!("ldd: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let path_in = |line: &str| {
        let path = line.split_once("=>").map_or(line, |(_, path)| path).split_ascii_whitespace().next()?;
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    if let Some(line) = text.lines().find(|line| line.contains("not found")) {
        return Err(format!("{}: a library is missing: {}", program.display(), line.trim()));
    }
    Ok(text.lines().filter_map(path_in).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let spec = VmSpec {
            qemu: "/no/such/qemu".into(),
            kernel: "/no/such/kernel".into(),
            modules: "/no/such/modules".into(),
            redis: "/no/such/redis".into(),
            program: "/proc/self/exe".into(),
            data_bytes: 0,
            memory_bytes: None,
        };
        let said = |spec: VmSpec| RedisVm::find(spec).unwrap_err().to_string();
        assert!(said(spec.clone()).contains("wanted the package qemu-system-x86"));
        let spec = VmSpec { qemu: "true".into(), ..spec };
        assert!(said(spec.clone()).contains("wanted --kernel VMLINUZ with --modules DIR"));
        let spec = VmSpec { kernel: "/proc/self/exe".into(), ..spec };
        assert!(said(spec.clone()).contains("wanted the package redis-server"));
        let spec = VmSpec { redis: "/proc/self/exe".into(), ..spec };
        assert!(said(spec).contains("/no/such/modules"));
    }

    #[test]
    fn programs_are_found_with_their_libraries() {
        let shell = on_path(Path::new("sh")).unwrap();
        assert!(libraries(&shell).unwrap().iter().any(|path| path.to_string_lossy().contains("libc")));
        assert_eq!(on_path(Path::new("no-such-program")), None);
    }
}
