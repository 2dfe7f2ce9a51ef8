//! Soft-RoCE guests: real RDMA between two small virtual machines, without RDMA hardware.
//!
//! A guest runs Debian's kernel with `rdma_rxe` under qemu's own CPU emulation (no KVM needed),
//! this machine's root file system read-only over 9p under an overlay in memory, and its TAP device
//! joined to a host namespace of the lab. What the guest's own folders hide of that file system,
//! such as `/tmp`, is below `/run/machine`. A shared folder carries jobs in and results out; a
//! serial port tells which, so that a guest with nothing to do costs nothing:
//!
//! ```text
//!   folder/7.job, "7" by ttyS1  -> the guest's loop runs it ->  folder/7.out  folder/7.code
//! ```
//!
//! About 12 s from start to a working queue pair, and 5-20 MB/s after that.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

use crate::interrupt;
use crate::process::{self, Running};
use crate::topology::{HOST_V4, HOST_V6, Lab, Side};

mod esp_nic;
mod image;

/// A guest that has not come up by then will not.
const BOOT: Duration = Duration::from_secs(300);
/// Memory of a guest, MiB: perftest registers a few MiB.
const MEMORY_MIB: u32 = 512;

/// Modules in the order they are wanted; their dependencies are found by modprobe. `crc32_generic`
/// comes before `rdma_rxe`, which asks for it by name and cannot load it itself here.
const MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_net",
    "9pnet_virtio",
    "9p",
    "overlay",
    "crc32_generic",
    "rdma_rxe",
    "ib_uverbs",
    "rdma_ucm",
];

/// Of a guest's kernel.
const KERNEL_ARGUMENTS: &str =
    "console=ttyS0 quiet panic=-1 random.trust_cpu=on no_timer_check norandmaps";

/// Runs first in the guest. The loop at the end is the guest's only service.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
for module in /modules/*; do insmod $module; done
mkdir -p /lower /memory /root
mount -t tmpfs tmpfs /memory
mkdir -p /memory/upper /memory/work
mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=262144,cache=loose root /lower
mount -t overlay -o lowerdir=/lower,upperdir=/memory/upper,workdir=/memory/work overlay /root
for folder in proc sys dev; do mount -o bind /$folder /root/$folder; done
mount -t tmpfs tmpfs /root/run
mount -t tmpfs tmpfs /root/tmp
mkdir -p /root/run/jobs /root/run/machine
mount -o bind /lower /root/run/machine
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=none jobs /root/run/jobs
exec chroot /root /bin/sh /run/jobs/loop
"#;

/// Takes jobs as their numbers come, each in the background, so that a server can wait for its
/// client. The code file appears by renaming, when the output is complete.
const LOOP: &str = r#"export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp
cd /run/jobs
sh ./setup > setup.out 2>&1
code=$?
exec < /dev/ttyS1
stty -echo
echo $code > setup.code
while read number; do
  (sh ./$number.job < /dev/null > $number.out 2>&1; echo $? > $number.end
   mv $number.end $number.code) &
done
"#;

/// A kernel and its modules.
#[derive(Clone, Debug)]
pub struct GuestKernel {
    image: PathBuf,
    version: String,
    /// The folder of one that is not installed; its guests have a card with IPsec offload.
    unpacked: Option<PathBuf>,
}

/// A running guest on one side of a lab. Dropping it ends it.
#[derive(Debug)]
pub struct Guest {
    qemu: Running,
    folder: PathBuf,
    jobs: u32,
    side: Side,
}

/// A job that runs in a guest.
#[derive(Debug)]
pub struct Job {
    folder: PathBuf,
    number: u32,
    line: String,
}

/// What a job said.
#[derive(Debug)]
pub struct JobResult {
    /// Its exit code.
    pub code: i32,
    /// Its output, both streams.
    pub output: String,
}

impl GuestKernel {
    /// The newest installed kernel that has Soft-RoCE.
    ///
    /// # Errors
    /// None is installed, or qemu and its company are missing; says what to install.
    pub fn find() -> Result<Self> {
        process::require(&["qemu-system-x86_64", "busybox", "cpio", "modprobe"])?;
        let mut versions: Vec<String> = fs::read_dir("/lib/modules")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|version| {
                let rxe = format!("/lib/modules/{version}/kernel/drivers/infiniband/sw/rxe");
                Path::new(&rxe).is_dir() && installed(version).is_file()
            })
            .collect();
        versions.sort();
        let version = versions
            .pop()
            .context("no kernel with rdma_rxe; try `apt-get install linux-image-amd64`")?;
        Ok(Self { image: installed(&version), version, unpacked: None })
    }

    /// Its version, as `uname -r` says.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Packs the guest's first file system into `file`.
    fn pack(&self, folder: &Path, file: &Path) -> Result<()> {
        for part in ["bin", "modules", "proc", "sys", "dev"] {
            fs::create_dir_all(folder.join(part))?;
        }
        let busybox = which("busybox")?;
        fs::copy(busybox, folder.join("bin/busybox"))?;
        let init = folder.join("init");
        fs::write(&init, INIT)?;
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
        for (index, module) in self.modules()?.iter().enumerate() {
            let name = module.file_name().context("a module has a name")?.to_string_lossy();
            fs::copy(module, folder.join(format!("modules/{index:02}-{name}")))?;
        }
        let script = "find . | cpio -o -H newc --quiet > \"$0\"";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(file).current_dir(folder);
        process::run(&mut command, Duration::from_secs(30))?;
        Ok(())
    }

    /// Module files in the order they must be loaded.
    fn modules(&self) -> Result<Vec<PathBuf>> {
        let mut files: Vec<PathBuf> = Vec::new();
        for module in MODULES {
            let mut command = Command::new("modprobe");
            command.args(["--set-version", &self.version, "--show-depends", module]);
            if let Some(tree) = &self.unpacked {
                command.arg("--dirname").arg(tree);
            }
            let listed = process::run(&mut command, Duration::from_secs(30))?.stdout;
            for line in listed.lines() {
                // A `builtin` line names what needs no file.
                let Some(path) = line.strip_prefix("insmod ") else { continue };
                let path = PathBuf::from(path.split_whitespace().next().unwrap_or(path));
                if !files.contains(&path) {
                    files.push(path);
                }
            }
        }
        Ok(files)
    }
}

impl Guest {
    /// Boots a guest on `side` of a lab built with [`crate::topology::Hosts::Guests`]. It has the
    /// host's addresses and `rxe0` over `eth0` when [`Guest::wait_ready`] returns.
    ///
    /// # Errors
    /// qemu does not start.
    pub fn boot(lab: &Lab, side: Side, kernel: &GuestKernel) -> Result<Self> {
        let folder = lab.folder().join(format!("guest{side:?}"));
        let jobs = folder.join("jobs");
        fs::create_dir_all(&jobs)?;
        fs::write(jobs.join("loop"), LOOP)?;
        let card = kernel.unpacked.as_deref().map(|tree| esp_nic::setup(tree, &kernel.version));
        let setup = setup(side, lab.plan().host_mtu) + &card.unwrap_or_default();
        fs::write(jobs.join("setup"), setup)?;
        let ramdisk = folder.join("ramdisk");
        kernel.pack(&folder.join("first"), &ramdisk)?;
        let host = lab.host(side);
        host.ip("tuntap add dev tap0 mode tap vnet_hdr\n\
             link set tap0 mtu 9000\n\
             link set tap0 master br0\n")?;
        host.set(&[("net.ipv6.conf.tap0.disable_ipv6", "1")])?;
        host.ip("link set tap0 up\n")?;
        let bell = folder.join("bell");
        for end in ["in", "out"] {
            let (file, mode) = (bell.with_extension(end), Mode::RUSR | Mode::WUSR);
            mknodat(CWD, &file, FileType::Fifo, mode, 0)?;
        }
        let mac = format!("02:77:00:00:01:0{}", side.index() + 1);
        let mtu = lab.plan().host_mtu;
        let mut command = host.command("qemu-system-x86_64");
        command
            // Kernels and libraries would clear and copy by instructions that are emulated byte by
            // byte, where a processor says that it is quick at them.
            .args(["-accel", "tcg", "-cpu", "max,-erms,-fsrm"])
            .args(["-smp", "1", "-nodefaults", "-no-reboot"])
            .args(["-display", "none", "-m", &MEMORY_MIB.to_string()])
            .arg("-kernel")
            .arg(image::quick(&kernel.image))
            .arg("-initrd")
            .arg(&ramdisk)
            // Whether the timer works is judged by how many of its interrupts come in a moment: on
            // a busy machine too few, which the kernel takes for a broken one and panics. QEMU
            // translates code anew for each address that it runs at: programs start at the same.
            .args(["-append", KERNEL_ARGUMENTS])
            .args(["-serial", &format!("file:{}", folder.join("console").display())])
            .args(["-serial", &format!("pipe:{}", bell.display())])
            .args(["-netdev", "tap,id=net0,ifname=tap0,script=no,downscript=no"])
            .args(["-device", &format!("virtio-net-pci,netdev=net0,mac={mac},host_mtu={mtu}")])
            .args(["-virtfs", "local,path=/,mount_tag=root,security_model=none,readonly=on"])
            .arg("-virtfs")
            .arg(format!("local,path={},mount_tag=jobs,security_model=none", jobs.display()));
        Ok(Self { qemu: Running::start(&mut command)?, folder, jobs: 0, side })
    }

    /// Waits until the guest's RDMA device stands.
    ///
    /// # Errors
    /// qemu ended, the set-up failed, or it took too long; the end of the console is in the error.
    pub fn wait_ready(&mut self) -> Result<()> {
        let code = self.folder.join("jobs/setup.code");
        let waited = interrupt::until("guest that is up", BOOT, || {
            if !self.qemu.is_running()? {
                bail!("qemu ended: {}", self.qemu.stderr().trim());
            }
            Ok(fs::read_to_string(&code).is_ok_and(|text| text.ends_with('\n')))
        });
        waited
            .with_context(|| format!("console of guest {:?}: {}", self.side, self.console_end()))?;
        if fs::read_to_string(&code)?.trim() != "0" {
            let words = fs::read_to_string(self.folder.join("jobs/setup.out")).unwrap_or_default();
            bail!("guest {:?} has no RDMA device: {}", self.side, words.trim());
        }
        Ok(())
    }

    /// Starts a shell command line in the guest.
    ///
    /// # Errors
    /// The shared folder cannot be written, or the guest is gone.
    pub fn start(&mut self, line: &str) -> Result<Job> {
        self.jobs += 1;
        let folder = self.folder.join("jobs");
        // Written under another name first: the guest must not read half a job.
        let draft = folder.join("draft");
        fs::write(&draft, format!("{line}\n"))?;
        fs::rename(&draft, folder.join(format!("{}.job", self.jobs)))?;
        // Nobody's ear at the other end is an error, and no reason to wait.
        let mut options = fs::File::options();
        options.write(true).custom_flags(OFlags::NONBLOCK.bits() as i32);
        let bell = options.open(self.folder.join("bell.in"));
        writeln!(bell.context("the guest is gone")?, "{}", self.jobs)?;
        Ok(Job { folder, number: self.jobs, line: line.to_owned() })
    }

    /// Runs a shell command line in the guest to its end, at most for `limit`.
    ///
    /// # Errors
    /// It took longer or a signal came. A failed command is not an error: see its code.
    pub fn run(&mut self, line: &str, limit: Duration) -> Result<JobResult> {
        self.start(line)?.finish(limit)
    }

    /// Waits until a server of perftest or rping listens, which says nothing when it does; a client
    /// that came sooner would be refused.
    ///
    /// # Errors
    /// None listens within a minute, or a signal came.
    pub fn wait_for_rdma_server(&mut self) -> Result<()> {
        let line = "timeout 60 sh -c 'until ss -Hltn sport = :18515 | grep -q . || \
                    rdma resource show cm_id | grep -q LISTEN; do sleep 0.1; done'";
        self.run(line, Duration::from_secs(70))?.success().context("no RDMA server listens")?;
        Ok(())
    }

    /// Waits for a job's end, at most for `limit`; one that goes on is stopped and has failed.
    ///
    /// # Errors
    /// It cannot be stopped either, or a signal came.
    pub fn finish_or_stop(&mut self, job: Job, limit: Duration) -> Result<JobResult> {
        let file = job.folder.join(format!("{}.code", job.number));
        if interrupt::until("end of a job", limit, || Ok(file.exists())).is_err() {
            interrupt::check()?;
            let name = job.line.split_whitespace().next().unwrap_or_default().to_owned();
            self.run(&format!("busybox killall {name}"), limit)?;
        }
        job.finish(limit)
    }

    /// Writes a file that the guest reads as `/run/jobs/NAME`.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn put(&self, name: &str, text: &str) -> Result<()> {
        Ok(fs::write(self.shared(name), text)?)
    }

    /// A file that the guest writes as `/run/jobs/NAME`.
    pub fn shared(&self, name: &str) -> PathBuf {
        self.folder.join("jobs").join(name)
    }

    /// The emulator's process.
    pub fn process_id(&self) -> u32 {
        self.qemu.id()
    }

    fn console_end(&self) -> String {
        let text = fs::read(self.folder.join("console")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text[text.len().saturating_sub(2000)..]).into_owned();
        text.trim().to_owned()
    }
}

impl Job {
    /// What it has said so far.
    pub fn output(&self) -> String {
        fs::read_to_string(self.folder.join(format!("{}.out", self.number))).unwrap_or_default()
    }

    /// Waits until its output holds `mark`.
    ///
    /// # Errors
    /// The limit passed or a signal came.
    pub fn wait_for(&self, mark: &str, limit: Duration) -> Result<()> {
        let what = format!("'{mark}' from the guest's `{}`", self.line);
        interrupt::until(&what, limit, || Ok(self.output().contains(mark)))
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// The limit passed (what it said is in the error) or a signal came.
    pub fn finish(self, limit: Duration) -> Result<JobResult> {
        let file = self.folder.join(format!("{}.code", self.number));
        let what = format!("end of the guest's `{}`", self.line);
        interrupt::until(&what, limit, || Ok(file.exists())).with_context(|| self.output())?;
        let code = fs::read_to_string(&file)?.trim().parse().unwrap_or(-1);
        Ok(JobResult { code, output: self.output() })
    }
}

impl JobResult {
    /// Its output when it succeeded.
    ///
    /// # Errors
    /// It did not: its output.
    pub fn success(self) -> Result<String> {
        if self.code == 0 {
            return Ok(self.output);
        }
        bail!("exit code {} in the guest: {}", self.code, self.output.trim());
    }
}

fn installed(version: &str) -> PathBuf {
    PathBuf::from(format!("/boot/vmlinuz-{version}"))
}

fn which(tool: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|it| it.join(tool)).find(|it| it.is_file());
    found.with_context(|| format!("{tool} is not in the path"))
}

/// Addresses before the RDMA device: its GIDs come from them.
fn setup(side: Side, mtu: u32) -> String {
    let (v4, v6) = (HOST_V4[side.index()], HOST_V6[side.index()]);
    format!(
        "set -e\n\
         ip link set lo up\n\
         sysctl -q -w net.ipv6.conf.eth0.accept_dad=0\n\
         ip link set eth0 mtu {mtu} up\n\
         ip address add {v4}/24 dev eth0\n\
         ip address add {v6}/64 dev eth0 nodad\n\
         rdma link add rxe0 type rxe netdev eth0\n\
         ls /dev/infiniband\n\
         ibv_devices\n"
    )
}
